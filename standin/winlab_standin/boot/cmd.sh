#!/usr/bin/python3 -IS
# The login shell of the stand-in: its cmd.exe.
import sys

sys.path.insert(0, "/usr/lib/standin")
from winlab_standin.guest.login import main

sys.exit(main(sys.argv))
