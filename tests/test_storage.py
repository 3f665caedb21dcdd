"""Files: what was written comes back, and what is damaged or foreign is refused by name."""

import errno
import os
from pathlib import Path

import h5py
import numpy as np
import pytest
import safetensors.torch
import torch

from uqsonet.errors import DataError
from uqsonet.files import atomic_path, file_digest, remove_debris, write_text
from uqsonet.operator.weight_files import read_weights, write_weights
from uqsonet_study import storage
from uqsonet_study.storage import ArrayFile, Stream, array_kind, write_arrays

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


def test_arrays_round_trip_whole_and_in_blocks(path):
    arrays = {"x/a": A, "b": B, "m": MASK, "scalar": np.array(1.5), "none": np.empty((0, 3))}
    arrays["narrow"] = np.empty((2, 0))
    write_arrays(path, "functions", {"seed": 3}, {name: [a] for name, a in arrays.items()})
    with ArrayFile(path, "functions") as file:
        for name, expected in arrays.items():
            found = file.read(name)
            assert found.dtype == expected.dtype and file.shape(name) == expected.shape
            np.testing.assert_array_equal(found, expected)
        assert sorted(file.names()) == sorted(arrays)
        assert file.meta["seed"] == 3 and "torch" in file.meta["versions"]
        np.testing.assert_array_equal(file.read("x/a", slice(5, 9)), A[5:9])
        for rows in (1, 7, 50, 1000):
            blocks = list(file.blocks("x/a", rows))
            assert {len(block) for block in blocks[:-1]} <= {rows}
            np.testing.assert_array_equal(np.concatenate(blocks), A)
        with pytest.raises(DataError, match="no array 'nothing'"):
            file.read("nothing")
    assert array_kind(path) == "functions"
    with pytest.raises(DataError, match="holds 'functions', expected 'sensors'"):
        ArrayFile(path, "sensors")


@pytest.mark.parametrize("cuts", [(), (25,), (1, 2, 3, 49), tuple(range(1, 50))])
def test_how_an_array_is_cut_changes_no_byte(path, tmp_path, monkeypatch, cuts):
    monkeypatch.setattr(storage, "CHUNK_BYTES", 5 * A[0].nbytes)  # several chunks
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


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_bad_value_is_told_from_damage(path, tmp_path, bad):
    """Written so: the index is named. Changed on disk: the digest says so, not the value."""
    array = A.copy()
    array[14, 2] = bad
    write_arrays(tmp_path / "n.h5", "functions", {}, {"x/a": [array]})
    with h5py.File(path, "r+") as file:
        file["x/a"][14, 2] = bad  # HDF5 renews its own checksum
    for target, message in (
        (tmp_path / "n.h5", r"'x/a' is not finite at index \[14, 2\]"),
        (path, "SHA-256"),
    ):
        seen = []
        with ArrayFile(target, "functions") as file:
            with pytest.raises(DataError, match=message):
                seen.extend(file.blocks("x/a", 5))
            with pytest.raises(DataError, match=message):
                file.read("x/a")
        assert len(seen) <= 2  # no block from the bad value on was handed out
    with ArrayFile(tmp_path / "n.h5", "functions") as file:
        np.testing.assert_array_equal(file.read("x/a", finite=False), array)


def arrays_of(path):
    with ArrayFile(path, "functions") as file:
        return {name: file.read(name) for name in ("x/a", "b", "m")}


def tensors_of(path):
    tensors, meta = read_weights(path)
    return tensors | {"meta": torch.tensor(meta["trials"])}


@pytest.mark.parametrize(("kind", "read"), [("path", arrays_of), ("weights", tensors_of)])
def test_any_flipped_bit_is_refused_or_harmless(request, kind, read):
    """Wherever a bit flips: arrays come back as written, or a `DataError` says otherwise."""
    target = request.getfixturevalue(kind)
    data, expected, refused = target.read_bytes(), read(target), 0
    for position in np.random.default_rng(1).choice(len(data), 150, replace=False):
        target.write_bytes(data)
        flip(target, int(position))
        try:
            found = read(target)
        except DataError:
            refused += 1
            continue
        assert found.keys() == expected.keys(), position
        assert all(np.array_equal(found[name], expected[name]) for name in found), position
    assert refused > 5


def truncated(share):
    def damage(path):
        data = path.read_bytes()
        path.write_bytes(data[: int(share * len(data))])

    return damage


def edited(change):
    def damage(path):
        with h5py.File(path, "r+") as file:
            change(file)

    return damage


def header(name, value):
    return edited(lambda file: file.attrs.__setitem__(name, value))


