"""Measurements anyone can repeat. Run from the checkout: `python -m bench.movers`, `python -m bench.memory`.

A timed assertion does not belong in a test, where it fails on a busy day; it belongs here, where the run says
what it measured, on what, and whether the bar was met. See README.md beside this file.
"""

import os
import sys

# Images set it. Then every command that is started here compiles all it imports, half of its start again,
# which nobody has who installed it: pip compiles what it installs.
if os.environ.pop("PYTHONDONTWRITEBYTECODE", None) is not None:
    sys.dont_write_bytecode = False
