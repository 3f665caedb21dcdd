"""Files: what was written comes back, and what is damaged or foreign is refused by name."""

import errno
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest
import safetensors.torch
import torch

import uqsonet
from uqsonet import storage
from uqsonet.errors import DataError
from uqsonet.storage import reading
from uqsonet.storage.arrays import Stream, write_arrays
from uqsonet.storage.files import atomic_path, file_digest, remove_debris, write_text
from uqsonet.storage.reading import ArrayFile, array_kind
from uqsonet.storage.weights import read_weights, write_weights

A = np.random.default_rng(0).standard_normal((50, 7)).astype(np.float32)
B = np.arange(12, dtype=np.int32).reshape(3, 4)
MASK = np.array([True, False, True])


@pytest.fixture
def path(tmp_path):
    target = tmp_path / "data.h5"
    write_arrays(target, "functions", {"seed": 3}, {"x/a": [A[:20], A[20:]], "b": [B], "m": [MASK]})
    return target


@pytest.fixture
def weights(tmp_path):
    target = tmp_path / "w.safetensors"
    tensors = {"parameter/w": torch.arange(6.0).reshape(2, 3), "buffer/s": torch.tensor(1.5)}
    write_weights(target, tensors, {"trials": [0, 1]})
    return target


def flip(path: Path, position: int) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 0x40
    path.write_bytes(data)


def leftovers(folder: Path) -> list[str]:
    return [p.name for p in folder.iterdir() if p.name.endswith(".part")]


def test_arrays_round_trip_with_dtype_shape_and_meta(path):
    with ArrayFile(path, "functions") as file:
        for name, expected in (("x/a", A), ("b", B), ("m", MASK)):
            found = file.read(name)
            assert found.dtype == expected.dtype
            np.testing.assert_array_equal(found, expected)
        assert sorted(file.names()) == ["b", "m", "x/a"]
        assert file.meta["seed"] == 3 and "torch" in file.meta["versions"]
        np.testing.assert_array_equal(file.read("x/a", slice(5, 9)), A[5:9])
    assert array_kind(path) == "functions"


def test_the_same_content_gives_the_same_bytes(path, tmp_path):
    arrays = {"x/a": [A], "b": [B], "m": [MASK]}
    write_arrays(tmp_path / "other.h5", "functions", {"seed": 3}, arrays)
    assert file_digest(tmp_path / "other.h5") == file_digest(path)


@pytest.mark.parametrize("cuts", [(), (25,), (1, 2, 3, 49), tuple(range(1, 50))])
def test_how_an_array_is_cut_changes_no_byte(path, tmp_path, monkeypatch, cuts):
    monkeypatch.setattr(storage.arrays, "CHUNK_BYTES", 5 * A[0].nbytes)  # several chunks
    for name, blocks in (("whole", [A]), ("cut", np.split(A, cuts))):
        stream = Stream(A.shape, A.dtype, (block for block in blocks))
        digests = write_arrays(tmp_path / f"{name}.h5", "functions", {}, {"x/a": stream})
        with ArrayFile(path, "functions") as file:
            assert digests == {"x/a": file._file["x/a"].attrs["sha256"].decode()}
    assert file_digest(tmp_path / "whole.h5") == file_digest(tmp_path / "cut.h5")


@pytest.mark.parametrize(
    ("blocks", "message"),
    [
        ([A[:49]], "expected 50 rows, got 49"),
        ([A, A[:1]], "expected 50 rows, got at least 51"),
        ([], "expected 50 rows, got 0"),
        ([A[:, :6]], r"a block is float32 \(50, 6\)"),
        ([A.astype(np.float64)], "a block is float64"),
    ],
)
def test_a_stream_must_bring_what_it_announced(path, blocks, message):
    before = path.read_bytes()
    with pytest.raises(DataError, match=rf"data\.h5: array 'a': {message}"):
        write_arrays(path, "functions", {}, {"a": Stream(A.shape, A.dtype, blocks)})
    assert path.read_bytes() == before and not leftovers(path.parent)