UNREADABLE = "not a readable HDF5 file"
DAMAGES = {  # what happens to a file, and the message that reading it gets
    "gone": (Path.unlink, "no such file"),
    "empty": (truncated(0.0), r"data\.h5"),
    "cut to the header": (truncated(0.1), r"data\.h5"),
    "cut": (truncated(0.99), r"data\.h5"),
    "text": (lambda path: path.write_text("hello"), UNREADABLE),
    "a value": (edited(lambda file: file["x/a"].write_direct(A + 1)), "SHA-256"),
    "a byte": (lambda p: flip(p, p.read_bytes().find(A[:1].tobytes()) + 2), "x/a.*corrupted"),
    "another schema": (header("schema", 99), "schema 99, this version reads 1"),
    "another format": (header("format", "other"), "not written by uqsonet"),
    "no format": (edited(lambda file: file.attrs.pop("format")), "not written by uqsonet"),
    "no meta": (edited(lambda file: file.attrs.pop("meta")), r"data\.h5"),
    "meta no JSON": (header("meta", "not json"), r"data\.h5"),
    "meta of another": (header("meta", np.bytes_(b'{"seed": 4}')), "do not belong together"),
    "renamed": (edited(lambda file: file.move("x/a", "x/c")), "do not belong together"),
    "a text among arrays": (
        edited(lambda file: file.create_dataset("text", data="hello")),
        "not a plain numeric array",
    ),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_a_damaged_or_foreign_file_is_refused(path, name):
    damage, message = DAMAGES[name]
    damage(path)
    with pytest.raises(DataError, match=message), ArrayFile(path, "functions") as file:
        file.read("x/a")
    if message == UNREADABLE:
        with pytest.raises(DataError, match=message):
            array_kind(path)


def test_links_references_and_storage_elsewhere_are_refused(path, tmp_path):
    (tmp_path / "raw.bin").write_bytes(A.tobytes())
    write_arrays(tmp_path / "secret.h5", "functions", {}, {"x/a": [A]})
    with h5py.File(path, "r+") as file:
        file["external"] = h5py.ExternalLink(str(tmp_path / "secret.h5"), "/x/a")
        file["folder"] = h5py.ExternalLink(str(tmp_path / "secret.h5"), "/x")
        file["soft"] = h5py.SoftLink("/x/a")
    for name in ("external", "soft", "folder/a"):
        with ArrayFile(path, "functions") as file, pytest.raises(DataError):
            file.read(name)
    with h5py.File(path, "r+") as file:
        del file.attrs["seal"]  # as in files of earlier versions
        file.create_dataset("reference", (2,), dtype=h5py.ref_dtype)
        file.create_dataset("text", data="hello")
        elsewhere = [(str(tmp_path / "raw.bin"), 0, A.nbytes)]
        file.create_dataset("raw", A.shape, dtype="f4", external=elsewhere)
        file.create_dataset("huge", (1 << 40, 128), "f4", chunks=(64, 128))
    with ArrayFile(path, "functions") as file:
        for name in ("reference", "text", "raw"):
            with pytest.raises(DataError, match="not a plain numeric array"):
                file.read(name)
        with pytest.raises(DataError, match="'huge' is not complete"):
            file.read("huge")


def test_files_of_earlier_versions_stay_readable(path):
    with h5py.File(path, "r+") as file:
        texts = [*file.attrs.items(), *file["b"].attrs.items()]
        assert all(isinstance(v, bytes | np.integer) for _, v in texts), texts  # in the header
        del file.attrs["seal"]
        for key in ("format", "kind", "meta"):
            file.attrs[key] = file.attrs[key].decode()
        file["b"].attrs["sha256"] = file["b"].attrs["sha256"].decode()
    with ArrayFile(path, "functions") as file:
        assert np.array_equal(file.read("b"), B) and file.meta["seed"] == 3


def test_the_old_file_stays_until_a_new_one_is_whole(path):
    """A new one replaces the name in one step: whoever reads the old file reads it to its end."""
    before = path.read_bytes()
    with pytest.raises(KeyError), atomic_path(path) as temporary:
        temporary.write_bytes(b"half")
        raise KeyError
    assert path.read_bytes() == before and not leftovers(path.parent)
    with path.open("rb", buffering=0) as reader:
        head = reader.read(100)
        write_arrays(path, "functions", {}, {"b": [B]})
        assert head + reader.read() == before
    assert path.read_bytes() != before


def test_debris_is_what_writers_of_that_file_left(path):
    others = [".data.h5.old.part", ".data.h5.csv.0123abc_.part", ".other.h5.0123abc_.part"]
    with atomic_path(path) as temporary:
        pass
    for name in (temporary.name, *others):  # as a killed writer would have left the first
        (path.parent / name).touch()
    remove_debris(path)
    assert {p.name for p in path.parent.iterdir()} == {*others, "data.h5"}


def test_a_place_that_cannot_be_written_is_a_data_error_that_names_the_file(path, monkeypatch):
    (path.parent / "file").write_text("in the way")
    with pytest.raises(DataError, match="cannot be written"):
        write_text(path.parent / "file" / "below.csv", "x")
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


@pytest.mark.parametrize("umask", [0o077, 0o022, 0o002])
def test_text_is_written_whole_with_the_permissions_that_the_umask_leaves(tmp_path, umask):
    target, before = tmp_path / "deep" / "a.txt", os.umask(umask)
    try:
        write_text(target, '{"ä": 1}')
        assert os.umask(umask) == umask
    finally:
        os.umask(before)
    assert target.read_text("utf-8") == '{"ä": 1}'
    assert target.stat().st_mode & 0o777 == 0o666 & ~umask


def test_weights_round_trip_and_have_the_same_bytes_each_time(weights, tmp_path):
    tensors, meta = read_weights(weights)
    assert torch.equal(tensors["parameter/w"], torch.arange(6.0).reshape(2, 3))
    assert tensors["buffer/s"].shape == () and meta == {"trials": [0, 1]}
    digests = {file_digest(weights)}
    for order in (1, -1) * 5:
        write_weights(tmp_path / "again.safetensors", dict([*tensors.items()][::order]), meta)
        digests.add(file_digest(tmp_path / "again.safetensors"))
    assert len(digests) == 1


def saved(tensors, header):
    return lambda path: safetensors.torch.save_file(tensors, path, metadata=header)


ONES = {"a": torch.ones(2)}
HEADER = '{"schema": %s, "sha256": "", "meta": %s}'
NO_WEIGHTS = {
    "gone": (Path.unlink, "no such file"),
    "empty": (truncated(0.0), "not a readable safetensors file"),
    "cut": (truncated(0.9), "not a readable safetensors file"),
    "a pickle": (lambda path: torch.save(ONES, path), "not a readable safetensors file"),
    "foreign": (saved(ONES, {"format": "pt"}), "not written by uqsonet"),
    "no JSON": (saved(ONES, {"uqsonet": "not json"}), "header cannot be read"),
    "no schema": (saved(ONES, {"uqsonet": "{}"}), "header cannot be read"),
    "meta a number": (saved(ONES, {"uqsonet": HEADER % (1, 3)}), "header cannot be read"),
    "another schema": (saved(ONES, {"uqsonet": HEADER % (7, "{}")}), "schema 7, .* reads 1"),
    "not finite": (
        lambda path: write_weights(path, {"a": torch.tensor([1.0, float("nan")])}, {}),
        "'a' holds a value that is not finite",
    ),
}


@pytest.mark.parametrize("name", NO_WEIGHTS)
def test_damaged_or_foreign_weights_are_refused(weights, name):
    damage, message = NO_WEIGHTS[name]
    damage(weights)
    with pytest.raises(DataError, match=message):
        read_weights(weights)


def write_factored(
    path: Path, core: torch.Tensor, factored: object, **factors: torch.Tensor
) -> None:
    tensors = {"w/core": core, **{f"w/{axis[1:]}": factor for axis, factor in factors.items()}}
    write_weights(path, tensors | {"v": torch.ones(2)}, {"factored": factored, "trials": [0]})


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
def test_a_factored_tensor_is_read_whole(weights, dtype):
    generator = torch.Generator().manual_seed(0)
    core, first, last = (torch.randn(*s, generator=generator) for s in ((2, 3, 4), (5, 2), (6, 4)))
    write_factored(weights, core.to(dtype), {"w": [15, 6]}, _0=first, _2=last)
    tensors, meta = read_weights(weights)
    assert set(tensors) == {"w", "v"} and meta == {"trials": [0]}
    assert tensors["w"].dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
    expected = torch.einsum("abc,ia,kc->ibk", core, first, last).reshape(15, 6)
    tolerance = 0.02 if dtype == torch.float16 else 1e-5
    torch.testing.assert_close(tensors["w"].float(), expected, rtol=0, atol=tolerance)


@pytest.mark.parametrize(
    ("factored", "factors"),
    [
        ({"w": [5, 3]}, {}),  # as many numbers as the product has not
        ({"w": [5, 2, 1, 4]}, {"_0": torch.ones(5, 3)}),  # a factor for another core
        ({"w": [1, 3, 4]}, {"_0": torch.ones(1, 2)}),  # an axis that grows by its core
        ({"w": [2, 3, 4]}, {"_0": torch.full((2, 2), 1e30), "_1": torch.full((3, 3), 1e30)}),
        ({"w": [2**20, 3, 2**20]}, {"_0": torch.ones(2**20, 2), "_2": torch.ones(2**20, 4)}),
        ({"w": "ab"}, {}),
        ({"w": None}, {}),
        ({"w": {}}, {}),
        ({"q": [2]}, {}),  # no core
        ([1], {}),
    ],
)
def test_factors_that_do_not_fit_are_refused(weights, factored, factors):
    write_factored(weights, torch.ones(2, 3, 4), factored, **factors)
    with pytest.raises(DataError, match=r"w\.safetensors: factored"):
        read_weights(weights)
