"""`python -m xtts`, the same as the `xtts` command."""

import sys

from xtts.commands.main import main

sys.exit(main())
