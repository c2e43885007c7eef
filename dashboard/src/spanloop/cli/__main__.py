"""``python -m spanloop.cli`` is the ``spanloop`` command."""

from . import main

main()
