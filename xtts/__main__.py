"""`python -m xtts`: the same verbs as the `xtts` command."""

import sys

from xtts.cli import main

sys.exit(main())
