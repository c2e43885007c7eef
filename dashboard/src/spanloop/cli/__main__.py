"""Run the ``spanloop`` command by ``python -m spanloop.cli``."""

from . import main

main()
