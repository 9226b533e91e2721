"""python -m heddle: the same as the command heddle."""

import sys

from .cli import main

sys.exit(main())
