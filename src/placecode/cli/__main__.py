"""Run the command `placecode` with `python -m placecode.cli`."""

import sys

from placecode.cli import main

sys.exit(main())
