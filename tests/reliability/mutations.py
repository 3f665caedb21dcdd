"""Ways to damage a file: on disk as noise, or through the library that knows its structure."""

from __future__ import annotations

import json
import random
import struct
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np

Random = random.Random
Mutation = Callable[[bytes, Random], bytes]


def flip(data: bytes, chance: Random) -> bytes:
    """Turn one to eight bits."""
    found = bytearray(data)
    for _ in range(chance.choice((1, 1, 1, 2, 8))):
        found[chance.randrange(len(found))] ^= 1 << chance.randrange(8)
    return bytes(found)


def flip_early(data: bytes, chance: Random) -> bytes:
    """Turn bits in the first 4 KiB, where superblocks and headers are."""
    found = bytearray(data)
    for _ in range(chance.choice((1, 2, 4))):
        found[chance.randrange(min(4096, len(found)))] ^= 1 << chance.randrange(8)
    return bytes(found)


def overwrite(data: bytes, chance: Random) -> bytes:
    """Write zeros, ones or noise over a stretch."""
    size = chance.randint(1, min(4096, len(data)))
    start = chance.randrange(len(data) - size + 1)
    filling = chance.choice((bytes(size), b"\xff" * size, chance.randbytes(size)))
    return data[:start] + filling + data[start + size :]


def truncate(data: bytes, chance: Random) -> bytes:
    """Lose the end."""
    return data[: chance.randrange(len(data))]


def extend(data: bytes, chance: Random) -> bytes:
    """Append what does not belong there."""
    return data + chance.randbytes(chance.randint(1, 5000))