@pytest.mark.parametrize("rows", [1, 7, 50, 1000])
def test_blocks_are_the_array(path, rows):
    with ArrayFile(path, "functions") as file:
        blocks = list(file.blocks("x/a", rows))
        assert file.shape("x/a") == A.shape
    assert {len(block) for block in blocks[:-1]} <= {rows}
    np.testing.assert_array_equal(np.concatenate(blocks), A)


def test_scalars_and_empty_arrays_round_trip(tmp_path):
    arrays = {"scalar": np.array(1.5), "none": np.empty((0, 3)), "narrow": np.empty((2, 0))}
    write_arrays(tmp_path / "a.h5", "functions", {}, {k: [v] for k, v in arrays.items()})
    with ArrayFile(tmp_path / "a.h5", "functions") as file:
        for name, expected in arrays.items():
            found = file.read(name)
            assert found.shape == expected.shape and (found == expected).all()


def test_blocks_are_checked_to_the_end(path):
    with h5py.File(path, "r+") as file:
        file["x/a"][3, 3] = 99.0
    with ArrayFile(path, "functions") as file, pytest.raises(DataError, match="SHA-256"):
        for _ in file.blocks("x/a", 10):
            pass


def test_a_bad_value_is_told_from_damage(path, tmp_path):
    """Written so: the index is named. Changed on disk: the digest says so, not the value."""
    array = A.copy()
    array[14, 2] = np.nan
    write_arrays(tmp_path / "n.h5", "functions", {}, {"x/a": [array]})
    with h5py.File(path, "r+") as file:
        file["x/a"][14, 2] = np.nan
    for target, message in (
        (tmp_path / "n.h5", r"not finite at index \[14, 2\]"),
        (path, "SHA-256"),
    ):
        seen = []
        with ArrayFile(target, "functions") as file, pytest.raises(DataError, match=message):
            seen.extend(file.blocks("x/a", 5))
        assert len(seen) <= 2  # no block from the bad value on was handed out


def test_debris_of_killed_writers_is_removed_and_nothing_else(path):
    for name in (".data.h5.abc.part", ".other.h5.abc.part"):
        (path.parent / name).touch()
    remove_debris(path)
    assert sorted(p.name for p in path.parent.iterdir()) == [".other.h5.abc.part", "data.h5"]


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.99])
def test_a_truncated_file_is_refused(path, share):
    data = path.read_bytes()
    path.write_bytes(data[: int(share * len(data))])
    with pytest.raises(DataError, match=r"data\.h5"):
        with ArrayFile(path, "functions") as file:
            file.read("x/a")


def test_a_flipped_byte_of_data_is_refused(path):
    start = path.read_bytes().find(A[:1].tobytes())
    assert start > 0
    flip(path, start + 2)
    with ArrayFile(path, "functions") as file, pytest.raises(DataError, match=r"x/a.*corrupted"):
        file.read("x/a")


def test_any_flipped_byte_is_refused_or_harmless(path):
    """Wherever a bit flips: the arrays come back as written, or a `DataError` says otherwise."""
    data = path.read_bytes()
    refused = 0
    for position in np.random.default_rng(1).choice(len(data), 150, replace=False):
        path.write_bytes(data)
        flip(path, int(position))
        try:
            with ArrayFile(path, "functions") as file:
                np.testing.assert_array_equal(file.read("x/a"), A)
                np.testing.assert_array_equal(file.read("b"), B)
        except DataError:
            refused += 1
    assert refused > 5


def test_the_digest_catches_what_the_chunk_checksum_does_not(path):
    with h5py.File(path, "r+") as file:
        file["x/a"][3, 3] = 99.0  # HDF5 renews its own checksum
    with ArrayFile(path, "functions") as file, pytest.raises(DataError, match="SHA-256"):
        file.read("x/a")


