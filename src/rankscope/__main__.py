"""``python -m rankscope``: the same as ``rankscope``, also where its folder of scripts is not on the PATH."""

import sys

from rankscope.cli import main

if __name__ == "__main__":
    sys.exit(main())
