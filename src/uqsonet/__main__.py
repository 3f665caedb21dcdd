"""``python -m uqsonet`` is the command line."""

from uqsonet.cli import app

app()
