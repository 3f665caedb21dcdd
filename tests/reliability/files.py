"""Small sound files of every kind, and what reads and rewrites their content."""

from __future__ import annotations

import copy
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import torch
import xarray

import uqsonet
from uqsonet.errors import UQSONetError
from uqsonet.networks.progress import Progress, save_checkpoint
from uqsonet.networks.settings import TrainingConfig
from uqsonet.operator.base import build_model
from uqsonet.operator.config import KarhunenLoeveNetwork
from uqsonet.operator.weight_files import load, read_weights, write_weights
from uqsonet.runs.functions import SPLITS
from uqsonet_study.layouts import generate_layouts, load_layouts
from uqsonet_study.parts import PartStore, cut
from uqsonet_study.problems import get_problem
from uqsonet_study.reference.files import load_sets
from uqsonet_study.references import compute_reference
from uqsonet_study.settings import Layout, Method, ReferenceConfig, Sizes
from uqsonet_study.simulation import simulate, simulate_shard
from uqsonet_study.storage import ArrayFile, array_kind, load_functions, write_arrays

NAME, SEED = "diffusion1d", 5
Meta = dict[str, Any]
Arrays = dict[str, np.ndarray]


def make_files(folder: Path) -> None:
    """Write the files of a run, and what people bring: runs in three formats and sensors."""
    folder.mkdir(parents=True)
    pairs = Sizes(training=30, validation=3, test=3, shard=10)
    simulate(NAME, pairs, SEED, folder / "f.h5")
    generate_layouts(NAME, Layout(counts=[1, 3], pool=20), SEED, 3, 3, folder / "s.h5")
    sources = folder / "f.h5", folder / "s.h5", "validation", "validation"
    few = ReferenceConfig(sets=2, samples=20)
    compute_reference(*sources, few, 0.0, SEED, folder / "r.h5")
    problem = get_problem(NAME)
    kappa, u = (field.float().numpy() for field in simulate_shard(problem, SEED, "test", 0, 10))
    store = PartStore(folder, {"problem": NAME})
    store.complete(cut({"test": 10}, 10), lambda _: {"kappa": kappa, "u": u}, "functions")
    make_weights(folder)
    k, u = (field.numpy()[:, ::10] for field in problem.sample(np.random.default_rng(SEED), 30))
    np.savez(folder / "runs.npz", k=k, u=u)
    with h5py.File(folder / "runs.hdf5", "w") as file:
        file["k"], file["u"] = k, u
    data = xarray.Dataset({"k": (("run", "x"), k), "u": (("run", "y"), u)})
    data.to_netcdf(folder / "runs.nc", engine="h5netcdf")
    make_runs(folder, k, u)
    model = uqsonet.fit(uqsonet.Runs({"k": k}, {"u": u}), sensors=[3], bar=False)
    model.save(folder / "m.safetensors")
    (folder / "sensors.csv").write_text("x,value\n0.1,1.2\n0.5,0.9\n")


def make_runs(folder: Path, k: np.ndarray, u: np.ndarray) -> None:
    """Write runs (N, n) in each way that is read: packed, in pieces, as meshes."""
    np.savez_compressed(folder / "packed.npz", k=np.asfortranarray(k), u=u)
    with h5py.File(folder / "packed.hdf5", "w") as file:
        for name, values in (("k", k), ("u", u)):
            whole = np.round(values / 1e-3).astype(np.int16)
            file.create_dataset(name, data=whole, chunks=(4, 5), compression="gzip", shuffle=True)
            file[name].attrs.update(scale_factor=1e-3, valid_max=np.int16(32000), units="m")
        file["x"] = np.linspace(0, 1, k.shape[1])
    axis = np.linspace(1, 0, k.shape[1])
    data = xarray.Dataset({"k": (("x", "run"), k.T), "u": (("run", "y"), u)}, {"x": axis})
    data.to_netcdf(folder / "classic.nc", engine="scipy")
    packing = {"k": {"dtype": "i2", "scale_factor": 1e-3, "_FillValue": -9999, "zlib": True}}
    data.to_netcdf(folder / "packed.nc", engine="h5netcdf", encoding=packing)
    if find_spec("meshio"):
        import meshio

        points = np.random.default_rng(0).random((k.shape[1], 3))
        cells = [("tetra", np.arange(8).reshape(2, 4))]
        mesh = meshio.Mesh(points, cells, point_data={"k": k[0], "u": np.resize(u[0], len(points))})
        for name, kind in (("mesh.vtu", "vtu"), ("mesh.vtk", "vtk")):
            mesh.write(folder / name, file_format=kind)
        mesh.write(folder / "text.vtk", file_format="vtk", binary=False)


