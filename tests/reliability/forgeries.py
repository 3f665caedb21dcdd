"""Files forged with right checksums and seals, whose content is wrong or asks for too much."""

from __future__ import annotations

import copy
import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import torch
from safetensors.torch import save

from uqsonet.storage.arrays import seal_of, text_of, write_arrays
from uqsonet.storage.files import Digest
from uqsonet.storage.reading import ArrayFile, array_kind
from uqsonet.storage.weights import read_weights, write_weights

Meta = dict[str, Any]
Arrays = dict[str, np.ndarray]
Tensors = dict[str, torch.Tensor]


def reseal(path: Path) -> None:
    """Give a changed HDF5 file a seal that fits."""
    with h5py.File(path, "r+") as file:
        digests: dict[str, str] = {}

        def visit(name: str, item: h5py.HLObject) -> None:
            if isinstance(item, h5py.Dataset):
                digests[name] = text_of(item.attrs.get("sha256"))

        file.visititems(visit)
        kind, meta = text_of(file.attrs["kind"]), text_of(file.attrs["meta"])
        file.attrs["seal"] = np.bytes_(seal_of(kind, meta, digests).encode())


def _added(name: str, **options: Any) -> Callable[[h5py.File], None]:
    """Return what adds an array that holds zeros as far as its checksum knows."""

    def add(file: h5py.File) -> None:
        made = file.create_dataset(name, **options)
        digest = Digest(made.dtype, made.shape or ())
        if made.shape is not None and 0 < made.size < 1 << 20:
            digest.add(made[()])
        made.attrs["sha256"] = np.bytes_(digest.hex().encode())

    return add


def _nested(file: h5py.File) -> None:
    group = file
    for _ in range(20_000):
        group = group.create_group("g")


def _crowd(file: h5py.File) -> None:
    group = file.create_group("crowd")
    for k in range(10_001):
        group.create_group(str(k))


def _packed(file: h5py.File) -> None:
    """Put 400 MB of zeros into some kilobytes."""
    made = file.create_dataset("zeros", (100, 1 << 20), "f4", chunks=(1, 1 << 20), compression=9)
    made.attrs["sha256"] = np.bytes_(b"0" * 64)
    made[:4] = 0


def _no_text(file: h5py.File) -> None:
    made = h5py.h5d.create(
        file.id, b"\xff\xfe", h5py.h5t.NATIVE_FLOAT, h5py.h5s.create_simple((2,))
    )
    h5py.Dataset(made).attrs["sha256"] = np.bytes_(b"0" * 64)


THROUGH_H5: dict[str, Callable[[h5py.File], None]] = {
    "h5:rows_of_nothing": _added("a", shape=(1 << 62, 0), dtype="f4"),
    "h5:nested": _nested,
    "h5:crowd": _crowd,
    "h5:packed": _packed,
    "h5:name_is_no_text": _no_text,
    "h5:null": _added("a", data=h5py.Empty("f4")),
    "h5:long_double": _added("a", data=np.zeros(3, np.longdouble)),
    "h5:huge_chunk": _added(
        "a", shape=(2,), dtype="f4", chunks=(1 << 28,), maxshape=(None,), fletcher32=True
    ),
}


def _counts(stated: object) -> Callable[[Meta, Arrays], None]:
    def change(meta: Meta, arrays: Arrays) -> None:
        meta["config"]["counts"] = stated

    return change


def _array(name: str, change: Callable[[np.ndarray], np.ndarray]) -> Callable[[Meta, Arrays], None]:
    def changed(meta: Meta, arrays: Arrays) -> None:
        arrays[name] = change(arrays[name])

    return changed


def _field(side: str, key: str, value: object) -> Callable[[Meta, Any], None]:
    def change(meta: Meta, arrays: object) -> None:
        meta["fields"][side][key] = value

    return change


REWRITTEN: dict[str, tuple[str, Callable[[Meta, Arrays], None]]] = {
    "s:many_counts": ("s.h5", _counts([1] * 100_000)),
    "s:infinite_count": ("s.h5", _counts([float("inf")])),
    "s:counts_of_text": ("s.h5", _counts("13")),
    "s:counts_nested": ("s.h5", _counts([[1]])),
    "s:sensor_outside": ("s.h5", _array("test/3", lambda a: a + 10_000)),
    "s:sensor_below": ("s.h5", _array("test/3", lambda a: a - 10_000)),
    "r:function_index": ("r.h5", _array("function", lambda a: a + 1_000_000)),
    "r:function_below": ("r.h5", _array("function", lambda a: a - 9)),
    "r:function_of_float": ("r.h5", _array("function", lambda a: a.astype("f8"))),
    "r:mean_is_short": ("r.h5", _array("mean", lambda a: a[:, :-1].copy())),
    "r:fewer_sets": ("r.h5", _array("std", lambda a: a[:-1].copy())),
    "r:scalar": ("r.h5", _array("values", lambda a: np.array(1.0))),
    "r:mask_of_numbers": ("r.h5", _array("mask", lambda a: a.astype("f8"))),
    "r:modes_do_not_fit": ("r.h5", _array("mode_mean", lambda a: a[:, 1:].copy())),
    "r:fields_of_lists": ("r.h5", _field("input", "transform", ["log"])),
    "r:a_huge_grid": ("r.h5", _field("output", "grid", {"shape": [1 << 40], "lower": [0]})),
    "r:target_of_lists": ("r.h5", lambda m, a: m["config"].update(target=["input"])),
    "r:config_of_text": ("r.h5", lambda m, a: m.update(config="x")),
    "f:no_pairs": ("f.h5", lambda m, a: a.pop("test/u")),
    "f:scalar": ("f.h5", _array("test/u", lambda a: np.array(1.0, "f4"))),
}


