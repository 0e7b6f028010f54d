"""`python -m placecode.cli` is the command `placecode`."""

import sys

from placecode.cli import main

sys.exit(main())
