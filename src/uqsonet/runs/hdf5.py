"""HDF5 files of anybody: which data sets are in the file itself."""

from __future__ import annotations

from collections.abc import Iterator

import h5py


def data_sets(file: h5py.Group) -> Iterator[tuple[str, h5py.Dataset | str]]:
    """Yield path and data set of all that is in an HDF5 file; nothing that leads out is followed.

    In place of a data set that is not in the file itself there is a text that says what it is.
    """
    waiting, entered = [("", file)], {file["/"]}
    while waiting:
        above, group = waiting.pop()
        for key in group:
            name = f"{above}{key}".encode("utf-8", "backslashreplace").decode()
            link = group.get(key, getlink=True)
            if not isinstance(link, h5py.HardLink):
                kind = "an external" if isinstance(link, h5py.ExternalLink) else "a soft"
                yield name, f"{kind} link"
                continue
            item = group[key]
            if isinstance(item, h5py.Dataset):
                yield name, elsewhere(item) or item
            elif isinstance(item, h5py.Group) and item not in entered:  # it may be within itself
                entered.add(item)
                waiting.append((f"{name}/", item))


def elsewhere(item: h5py.Dataset) -> str:
    """Say where the values of a data set are, if not in its own file."""
    if item.is_virtual:
        return "a virtual data set"
    return "external storage" if item.external else ""


def text_of(value: object) -> str:
    """Return an attribute as text, whatever it is."""
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)
