"""Files of every kind that is read, made wrong on purpose: by structure, not by chance alone.

`forge` draws a file from `random.Random`, so that its number alone makes it again. What leads to
another file leads to one that holds `CANARY`, so that a byte of it in an answer would be seen.
"""

from __future__ import annotations

import io
import json
import random
import re
import shutil
import struct
import zipfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from tests.reliability import fuzz

CANARY = np.frombuffer(b"\x40\x93\x4a\x45\x6d\x5c\xfa\xad"[::-1] * 1000, dtype="<f8")
"""Values of the other file: all are 1234.5678."""

LARGE = (10**6, 2**31, 10**12, 2**62)


def canary(folder: Path) -> Path:
    """Write the other file; its bytes begin with `CANARY`."""
    path = folder / "other.bin"
    if not path.exists():
        path.write_bytes(CANARY.tobytes())
        with h5py.File(folder / "other.h5", "w") as file:
            file["k"] = CANARY.reshape(-1, 10)
    return path


def leaked(values: Any) -> bool:
    """Return whether values hold one of the other file, as float64 or float32."""
    array = np.asarray(values)
    return array.dtype.kind == "f" and bool(np.isclose(array, CANARY[0], rtol=1e-7).any())


def damage(data: bytes, chance: random.Random) -> tuple[str, bytes]:
    """Return a kind of damage, and the bytes after it. Headers stand early, so half of it does."""
    place = chance.randrange(chance.choice((len(data), min(4096, len(data)))) or 1)
    size = chance.randint(1, 4096)
    before, rest = data[:place], data[place + size :]
    ways = {
        "bit": before + bytes([data[place] ^ 1 << chance.randrange(8)]) + data[place + 1 :],
        "zeros": before + bytes(size) + rest,
        "noise": before + chance.randbytes(size) + rest,
        "cut": before,
        "removed": before + rest,
        "appended": data + chance.randbytes(size),
    }
    return chance.choice([*ways.items()])


def odd_array(chance: random.Random) -> np.ndarray:
    """Return an array of a dtype, a shape and values that a field or a coordinate may have."""
    shape = chance.choice([(30, 11), (11, 30), (30,), (0, 3), (), (1, 30, 11), (30, 2, 1, 3, 2),
                           (11,), (30, 1), (11, 2), (3, 11), (1,), (30, 11, 1, 1)])  # fmt: skip
    kind = chance.choice(["<f8", ">f4", "<f2", "g", "c8", "i8", "u8", ">i2", "?", "S3", "U2",
                          "M8[ns]", "m8[s]", "i1"])  # fmt: skip
    plain = np.random.default_rng(chance.randrange(99)).standard_normal(shape)
    scale = chance.choice([1.0, 1e-30, 1e30, 1e300, 5e-324, np.nan, np.inf, 9.97e36, 2.0**60])
    with np.errstate(all="ignore"):
        wide = plain * scale
        if chance.random() < 0.3 and wide.size:
            wide.flat[chance.randrange(wide.size)] = chance.choice([np.nan, np.inf, -9999, 1e20])
        if kind[0] in "SUMm":
            return np.nan_to_num(wide, posinf=1, neginf=1).clip(-9e9, 9e9).astype("i8").astype(kind)
        return wide.astype(kind)


def odd_text(chance: random.Random) -> str:
    """Return a text that a unit, a name or a cell may be."""
    more = ["\x1b[31m", "$x_", "=1+1", "m" * 5000, "k", "u", "lon", "days since 0000-00-00",
            "months since 2000", "degrees_east", "NaN", "1_2", "٣", "1e999"]  # fmt: skip
    return chance.choice([*fuzz.TEXTS[:-1], *more])


def _with_header(data: bytes, chance: random.Random) -> bytes:
    """Return the bytes of an npy file with another header of version 1.0."""
    kinds = ("<f8", "|V0", "|O", "<f4", "|S0", "<M8[25us]", "(3,)f8", "[('a', 'f4')]")
    shape = chance.choice((*LARGE, 30, 0)), chance.choice((11, 0, -1))
    new = {"descr": chance.choice(kinds), "fortran_order": chance.random() < 0.5, "shape": shape}
    head = repr(new).encode().ljust(117) + b"\n"
    return data[:8] + struct.pack("<H", len(head)) + head + data[128:]


