"""Importing this takes the lock of `locks`: the first thing that a job's script does.

Torch takes seconds to import. A run that is started beside a job which outlived its Snakemake must
see it in that time, too.
"""

from pathlib import Path

from uqsonet_study import locks

locks.join(Path(".snakemake"))
