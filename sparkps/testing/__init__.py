"""Fakes and clusters for tests, shipped with the product: :class:`LocalCluster`, :class:`FakeTime`."""

from sparkps.testing.cluster import LocalCluster
from sparkps.testing.time import FakeTime

__all__ = ["FakeTime", "LocalCluster"]
