"""Modes of training data, fitted once and kept beside the file of functions.

Every trial, and the linear baseline, needs the same Karhunen-Loeve bases of the same pairs. The
first job that does writes them; others that start meanwhile wait for it. A file is named by what
defines its content: the functions, how many of them, the numbers of modes, and the source.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from uqsonet.errors import DataError
from uqsonet.files import file_digest
from uqsonet.gauss import blocks, principal_components
from uqsonet.operator.weight_files import read_weights, write_weights
from uqsonet.runs.functions import Functions

if TYPE_CHECKING:  # an edit of that model is none of other models' trainings
    from uqsonet.laws.bases import KarhunenLoeveBases

LOG = logging.getLogger("uqsonet")

SOURCES = blocks, principal_components
"""Modules whose source decides the numbers, besides those of bases and of what fits them."""

MODES = ".modes"  # end of the name of their folder
TARGETS = ("a", "c")
"""Coefficients of inputs and outputs, which the pass that finds the operator makes."""


class Keeper:
    """Fits bases to the pairs of one file, or reads them where that is done.

    Parameters
    ----------
    path : Path
        File of functions.
    digest : str, optional
        Of the file, where it is known.
    """

    def __init__(self, path: Path, digest: str | None = None) -> None:
        self._folder = path.with_name(f".{path.stem}{MODES}")
        self._digest = digest or file_digest(path)

    def __call__(
        self,
        fit: Callable[..., None],
        bases: KarhunenLoeveBases,
        functions: Functions,
        linear: bool,
    ) -> None:
        """Set bases as a function does: by calling it, or as a file has them."""
        identity = {
            "functions": self._digest,
            "training": functions.size,
            "input_modes": bases.input_factor.shape[1],
            "output_modes": bases.output_modes.shape[1],
            "linear": linear,
            "code": [file_digest(path) for path in self._sources(bases, fit)],
            "torch": torch.__version__,
        }
        name = hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:16]
        path = self._folder / f"{self._digest[:8]}-{name}.safetensors"
        with _alone(path.with_suffix(".lock")):
            if not self._read(path, bases, functions, identity):
                fit(bases, functions, linear)
                try:
                    self._write(path, bases, functions, identity)
                except OSError as error:
                    LOG.warning("modes are fitted and not kept: %s", error)

    @staticmethod
    def _sources(bases: KarhunenLoeveBases, fit: Callable[..., None]) -> list[Path]:
        modules = *SOURCES, *(sys.modules[one.__module__] for one in (type(bases), fit))
        return [Path(str(module.__file__)) for module in modules]

    def _read(
        self,
        path: Path,
        bases: KarhunenLoeveBases,
        functions: Functions,
        identity: dict[str, object],
    ) -> bool:
        """Return whether the modes were there."""
        try:
            if not path.exists():
                return False
            tensors, meta = read_weights(path)
        except (DataError, OSError) as error:
            LOG.warning("modes are fitted again: %s", error)
            return False
        if meta != identity:
            return False
        for key, value in bases.named_buffers():
            value.copy_(tensors[key])
        if identity["linear"]:
            functions.keep(bases.to_coefficients, {key: tensors[key] for key in TARGETS})
        return True

    def _write(
        self,
        path: Path,
        bases: KarhunenLoeveBases,
        functions: Functions,
        identity: dict[str, object],
    ) -> None:
        for old in self._folder.glob("*.safetensors"):
            if not old.name.startswith(self._digest[:8]):
                old.unlink(missing_ok=True)
        tensors = dict(bases.named_buffers())
        if identity["linear"]:
            tensors |= functions.kept(bases.to_coefficients) or {}
        write_weights(path, tensors, identity)


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    """Let one process at a time work, where the file system has locks."""
    with ExitStack() as stack:
        try:
            path.parent.mkdir(exist_ok=True)
            fcntl.flock(stack.enter_context(path.open("a")), fcntl.LOCK_EX)
        except OSError:
            LOG.info("%s: no locks here; others may do the same work", path)
        yield