def test_foreign_hdf5_is_refused(tmp_path):
    with h5py.File(tmp_path / "foreign.h5", "w") as file:
        file["x"] = A
    with pytest.raises(DataError, match="not written by uqsonet"):
        ArrayFile(tmp_path / "foreign.h5", "functions")


@pytest.mark.parametrize(
    ("attribute", "value", "message"),
    [("schema", 99, "schema 99, this version reads 1"), ("format", "other", "not written by")],
)
def test_another_schema_or_format_is_refused(path, attribute, value, message):
    with h5py.File(path, "r+") as file:
        file.attrs[attribute] = value
    with pytest.raises(DataError, match=message):
        ArrayFile(path, "functions")


@pytest.mark.parametrize("meta", [None, "not json"])
def test_an_unreadable_header_is_refused(path, meta):
    with h5py.File(path, "r+") as file:
        del file.attrs["meta"]
        if meta:
            file.attrs["meta"] = meta
    with pytest.raises(DataError, match=r"data\.h5"):
        ArrayFile(path, "functions")


def test_another_kind_is_refused(path):
    with pytest.raises(DataError, match="holds 'functions', expected 'sensors'"):
        ArrayFile(path, "sensors")


def test_text_is_no_hdf5(tmp_path):
    (tmp_path / "t.h5").write_text("hello")
    for act in (lambda p: ArrayFile(p, "functions"), array_kind):
        with pytest.raises(DataError, match="not a readable HDF5 file"):
            act(tmp_path / "t.h5")


def test_a_missing_file_or_array_is_named(path, tmp_path):
    with pytest.raises(DataError, match=r"gone.h5: no such file"):
        ArrayFile(tmp_path / "gone.h5", "functions")
    with ArrayFile(path, "functions") as file, pytest.raises(DataError, match="no array 'nothing'"):
        file.read("nothing")


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_values_that_are_not_finite_are_refused_with_their_index(tmp_path, bad):
    array = A.copy()
    array[4, 2] = bad
    write_arrays(tmp_path / "n.h5", "functions", {}, {"a": [array]})
    with ArrayFile(tmp_path / "n.h5", "functions") as file:
        with pytest.raises(DataError, match=r"'a' is not finite at index \[4, 2\]"):
            file.read("a")
        np.testing.assert_array_equal(file.read("a", finite=False), array)


def test_links_that_lead_elsewhere_are_refused(path, tmp_path):
    write_arrays(tmp_path / "secret.h5", "functions", {}, {"x/a": [A]})
    with h5py.File(path, "r+") as file:
        file["external"] = h5py.ExternalLink(str(tmp_path / "secret.h5"), "/x/a")
        file["folder"] = h5py.ExternalLink(str(tmp_path / "secret.h5"), "/x")
        file["soft"] = h5py.SoftLink("/x/a")
    with ArrayFile(path, "functions") as file:
        for name in ("external", "soft", "folder/a"):
            with pytest.raises(DataError):
                file.read(name)


def test_references_text_and_external_storage_are_refused(path, tmp_path):
    (tmp_path / "raw.bin").write_bytes(A.tobytes())
    with h5py.File(path, "r+") as file:
        file.create_dataset("reference", (2,), dtype=h5py.ref_dtype)
        file.create_dataset("text", data="hello")
        storage = [(str(tmp_path / "raw.bin"), 0, A.nbytes)]
        file.create_dataset("raw", A.shape, dtype="f4", external=storage)
    with pytest.raises(DataError, match="not a plain numeric array"):
        ArrayFile(path, "functions")
    with h5py.File(path, "r+") as file:
        del file.attrs["seal"]  # as in files of earlier versions
    with ArrayFile(path, "functions") as file:
        for name in ("reference", "text", "raw", "x"):
            with pytest.raises(DataError, match="not a plain numeric array"):
                file.read(name)