def swap(data: bytes, chance: Random) -> bytes:
    """Exchange two stretches of equal length, as blocks of a disk."""
    size = chance.choice((16, 512, 4096))
    if len(data) < 2 * size:
        return data[::-1]
    first, second = sorted(chance.sample(range(len(data) // size), 2))
    found = bytearray(data)
    a, b = first * size, second * size
    found[a : a + size], found[b : b + size] = data[b : b + size], data[a : a + size]
    return bytes(found)


def remove(data: bytes, chance: Random) -> bytes:
    """Lose a stretch in the middle."""
    start = chance.randrange(len(data))
    return data[:start] + data[start + chance.randint(1, 600) :]


NOISE: dict[str, Mutation] = {
    "flip": flip,
    "flip_early": flip_early,
    "overwrite": overwrite,
    "truncate": truncate,
    "extend": extend,
    "swap": swap,
    "remove": remove,
}


def change_h5(path: Path, chance: Random) -> str:
    """Change an HDF5 file through h5py, leaving its checksums as they were; say how."""
    kind = chance.choice(sorted(STRUCTURE))
    with h5py.File(path, "r+") as file:
        names: list[str] = []
        file.visititems(lambda n, o: names.append(n) if isinstance(o, h5py.Dataset) else None)
        STRUCTURE[kind](file, chance.choice(names), chance)
    return kind


def _value(file: h5py.File, name: str, chance: Random) -> None:
    array = file[name]
    place = tuple(chance.randrange(n) for n in array.shape)
    old = array[place]
    array[place] = not old if array.dtype.kind == "b" else old + 1


def _nan(file: h5py.File, name: str, chance: Random) -> None:
    array = file[name]
    if array.dtype.kind != "f":
        return _value(file, name, chance)
    array[tuple(chance.randrange(n) for n in array.shape)] = chance.choice((np.nan, np.inf))


def _replaced(file: h5py.File, name: str, new: object, **options: object) -> None:
    digest = file[name].attrs["sha256"]
    del file[name]
    file.create_dataset(name, data=new, **options).attrs["sha256"] = digest


def _rows(file: h5py.File, name: str, chance: Random) -> None:
    old = file[name][()]
    order = list(range(len(old)))
    chance.shuffle(order)
    order = order if order != sorted(order) else order[::-1]
    new = old[order]
    _replaced(file, name, new if not np.array_equal(new, old) else old[:0])


def _dtype(file: h5py.File, name: str, chance: Random) -> None:
    other = chance.choice(("f2", ">f8", "i8", "S3", "c16"))
    _replaced(file, name, np.zeros(file[name].shape, other))


def _shape(file: h5py.File, name: str, chance: Random) -> None:
    old = file[name][()]
    _replaced(file, name, chance.choice((old[..., None], old.reshape(-1), old[:-1], old[:0])))


def _huge(file: h5py.File, name: str, chance: Random) -> None:
    """Promise a petabyte that is not there."""
    digest, dtype = file[name].attrs["sha256"], file[name].dtype
    del file[name]
    shape = chance.choice(((1 << 40, 128), (1 << 25, 401), (3, 1 << 40)))
    made = file.create_dataset(name, shape, dtype, chunks=tuple(min(n, 64) for n in shape))
    made.attrs["sha256"] = digest


def _gone(file: h5py.File, name: str, chance: Random) -> None:
    del file[name]


def _group(file: h5py.File, name: str, chance: Random) -> None:
    del file[name]
    file.create_group(name)


def _soft(file: h5py.File, name: str, chance: Random) -> None:
    file.move(name, "kept")
    file[name] = h5py.SoftLink("/kept")


def _external_link(file: h5py.File, name: str, chance: Random) -> None:
    del file[name]
    other = chance.choice(("/etc/passwd", "good.h5", "../good.h5", file.filename))
    file[name] = h5py.ExternalLink(other, name)


def _external_data(file: h5py.File, name: str, chance: Random) -> None:
    """Raw content in another file, here one of the system's."""
    digest, shape, dtype = file[name].attrs["sha256"], file[name].shape, file[name].dtype
    del file[name]
    size = int(np.prod(shape)) * dtype.itemsize
    made = file.create_dataset(name, shape, dtype, external=[("/etc/passwd", 0, size)])
    made.attrs["sha256"] = digest


def _reference(file: h5py.File, name: str, chance: Random) -> None:
    digest = file[name].attrs["sha256"]
    del file[name]
    made = file.create_dataset(name, (3,), dtype=h5py.ref_dtype)
    made[0] = file.ref
    made.attrs["sha256"] = digest


def _digest(file: h5py.File, name: str, chance: Random) -> None:
    new = chance.choice(("", "0" * 64, 7, np.arange(9), "\udcff".encode("utf-8", "surrogatepass")))
    file[name].attrs["sha256"] = new


BOMBS = (
    "[" * 100_000,
    '{"a":' * 50_000 + "1" + "}" * 50_000,
    '{"problem": ' + "9" * 5000 + "}",
    '{"problem": NaN}',
    "null",
    "[]",
    '{"problem": ["diffusion1d"]}',
    '{"problem": "../../etc/passwd"}',
    '{"problem": "os.system"}',
    '{"problem": 1e999}',
    "\x00",
    "",
)


def _meta(file: h5py.File, name: str, chance: Random) -> None:
    bomb = chance.choice(BOMBS)
    # HDF5 keeps 64 KiB of an attribute at most in its header, more in dense storage.
    file.attrs["meta"] = np.bytes_(b"a\x00b") if "\x00" in bomb else bomb[:60_000]


def _attribute(file: h5py.File, name: str, chance: Random) -> None:
    key = chance.choice(("format", "schema", "kind", "meta"))
    if chance.random() < 0.3:
        del file.attrs[key]
    else:
        file.attrs[key] = chance.choice((7, "x", np.arange(3), 1.5, b"\xff", file.ref))


STRUCTURE: dict[str, Callable[[h5py.File, str, Random], None]] = {
    "h5:value": _value,
    "h5:nan": _nan,
    "h5:rows": _rows,
    "h5:dtype": _dtype,
    "h5:shape": _shape,
    "h5:huge": _huge,
    "h5:gone": _gone,
    "h5:group": _group,
    "h5:soft_link": _soft,
    "h5:external_link": _external_link,
    "h5:external_data": _external_data,
    "h5:reference": _reference,
    "h5:digest": _digest,
    "h5:meta": _meta,
    "h5:attribute": _attribute,
}


def change_safetensors(data: bytes, chance: Random) -> tuple[str, bytes]:
    """Change the header of a weight file, its length kept right; return how, and the file."""
    size = struct.unpack("<Q", data[:8])[0]
    header, body = json.loads(data[8 : 8 + size]), data[8 + size :]
    tensors = [name for name in header if name != "__metadata__"]
    name = chance.choice(tensors)
    kind = chance.choice(("length", "bomb", "offset", "dtype", "shape", "rename", "drop", "meta"))
    if kind == "length":
        wrong = chance.choice((0, 1, size - 1, size + 1, 1 << 31, (1 << 64) - 1))
        return f"st:{kind}", struct.pack("<Q", wrong) + data[8:]
    if kind == "bomb":
        text = chance.choice(BOMBS).encode()
        return f"st:{kind}", struct.pack("<Q", len(text)) + text + body
    entry = header[name]
    if kind == "offset":
        start, end = entry["data_offsets"]
        entry["data_offsets"] = chance.choice(([end, start], [start + 4, end + 4], [0, 1 << 62]))
    elif kind == "dtype":
        entry["dtype"] = chance.choice(("F64", "I32", "BF16", "X", "U8"))
    elif kind == "shape":
        entry["shape"] = chance.choice(([], [*entry["shape"][::-1], 1], [1 << 40, 1 << 40], [-1]))
    elif kind == "rename":
        header[chance.choice(("parameter/x", "../x", "", "parameter/"))] = header.pop(name)
    elif kind == "drop":
        del header[name]
    else:
        content = json.loads(header["__metadata__"]["uqsonet"])
        change = chance.choice(("trials", "noise", "method", "bomb", "gone"))
        if change == "bomb":
            header["__metadata__"]["uqsonet"] = chance.choice(BOMBS)
        elif change == "gone":
            del header["__metadata__"]
        else:
            key = {"trials": "trials", "noise": "noise_std", "method": "method"}[change]
            content["meta"][key] = chance.choice((None, [], {}, "x", -1, [9]))
            header["__metadata__"]["uqsonet"] = json.dumps(content, sort_keys=True)
    text = json.dumps(header).encode()
    return f"st:{kind}", struct.pack("<Q", len(text)) + text + body
