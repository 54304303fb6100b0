"""What tests need, shipped with the product: a real cluster, and time that obeys."""

from sparkps.testing.cluster import LocalCluster
from sparkps.testing.time import FakeTime

__all__ = ["FakeTime", "LocalCluster"]
