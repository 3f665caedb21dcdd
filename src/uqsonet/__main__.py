"""``python -m uqsonet`` is the command line."""

from uqsonet.cli import main

main()