def _tensor(
    change: Callable[[torch.Tensor], torch.Tensor], kind: str = "parameter"
) -> Callable[[Meta, Tensors], None]:
    def changed(meta: Meta, tensors: Tensors) -> None:
        name = next(name for name in sorted(tensors) if name.startswith(f"{kind}/"))
        tensors[name] = change(tensors[name])

    return changed


def _network(**values: object) -> Callable[[Meta, Tensors], None]:
    def change(meta: Meta, tensors: Tensors) -> None:
        meta["config"]["network"] = values

    return change


HUGE = [4096] * 12
WEIGHTS: dict[str, Callable[[Meta, Tensors], None]] = {
    "st:huge_network": _network(
        architecture="attention", heads=64, head_width=1024, attention=HUGE, branch=HUGE, trunk=HUGE
    ),
    "st:huge_bases": _network(architecture="karhunen_loeve", input_modes=2000, branch=[4096] * 12),
    "st:no_trials": lambda m, t: m.update(trials=[]),
    "st:trials_twice": lambda m, t: m.update(trials=[0, 0]),
    "st:trials_of_lists": lambda m, t: m.update(trials=[[0], [1]]),
    "st:infinite_trials": lambda m, t: m.update(trials=[float("inf")]),
    "st:more_trials": lambda m, t: m.update(trials=[0, 1, 2]),
    "st:method_is_a_list": lambda m, t: m.update(method=["uqsonet"]),
    "st:method_is_a_mapping": lambda m, t: m.update(method={"a": 1}),
    "st:fields_are_a_list": lambda m, t: m.update(fields=[1]),
    "st:factored_is_text": lambda m, t: m.update(factored="x"),
    "st:a_scalar": _tensor(lambda t: torch.tensor(1.0)),
    "st:a_trial_less": _tensor(lambda t: t[:1].clone()),
    "st:bfloat16": _tensor(lambda t: t.bfloat16()),
    "st:float8": _tensor(lambda t: t.to(torch.float8_e4m3fn)),
    "st:complex": _tensor(lambda t: t.to(torch.complex64)),
    "st:a_buffer_of_no_shape": _tensor(lambda t: torch.tensor(1.0), "buffer"),
}


def _factored(meta: Meta, tensors: Tensors) -> None:
    """Add tensors of 2^27 numbers, each from factors of 100 kB."""
    meta["factored"] = {f"x{k}": [1 << 13, 1 << 14] for k in range(8)}
    for name in meta["factored"]:
        tensors[f"{name}/core"] = torch.ones(1, 1)
        tensors |= {f"{name}/{k}": torch.ones(1 << 13 + k, 1) for k in range(2)}


WEIGHTS["st:many_factored"] = _factored


def _fitted(name: str, change: Callable[[torch.Tensor], torch.Tensor]) -> Callable:
    def changed(meta: Meta, tensors: Tensors) -> None:
        tensors[f"emulator/{name}"] = change(tensors[f"emulator/{name}"])

    return changed


def _named(**values: object) -> Callable[[Meta, Tensors], None]:
    return lambda meta, tensors: meta["emulator"]["inputs"][0].update(values)


FITTED: dict[str, Callable[[Meta, Tensors], None]] = {
    "em:columns_beyond": _fitted("calibration/columns", lambda t: t + 10_000),
    "em:columns_below": _fitted("calibration/columns", lambda t: t - 10_000),
    "em:no_columns": _fitted("calibration/columns", lambda t: t[:0].clone()),
    "em:runs_twice": _fitted("calibration/outputs", lambda t: t.repeat(2, 1)),
    "em:scalar_runs": _fitted("calibration/inputs", lambda t: torch.tensor(1.0)),
    "em:remainder_is_short": _fitted("remainder", lambda t: t[:-1].clone()),
    "em:cokriging_is_flat": _fitted("cokriging", lambda t: t.flatten()),
    "em:other_points": _named(grid={"lower": [0], "upper": [1], "shape": [99], "periodic": False}),
    "em:no_scale": _named(scale=0.0),
    "em:scale_of_nan": _named(scale=float("nan")),
    "em:no_outputs": lambda m, t: m["emulator"].update(outputs=[]),
    "em:card_of_numbers": lambda m, t: m.update(card='{"scores": [1]}'),
    "em:card_of_text": lambda m, t: m.update(card={"scores": "x"}),
}

