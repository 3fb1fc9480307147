"""``python -m winlab`` is the command ``winlab``."""

from winlab.cli.main import main

main()
