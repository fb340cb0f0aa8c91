"""The command line as `python -m adjudge`, where the folder of scripts is not on the path."""

import sys

from adjudge.cli import main

if __name__ == "__main__":
    sys.exit(main())
