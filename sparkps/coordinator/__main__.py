"""``python -m sparkps.coordinator``: the coordinator process. It is started by a launcher, not by
hand.
"""

from __future__ import annotations

import sys

from sparkps.coordinator.shell import main

if __name__ == "__main__":
    sys.exit(main())
