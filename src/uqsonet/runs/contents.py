"""What a file holds, for who does not know the names of its fields yet (`contents`)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from uqsonet.errors import printable
from uqsonet.fields.stacked import Domain
from uqsonet.runs.field_runs import Scan
from uqsonet.runs.files import MAX_NAMES, decoded, kind_of, opened, paths_of
from uqsonet.runs.meshes import read_mesh
from uqsonet.runs.stored import row_blocks


def contents(path: Path | str) -> str:
    """Return a line for each array of a file: name, shape, units, range, missing values.

    Of several files (a glob) the first is looked at. Files that cannot be read are refused
    (`DataError`) as by `uqsonet.open_runs`.
    """
    paths = paths_of(path)
    kind, first = kind_of(paths), paths[0]
    if kind == "mesh":
        lines = [_line(name, one.values[0], one.units) for name, one in read_mesh(first).items()]
    else:
        with opened(first, kind) as there:
            named = dict(there if isinstance(there, dict) else there.variables)
            named = {name: one for name, one in named.items() if not isinstance(one, Domain)}
            largest = sorted(named, key=lambda name: -len(getattr(named[name], "shape", ())))
            lines = [_of_array(first, str(name), named[name]) for name in largest[:MAX_NAMES]]
            lines += [f"  and {len(named) - MAX_NAMES} more"] if len(named) > MAX_NAMES else []
    many = f", the first of {len(paths)} files" if len(paths) > 1 else ""
    how = f"To go on: uqsonet describe {path} --input NAME --output NAME"
    return printable("\n".join([f"{first}{many}: {len(lines)} arrays", *lines, how]))


def _of_array(path: Path, name: str, item: Any) -> str:
    """Return the line of an array of an npz or HDF5 file, or of an xarray.Variable."""
    if isinstance(item, str):
        return f"  {name}: not read, {item}"
    if hasattr(item, "encoding"):
        return _line(name, item, str(item.attrs.get("units", "")), f" ({', '.join(item.dims)})")
    return _line(name, *decoded(path, name, item))


def _line(name: str, values: Any, units: str, dims: str = "") -> str:
    """Return a line: name, shape, dimensions, units, and what the values are."""
    shape, dtype = " x ".join(map(str, values.shape)) or "one value", values.dtype
    text = f"  {name}: {shape}{dims}{', ' * bool(units)}{units}"
    if dtype.kind not in "fiub" or 0 in values.shape:
        return f"{text}, {dtype}"
    blocks = row_blocks(values) if values.ndim else [values]
    seen = [Scan.of(np.asarray(block, np.float64).reshape(1, -1)) for block in blocks]
    low, high = min(one.lowest[0] for one in seen), max(one.highest[0] for one in seen)
    missing = sum(int(one.missing[0]) for one in seen)
    text += f", {low:.4g} to {high:.4g}" if low <= high else ", no value"
    return text + (f", {missing} values missing" if missing else "")