def make_zarr(folder: Path) -> None:
    """Write the runs of `make_files` as folders of both formats of Zarr, if this machine has it."""
    if not find_spec("zarr"):
        return
    with xarray.open_dataset(folder / "classic.nc", engine="scipy") as data:
        packed = {"dtype": "i2", "scale_factor": 1e-3, "_FillValue": -9999, "chunks": (5, 9)}
        for version in (2, 3):
            more: Any = {"encoding": {"k": packed}, "consolidated": version == 2}
            data.to_zarr(folder / f"runs{version}.zarr", zarr_format=version, **more)


def make_weights(folder: Path) -> None:
    """Write weights of two trials and a checkpoint of one training."""
    fields = get_problem(NAME).fields
    network = KarhunenLoeveNetwork(input_modes=4, output_modes=3, branch=[6])
    model = build_model("uqsonet", fields, network, 0.0)
    training = TrainingConfig(iterations=2, batch_size=2, learning_rate=1e-3, validate_every=1)
    meta = {
        "method": "uqsonet",
        "fields": fields.as_dict(),
        "config": Method(network=network, training=training).model_dump(mode="json"),
        "noise_std": 0.0,
        "trials": [0, 1],
    }
    parameters = {n: torch.stack([p, p + 1]) for n, p in model.named_parameters()}
    buffers = {f"buffer/{n}": b for n, b in model.named_buffers() if n in model.state_dict()}
    stacked = {f"parameter/{n}": p for n, p in parameters.items()}
    write_weights(folder / "w.safetensors", stacked | buffers, meta)
    state = {f"parameter/{n}": p for n, p in model.named_parameters()}
    state |= {f"adam/step/{n}": torch.tensor(2.0) for n in parameters}
    progress = Progress(1, 0.5, [{"trial": 0}])
    save_checkpoint(folder / "c.safetensors", meta, state, [torch.Generator()], progress)


def content(path: Path) -> tuple[str, Meta, Arrays]:
    """Return kind, header and arrays of a file of this project."""
    if path.suffix == ".safetensors":
        tensors, meta = read_weights(path)
        return "weights", meta, {name: tensor.numpy() for name, tensor in tensors.items()}
    kind = array_kind(path)
    with ArrayFile(path, kind) as file:
        return kind, copy.deepcopy(file.meta), {name: file.read(name) for name in file.names()}


def refusal(path: Path) -> str | None:
    """Return why a file of this project is refused by those who read it, None where it is not."""
    try:
        kind, meta, _ = content(path)
        if kind == "weights" and "identity" not in meta:
            load(path)
            for trial in meta["trials"]:
                load(path, trial)
            if {"emulator", "card"} & set(meta):
                str(uqsonet.load(path))
        elif kind == "reference":
            load_sets(path)
        elif kind == "sensors":
            load_layouts(path, "test")
        elif kind == "functions":
            for split in SPLITS:
                list(load_functions(path, split).blocks(300))
    except UQSONetError as error:
        return str(error).removeprefix(f"{path}: ")
    return None


def rewrite(path: Path, kind: str, meta: Meta, arrays: Arrays) -> None:
    """Write a file whose digests fit its content, whatever that is."""
    if kind == "weights":
        write_weights(path, {n: torch.from_numpy(a) for n, a in arrays.items()}, meta)
    else:
        write_arrays(path, kind, meta, {name: [array] for name, array in arrays.items()})
