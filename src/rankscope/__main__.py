"""``python -m rankscope``: the same as the command ``rankscope``, for installations whose scripts are not on PATH."""

import sys

from rankscope.cli import main

if __name__ == "__main__":
    sys.exit(main())