def test_the_seal_binds_header_and_arrays(path):
    good = path.read_bytes()

    def rename(file):
        file.move("x/a", "x/c")

    def other_meta(file):
        file.attrs["meta"] = np.bytes_(b'{"seed": 4}')

    for change in (rename, other_meta):
        path.write_bytes(good)
        with h5py.File(path, "r+") as file:
            change(file)
        with pytest.raises(DataError, match="header and arrays do not belong together"):
            ArrayFile(path, "functions")


def test_texts_of_a_file_lie_in_its_checksummed_header(path):
    with h5py.File(path) as file:
        texts = [*file.attrs.items(), *file["b"].attrs.items()]
        assert all(isinstance(v, bytes | np.integer) for _, v in texts), texts


def test_files_of_earlier_versions_stay_readable(path):
    with h5py.File(path, "r+") as file:
        del file.attrs["seal"]
        for key in ("format", "kind", "meta"):
            file.attrs[key] = file.attrs[key].decode()
        file["b"].attrs["sha256"] = file["b"].attrs["sha256"].decode()
    with ArrayFile(path, "functions") as file:
        assert np.array_equal(file.read("b"), B) and file.meta["seed"] == 3


def test_a_promise_of_more_than_the_file_holds_is_refused(path):
    with h5py.File(path, "r+") as file:
        del file.attrs["seal"]
        file.create_dataset("huge", (1 << 40, 128), "f4", chunks=(64, 128))
    with ArrayFile(path, "functions") as file:
        with pytest.raises(DataError, match="'huge' is not complete"):
            file.read("huge")


def test_an_error_midway_leaves_the_old_file_and_no_debris(path):
    before = path.read_bytes()
    with pytest.raises(KeyError), atomic_path(path) as temporary:
        temporary.write_bytes(b"half")
        raise KeyError
    assert path.read_bytes() == before and not leftovers(path.parent)


def test_a_new_version_never_shows_in_a_file_that_is_open(path):
    """It replaces the name in one step: whoever reads the old file reads it to its end."""
    before = path.read_bytes()
    with path.open("rb", buffering=0) as reader:
        head = reader.read(100)
        write_arrays(path, "functions", {}, {"b": [B]})
        assert head + reader.read() == before
    assert path.read_bytes() != before


def test_kill_dash_nine_during_a_write_leaves_the_old_file(path):
    before = path.read_bytes()
    code = (
        "import sys, time\nfrom pathlib import Path\n"
        "from uqsonet.storage.files import atomic_path\n"
        "with atomic_path(Path(sys.argv[1])) as temporary:\n"
        "    temporary.write_bytes(b'half of a new file'); print('writing', flush=True)\n"
        "    time.sleep(3600)\n"
    )
    environment = os.environ | {"PYTHONPATH": str(Path(uqsonet.__file__).parents[1])}
    command = [sys.executable, "-c", code, str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment) as child:
        assert child.stdout is not None and child.stdout.readline() == b"writing\n"
        child.send_signal(signal.SIGKILL)
        assert child.wait() == -signal.SIGKILL
    assert path.read_bytes() == before
    with ArrayFile(path, "functions") as file:
        np.testing.assert_array_equal(file.read("x/a"), A)


def test_a_full_disk_is_a_data_error_that_names_the_file(path, monkeypatch):
    before = path.read_bytes()

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    for write in (
        lambda: write_text(path, "new"),
        lambda: write_arrays(path, "functions", {}, {"a": [A]}),
        lambda: write_weights(path, {"a": torch.ones(2)}, {}),
    ):
        with pytest.raises(DataError, match=r"data.h5: cannot be written: No space left on device"):
            write()
        assert path.read_bytes() == before and not leftovers(path.parent)


