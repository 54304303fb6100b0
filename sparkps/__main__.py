"""``python -m sparkps``: see :mod:`sparkps.cli`."""

import sys

from sparkps.cli.main import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