def npz(path: Path, chance: random.Random) -> str:
    """Change arrays, names, packing or headers of an npz file."""
    with np.load(path) as file:
        arrays = {name: file[name] for name in file.files}
    way = chance.choice(["array", "coordinate", "objects", "header", "name"])
    names = {"array": chance.choice("ku"), "name": chance.choice(["k/..", "\x00", "k.npy", ""])}
    if way in ("array", "name", "coordinate"):
        axis = chance.choice(["x", "y", "points", "k_points", "time", "u_x"])
        arrays[names.get(way, axis)] = odd_array(chance)
    if way == "objects":
        arrays[chance.choice(["k", "x"])] = np.array([None, {}, "a"], dtype=object)
    if way == "header":
        with zipfile.ZipFile(path, "w") as archive:
            for name, array in arrays.items():
                text = io.BytesIO()
                np.save(text, array)
                archive.writestr(f"{name}.npy", _with_header(text.getvalue(), chance))
        return way
    np.savez(path, **arrays)
    return way


def _attribute(chance: random.Random) -> Any:
    texts = [odd_text(chance).encode("utf-8", "replace"), b"\xff\xfe"]
    numbers = [0, 0.0, np.nan, np.inf, 1e308, -1, 2**62, np.float32(1e-45), np.int8(3), [1.0, 2.0]]
    return chance.choice([*texts, *numbers, [], h5py.Empty("f4"), np.void(b"a"), 1 + 2j, [b"a"]])


def hdf5(path: Path, chance: random.Random) -> str:
    """Change attributes, links, data sets or groups of an HDF5 or NetCDF file."""
    other = canary(path.parent)
    way = chance.choice(["attribute", "attribute", "array", "link", "outside", "unwritten",
                         "scale", "kind", "removed"])  # fmt: skip
    with h5py.File(path, "r+") as file:
        name = chance.choice([*file, "k", "u", "x"])
        if way == "attribute":
            keys = ("scale_factor", "add_offset", "_FillValue", "missing_value", "valid_min",
                    "valid_range", "units", "axis", "standard_name", "CLASS",
                    "coordinates", "calendar", "_Unsigned", "dtype", "NAME", "_NCProperties",
                    "REFERENCE_LIST", "_Netcdf4Dimid", "bounds")  # fmt: skip
            for key in chance.sample(keys, 3):
                (file[name] if name in file else file).attrs[key] = _attribute(chance)
            return way
        if name in file:
            del file[name]
        if way in ("array", "scale"):
            file[name] = odd_array(chance) if chance.random() < 0.8 else ["a"] * 11
            if way == "scale":
                file[name].make_scale(chance.choice(["x", "", "This is a netCDF dimension"]))
        elif way == "link":
            links = [h5py.ExternalLink("other.h5", "/k"), h5py.SoftLink("/u"), file["/"],
                     h5py.SoftLink(f"/{name}"), h5py.ExternalLink("/etc/passwd", "/")]  # fmt: skip
            file[name] = chance.choice(links)
        elif way == "outside" and chance.random() < 0.5:
            kind, count = chance.choice([("f8", 330), ("u1", 330), ("i4", 2**28)]), 330
            external = [(str(other), 0, np.dtype(kind[0]).itemsize * count)]
            file.create_dataset(name, (30, 11), kind[0], external=external)
        elif way == "outside":
            layout = h5py.VirtualLayout((30, 10), "f8")
            layout[:] = h5py.VirtualSource(str(other.with_suffix(".h5")), "k", (100, 10))[:30]
            file.create_virtual_dataset(name, layout)
        elif way == "unwritten":
            shape = (chance.choice((30, 10**6)), chance.choice((11, 10**5, 10**8)))
            chunks = chance.choice([None, True, (1, min(shape[1], 10**8)), (30, 11)])
            file.create_dataset(name, shape, chance.choice(("f8", "u1")), chunks=chunks)
        elif way == "kind":
            kinds = [h5py.string_dtype(), np.dtype([("a", "f4")]), h5py.ref_dtype, np.dtype("V3"),
                     h5py.vlen_dtype("f4"), h5py.enum_dtype({"A": 1}), h5py.opaque_dtype("M8[s]"),
                     np.dtype((float, (3,)))]  # fmt: skip
            file.create_dataset(name, (30, 11), chance.choice(kinds))
    return way


def _json(node: Any, chance: random.Random) -> Any:
    """Change one value somewhere in nested mappings and lists."""
    if isinstance(node, dict | list) and node and chance.random() < 0.8:
        key = chance.choice([*node] if isinstance(node, dict) else range(len(node)))
        changed = _json(node[key], chance)
        if changed is None and isinstance(node, dict) and chance.random() < 0.5:
            del node[key]
        else:
            node[key] = changed
        return node
    names = ["<f4", ">f8", "|O", "<U3", "float16", "int64", "zlib", "pickle", "blosc", "C", "F"]
    kinds = [[30, 11], [0, 1], [10**9, 10**3], {"id": "pickle"}, {"name": "zstd"}, "NaN", 1, 2**40]
    return chance.choice([*fuzz.NUMBERS, odd_text(chance), *names, *kinds, None, True, [], {}])