def test_a_folder_that_cannot_be_made_is_a_data_error(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(DataError, match="cannot be written"):
        write_text(tmp_path / "file" / "below.csv", "x")


def test_written_files_are_readable_by_others(path):
    assert path.stat().st_mode & 0o777 == 0o644


def test_weights_round_trip(weights):
    tensors, meta = read_weights(weights)
    assert torch.equal(tensors["parameter/w"], torch.arange(6.0).reshape(2, 3))
    assert tensors["buffer/s"].shape == () and meta == {"trials": [0, 1]}


@pytest.mark.parametrize("keep", [0, 4, 20, -1])
def test_truncated_weights_are_refused(weights, keep):
    weights.write_bytes(weights.read_bytes()[:keep])
    with pytest.raises(DataError, match=r"w.safetensors: not a readable safetensors file"):
        read_weights(weights)


def test_any_flipped_bit_of_weights_is_refused_or_harmless(weights):
    data = weights.read_bytes()
    expected, expected_meta = read_weights(weights)
    for position in range(len(data)):
        weights.write_bytes(data)
        flip(weights, position)
        try:
            tensors, meta = read_weights(weights)
        except DataError:
            continue
        assert meta == expected_meta, position
        assert tensors.keys() == expected.keys(), position
        assert all(torch.equal(tensors[k], expected[k]) for k in tensors), position


def test_foreign_or_other_weights_are_refused(tmp_path, monkeypatch):
    target = tmp_path / "w.safetensors"
    safetensors.torch.save_file({"a": torch.ones(2)}, target)
    with pytest.raises(DataError, match="not written by uqsonet"):
        read_weights(target)
    with monkeypatch.context() as patch:
        patch.setattr(storage.weights, "SCHEMA", 7)
        write_weights(target, {"a": torch.ones(2)}, {})
    with pytest.raises(DataError, match="schema 7, this version reads 1"):
        read_weights(target)
    with pytest.raises(DataError, match="no such file"):
        read_weights(tmp_path / "gone.safetensors")


def test_the_same_weights_give_the_same_bytes(tmp_path):
    tensors = {"b": torch.ones(3), "a": torch.zeros(2, 2), "c": torch.arange(2)}
    digests = set()
    for i in range(20):
        write_weights(tmp_path / f"{i}.safetensors", tensors, {"x": 1, "trials": [0]})
        digests.add(file_digest(tmp_path / f"{i}.safetensors"))
    assert len(digests) == 1


@pytest.mark.parametrize("meta", [None, "not json", "3"])
@pytest.mark.parametrize("format_key", ["format", "uqsonet"])
def test_weights_without_a_readable_header_are_refused(tmp_path, format_key, meta):
    header = {format_key: "uqsonet", "schema": "1"} | ({"meta": meta} if meta else {})
    safetensors.torch.save_file({"a": torch.ones(2)}, tmp_path / "w.safetensors", metadata=header)
    with pytest.raises(DataError, match=r"w.safetensors"):
        read_weights(tmp_path / "w.safetensors")


def test_weights_that_are_not_finite_are_refused(tmp_path):
    target = tmp_path / "w.safetensors"
    write_weights(target, {"a": torch.tensor([1.0, float("nan")])}, {})
    with pytest.raises(DataError, match="'a' holds a value that is not finite"):
        read_weights(target)


def test_nothing_is_unpickled(tmp_path):
    torch.save({"a": torch.ones(2)}, tmp_path / "w.safetensors")
    with pytest.raises(DataError, match="not a readable safetensors file"):
        read_weights(tmp_path / "w.safetensors")


def test_text_is_written_whole(tmp_path):
    write_text(tmp_path / "deep" / "t.json", json.dumps({"ä": 1}, ensure_ascii=False))
    assert json.loads((tmp_path / "deep" / "t.json").read_text("utf-8")) == {"ä": 1}


def test_an_unchanged_file_is_hashed_once(tmp_path, monkeypatch):
    """What was read to the end is not hashed again; a changed file is, whatever its size."""
    file = tmp_path / "f.h5"
    write_arrays(file, "reference", {}, {"a": [np.arange(40.0).reshape(20, 2)]})
    added = []
    monkeypatch.setattr(reading.Digest, "add", lambda self, block: added.append(len(block)))
    monkeypatch.setattr(reading.Digest, "hex", lambda self: digests["a"])
    with ArrayFile(file, "reference") as found:
        digests = found._digests()
        list(found.blocks("a", rows=8))
        assert added == [8, 8, 4]
        assert [len(block) for block in found.blocks("a", rows=8)] == [8, 8, 4]
    with ArrayFile(file, "reference") as found:
        assert len(found.read("a")) == 20 and added == [8, 8, 4]
    write_arrays(file, "reference", {}, {"a": [np.arange(40.0).reshape(20, 2)]})
    with ArrayFile(file, "reference") as found:
        added.clear()
        found.read("a")
    assert sum(added) == 20


def write_factored(path: Path, core: torch.Tensor, shape: object, **factors: torch.Tensor) -> None:
    tensors = {"w/core": core, **{f"w/{axis[1:]}": factor for axis, factor in factors.items()}}
    write_weights(path, tensors | {"v": torch.ones(2)}, {"factored": {"w": shape}, "trials": [0]})


def test_a_factored_tensor_is_read_whole(tmp_path):
    generator = torch.Generator().manual_seed(0)
    core = torch.randn(2, 3, 4, generator=generator)
    first, last = (torch.randn(*s, generator=generator) for s in ((5, 2), (6, 4)))
    write_factored(tmp_path / "f.safetensors", core, [15, 6], _0=first, _2=last)
    tensors, meta = read_weights(tmp_path / "f.safetensors")
    assert set(tensors) == {"w", "v"} and meta == {"trials": [0]}
    expected = torch.einsum("abc,ia,kc->ibk", core, first, last).reshape(15, 6)
    assert tensors["w"].dtype == torch.float32
    torch.testing.assert_close(tensors["w"], expected)
    for dtype, found in ((torch.float16, torch.float32), (torch.float64, torch.float64)):
        write_factored(tmp_path / "g.safetensors", core.to(dtype), [15, 6], _0=first, _2=last)
        whole = read_weights(tmp_path / "g.safetensors")[0]["w"]
        assert whole.dtype == found
        torch.testing.assert_close(whole.float(), expected, rtol=0, atol=0.02)


@pytest.mark.parametrize(
    ("shape", "factors"),
    [
        ([5, 3], {}),  # as many numbers as the product has not
        ([5, 2, 1, 4], {"_0": torch.ones(5, 3)}),  # a factor for another core
        ([1, 3, 4], {"_0": torch.ones(1, 2)}),  # an axis that grows by its core
        ([2, 3, 4], {"_0": torch.full((2, 2), 1e30), "_1": torch.full((3, 3), 1e30)}),  # infinite
        ("ab", {}),
        (None, {}),
        ([2**20, 3, 2**20], {"_0": torch.ones(2**20, 2), "_2": torch.ones(2**20, 4)}),  # 12 TB
    ],
)
def test_factors_that_do_not_fit_are_refused(tmp_path, shape, factors):
    write_factored(tmp_path / "f.safetensors", torch.ones(2, 3, 4), shape, **factors)
    with pytest.raises(DataError, match=r"f\.safetensors: factored"):
        read_weights(tmp_path / "f.safetensors")


def test_a_header_of_factors_that_is_none_is_refused(tmp_path):
    for found in ([1], "x", {"w": [1]}, {"w": {}}):
        write_weights(tmp_path / "f.safetensors", {"v": torch.ones(2)}, {"factored": found})
        with pytest.raises(DataError, match=r"f\.safetensors: factored"):
            read_weights(tmp_path / "f.safetensors")


@pytest.mark.parametrize("umask", [0o077, 0o022, 0o002])
def test_files_have_the_permissions_that_the_umask_leaves(tmp_path, umask):
    before = os.umask(umask)
    try:
        write_text(tmp_path / "a.txt", "x")
        assert os.umask(umask) == umask
    finally:
        os.umask(before)
    assert (tmp_path / "a.txt").stat().st_mode & 0o777 == 0o666 & ~umask
