"""Make `python -m placecode.cli` do the same as the command `placecode`."""

import sys

from placecode.cli import main

sys.exit(main())
