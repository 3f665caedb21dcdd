"""Training, validation and test functions of a problem: drawn, solved and stored.

Pairs are generated in shards, each from its own node of the seed tree, so the first N pairs of a
larger data set are the data set of size N, and any shard can be made again alone. Generation holds
one shard at a time.
"""

from __future__ import annotations

import json
import platform
import resource
import time
from math import prod
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from uqsonet.files import file_digest, provenance, remove_debris, write_text
from uqsonet.gauss.seeds import numpy_generator
from uqsonet.networks.devices import processor, require_device
from uqsonet.runs.functions import SPLITS
from uqsonet_study.parts import Arrays, Part, PartStore, cut
from uqsonet_study.problems import Problem, get_problem
from uqsonet_study.settings import Sizes
from uqsonet_study.storage import ArrayFile, Stream, write_arrays


def simulate_shard(
    problem: Problem, seed: int, split: str, shard: int, size: int, device: str = "cpu"
) -> tuple[Tensor, Tensor]:
    """Return pairs (kappa, u) of one shard, each (size, n), float64; solved on `device`."""
    generator = numpy_generator(seed, problem.name, split, "functions", shard)
    return problem.sample(generator, size, device)


def simulate(
    name: str,
    config: Sizes,
    seed: int,
    path: Path,
    state: Path | None = None,
    record: Path | None = None,
    code: str = "",
    device: str = "cpu",
) -> None:
    """Generate all splits of a problem and store them, holding one shard at a time.

    Training outputs are stored on the training grid, validation and test outputs on the full grid
    (they are the truths that bands and CRPS are scored against). Inputs are stored in full.

    Parameters
    ----------
    name : str
        The problem.
    path : Path
        HDF5 file to write.
    state : Path, optional
        Folder for finished shards, by default beside `path`. A killed generation continues from
        it; at the end it is removed. It needs as much room as the file itself.
    record : Path, optional
        Where to write what this run took and made, as JSON.
    code : str
        Digest of the source that determines the result; shards of another are not used.
    device : str
        Where equations are solved: ``cpu`` or ``cuda``.
    """
    path, problem = Path(path), get_problem(name)
    sizes = {"training": config.training, "validation": config.validation, "test": config.test}
    shards = cut(sizes, config.shard)
    identity = {"problem": name, "seed": seed, "code": code, "sampled_in": "float64"}
    identity["device"] = torch.device(require_device(device)).type
    folder = path.with_name(f".{path.name}.shards") if state is None else Path(state)
    store = PartStore(folder, identity | {"stored_in": "float32"})
    remove_debris(path)
    _, kept = problem.training_grid()

    def make(shard: Part) -> Arrays:
        kappa, u = simulate_shard(problem, seed, shard.group, shard.number, shard.size, device)
        u = u[: shard.kept, kept] if shard.group == "training" else u[: shard.kept]
        return {"kappa": kappa[: shard.kept].float().numpy(), "u": u.float().numpy()}

    generation, reused = store.complete(shards, make, "functions")
    start = time.monotonic()
    about = {"problem": name, "seed": seed, "config": config.model_dump()}
    meta = about | {"fields": problem.fields.as_dict(), "sampled_in": "float64"}
    meta["stored_in"] = "float32"
    arrays = _assembled(problem, sizes, shards, store)
    digests = write_arrays(path, "functions", meta, arrays)
    if record is not None:
        with ArrayFile(path, "functions") as file:
            first = {name: file.read(f"test/{name}", slice(0, 1))[0] for name in ("kappa", "u")}
        assembly = time.monotonic() - start
        pairs = sum(shard.size for shard in shards)
        content = {
            **about,
            "file": {"sha256": file_digest(path), "bytes": path.stat().st_size},
            "arrays": {
                name: {
                    "shape": list(array.shape),
                    "dtype": "float32",
                    "bytes": 4 * prod(array.shape),
                    "sha256": digests[name],
                }
                for name, array in arrays.items()
            },
            "sampled_in": "float64",
            "shards": {"all": len(shards), "of_earlier_sessions": reused},
            "functions_drawn": pairs,
            "functions_per_second": round(pairs / max(generation, 1e-9), 1),
            "seconds": {"generation": round(generation, 3), "assembly": round(assembly, 3)},
            "peak_memory_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
            # A few values of the first test pair: they are near the same on any processor.
            "probe": {
                name: [float(v) for v in row[:: len(row) // 7]] for name, row in first.items()
            },
            "threads": torch.get_num_threads(),
            "platform": platform.platform(),
            "processor": processor(),
            **provenance(),
        }
        write_text(record, json.dumps(content, indent=2) + "\n")
    store.remove()


def _assembled(
    problem: Problem, sizes: dict[str, int], shards: list[Part], store: PartStore
) -> dict[str, Stream]:
    """Return the arrays of the final file as streams from shard to shard."""
    outputs = {split: problem.grid.size for split in SPLITS}
    outputs["training"] = problem.training_grid()[0].size
    single = np.dtype(np.float32)
    return {
        f"{split}/{name}": Stream(
            (total, columns),
            single,
            store.blocks([shard for shard in shards if shard.group == split], name),
        )
        for split, total in sizes.items()
        for name, columns in (("kappa", problem.grid.size), ("u", outputs[split]))
    }
