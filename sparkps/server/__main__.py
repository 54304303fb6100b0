"""``python -m sparkps.server``: its first line of stdin says what it is (:mod:`.shell`)."""

import sys

from sparkps.server.shell import main

if __name__ == "__main__":
    sys.exit(main())