def zarr(folder: Path, chance: random.Random) -> str:
    """Change metadata, chunks or files of a Zarr folder."""
    files = sorted(one for one in folder.rglob("*") if one.is_file())
    texts = [one for one in files if one.name.startswith(".z") or one.suffix == ".json"]
    way = chance.choice(["json", "json", "json", "chunk", "removed", "link"])
    one = chance.choice(files if way in ("removed", "link") else texts)
    if way == "json":
        for _ in range(chance.randint(1, 3)):
            with suppress(ValueError):
                changed = _json(json.loads(one.read_text()), chance)
                one.write_text(json.dumps(changed, default=str))
    elif way == "chunk":
        chunks = [one for one in files if one not in texts]
        one = chance.choice(chunks)
        one.write_bytes(chance.choice([b"", b"a", chance.randbytes(400)]))
    else:
        one.unlink()
        if way == "link":
            one.symlink_to(canary(folder.parent))
    return way


def text(path: Path, chance: random.Random) -> str:
    """Change numbers, words or lines of a text: a table, a mesh in XML or in VTK's old format."""
    data = path.read_bytes().decode("latin-1")
    way = chance.choice(["number", "number", "word", "line", "twice", "entity"])
    tokens = {"number": r"\d[\d.eE+-]*", "word": r"[A-Za-z_]\w*", "line": r"[^\n]*\n"}
    places = [*re.finditer(tokens.get(way, tokens["line"]), data)]
    one = chance.choice(places) if places else re.compile("").search(data)
    assert one is not None
    numbers = ["-1", "0", "1e400", "nan", "99999999999", "1000000000", "1_2", "3", "0x10", ""]
    words = ["Float32", "UInt8", "Int64", "String", "ascii", "appended", "raw", "binary",
             "UInt32", "vtkZLibDataCompressor", "vtkLZMADataCompressor", "double", "x", "value",
             "BigEndian", "POLYDATA", "STRUCTURED_GRID", "VECTORS", "set"]  # fmt: skip
    new = {
        "number": chance.choice(numbers), "word": chance.choice([*words, odd_text(chance)]),
        "line": chance.choice(["", "\n", one[0] * 3, f"{odd_text(chance)}\n"]), "twice": one[0] * 2,
        "entity": '<!DOCTYPE a [<!ENTITY b SYSTEM "other.bin">]>\n&b;',
    }  # fmt: skip
    changed = data[: one.start()] + new[way] + data[one.end() :]
    path.write_bytes(changed.encode("latin-1", "replace"))
    return way


def safetensors(path: Path, chance: random.Random) -> str:
    """Change the header of a file of weights."""
    data = path.read_bytes()
    size = int.from_bytes(data[:8], "little")
    head = json.loads(data[8 : 8 + size])
    meta = head.get("__metadata__", {})
    way = chance.choice(["tensors", "meta"]) if meta else "tensors"
    if way == "meta":
        key = chance.choice([*meta])
        inner = meta[key]
        with suppress(ValueError):
            inner = json.dumps(_json(json.loads(inner), chance))
        meta[key] = inner if chance.random() < 0.9 else odd_text(chance)
    else:
        head = _json(head, chance)
    changed = json.dumps(head).encode()
    path.write_bytes(struct.pack("<Q", len(changed)) + changed + data[8 + size :])
    return way


FORGERS: dict[str, Callable[[Path, random.Random], str]] = {
    ".npz": npz, ".hdf5": hdf5, ".nc": hdf5, ".zarr": zarr, ".csv": text, ".vtu": text,
    ".vtk": text, ".safetensors": safetensors,
}  # fmt: skip


def forge(good: Path, place: Path, chance: random.Random) -> tuple[str, Path]:
    """Put a changed copy of a file, or of a Zarr folder, at a place; return how it was changed."""
    bad = place / good.name
    if good.is_dir():
        shutil.rmtree(bad, ignore_errors=True)
        shutil.copytree(good, bad)
    else:
        bad.unlink(missing_ok=True)
        shutil.copyfile(good, bad)
    forger = FORGERS.get(good.suffix)
    how = "bytes" if forger is None else chance.choice(("bytes", "made", "made", "both"))
    kinds = []
    if how != "bytes" and forger is not None:
        with suppress(OSError, KeyError, ValueError, TypeError, RuntimeError):  # no such change
            kinds.append(forger(bad, chance))
    if how != "made" or not kinds:
        files = [bad] if bad.is_file() else [one for one in bad.rglob("*") if one.is_file()]
        one = chance.choice(sorted(files))
        if one.stat().st_size:
            kind, data = damage(one.read_bytes(), chance)
            one.write_bytes(data)
            kinds.append(kind)
    return "+".join(kinds) or "none", bad