ALL = {*THROUGH_H5, *REWRITTEN, *WEIGHTS, *FITTED}


def forge(name: str, good: Path, folder: Path) -> Path:
    """Write a forged file from one of the sound ones in `good`; return its path."""
    if name in WEIGHTS or name in FITTED:
        source = "w.safetensors" if name in WEIGHTS else "m.safetensors"
        tensors, meta = read_weights(good / source)
        (WEIGHTS | FITTED)[name](meta, tensors)
        path = folder / "forged.safetensors"
        try:
            write_weights(path, tensors, meta)
        except TypeError:  # of types that NumPy has not
            content = {"schema": 1, "sha256": "0" * 64, "meta": meta}
            path.write_bytes(save(tensors, {"uqsonet": json.dumps(content)}))
        return path
    path = folder / "forged.h5"
    if name in THROUGH_H5:
        shutil.copy(good / "test_000000.h5", path)
        with h5py.File(path, "r+") as file:
            THROUGH_H5[name](file)
        # No seal can be made of what is no text, nor of groups too deep to list.
        if name not in ("h5:nested", "h5:name_is_no_text"):
            reseal(path)
        return path
    source, change = REWRITTEN[name]
    kind = array_kind(good / source)
    with ArrayFile(good / source, kind) as file:
        meta, arrays = copy.deepcopy(file.meta), {n: file.read(n) for n in file.names()}
    change(meta, arrays)
    write_arrays(path, kind, meta, {n: [a] for n, a in arrays.items()})
    return path


VALUES = (
    *(None, True, -1, 0, 1e308, 1 << 62, "", "x", "\ud800", "../x", [], {}, [[]], [1, 2, 3]),
    *({"a": {"b": []}}, float("nan"), float("inf"), [0] * 5000, "é" * 5000),
)


def _places(node: object) -> list[tuple[Any, Any]]:
    """Return (container, key) of every value of a header."""
    items = node.items() if isinstance(node, dict) else enumerate(node)  # type: ignore[arg-type]
    found: list[tuple[Any, Any]] = []
    for key, value in list(items):
        found.append((node, key))
        if isinstance(value, dict | list):
            found += _places(value)
    return found


def _scrambled(array: np.ndarray, chance: random.Random) -> np.ndarray:
    """Return an array of another shape, type or size."""
    ways: list[Callable[[], np.ndarray]] = [
        lambda: array[:0],
        lambda: array[..., None],
        lambda: array.reshape(-1),
        lambda: np.concatenate([np.atleast_1d(array)] * 2),
        lambda: np.zeros((), array.dtype),
        lambda: array.astype(chance.choice(("f2", "f4", "f8", "i1", "i8", "u8", "?"))),
        lambda: np.full_like(array, chance.choice((0, 1, -1, 100))),
        lambda: array * array.dtype.type(chance.choice((0, 1, -1, 30))),
    ]
    return np.ascontiguousarray(chance.choice(ways)())


def forge_any(good: Path, bad: Path, chance: random.Random) -> str:
    """Change a header's values or arrays at random and write the file anew, all digests right."""
    kind = "weights" if good.suffix == ".safetensors" else array_kind(good)
    if kind == "weights":
        tensors, meta = read_weights(good)
        arrays = {name: tensor.numpy() for name, tensor in tensors.items()}
    else:
        with ArrayFile(good, kind) as file:
            meta, arrays = copy.deepcopy(file.meta), {n: file.read(n) for n in file.names()}
    change = chance.choice(("header", "header", "array", "name"))
    name = chance.choice(sorted(arrays))
    if change == "header":
        for _ in range(chance.choice((1, 1, 2))):
            node, key = chance.choice(_places(meta))
            if chance.random() < 0.2 and isinstance(node, dict):
                node.pop(key, None)
            else:
                node[key] = copy.deepcopy(chance.choice(VALUES))
    elif change == "array":
        with np.errstate(all="ignore"):
            arrays[name] = _scrambled(arrays[name], chance)
    else:
        arrays[chance.choice(("other", "law/x", "buffer/y", "test/9"))] = arrays.pop(name)
    if kind == "weights":
        write_weights(bad, {n: torch.from_numpy(a) for n, a in arrays.items()}, meta)
    else:
        write_arrays(bad, kind, meta, {n: [a] for n, a in arrays.items()})
    return f"forged:{change}"
