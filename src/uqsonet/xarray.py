"""``import uqsonet.xarray``: a dataset hands its runs over, ``ds.uqsonet.runs("k", "u")``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from xarray import Dataset, register_dataset_accessor

from uqsonet.errors import DataError
from uqsonet.runs.field_runs import FieldRuns
from uqsonet.runs.files import listed
from uqsonet.runs.runs import Runs


@register_dataset_accessor("uqsonet")
class DatasetAccessor:
    """What ``uqsonet`` adds to an `xarray.Dataset`."""

    def __init__(self, dataset: Dataset) -> None:
        self._dataset = dataset

    def runs(
        self, input: str | Sequence[str], output: str | Sequence[str], groups: object = None,
        **options: Any,
    ) -> Runs:  # fmt: skip
        """Return the runs that the dataset holds, as `uqsonet.open_runs` does of a file.

        Parameters
        ----------
        input, output : str or sequence of str
            Names of the fields: one, several in a list, or ``"k,f"``.
        groups : sequence of labels, optional
            Runs that belong together (`Runs`).
        **options
            Of each field: ``transform``, ``units``, ``periodic``, ``missing``, ``merge``
            (`FieldRuns.of`).

        Raises
        ------
        DataError
            If a field is not there, or cannot be used.
        """
        inputs, outputs = (
            {name: FieldRuns.of(self._array(name), name=name, **options) for name in names}
            for names in (listed(input, "input"), listed(output, "output"))
        )
        return Runs(inputs, outputs, groups=groups)

    def _array(self, name: str) -> Any:
        """Return an array of the dataset."""
        if name not in self._dataset:
            there = ", ".join(map(str, self._dataset.data_vars))
            raise DataError(f"no array {name!r} in the dataset; there are {there or 'none'}")
        return self._dataset[name]
