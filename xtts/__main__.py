"""`python -m xtts`: the same verbs as the `xtts` command."""

import sys

from xtts.commands.main import main

sys.exit(main())
