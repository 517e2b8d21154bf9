"""`python -m kubegc` is `kubegc`."""
import os
import sys

from . import binary

program = binary()
os.execv(program, [program, *sys.argv[1:]])
