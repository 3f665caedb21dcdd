"""Files that last: HDF5 for arrays, safetensors for weights, CSV and JSON for results.

Every write goes to a temporary name in the same folder, is flushed to disk and then renamed, so
a killed job leaves the old file or the new one and never half of one. Every array carries a
SHA-256 digest besides HDF5's own fletcher32 checksums. Nothing here unpickles. The layout is
written down in docs/data-format.md.
"""

from uqsonet.storage.arrays import Stream, array_digest, write_arrays
from uqsonet.storage.files import (
    Meta,
    atomic_path,
    file_digest,
    of_any_version,
    provenance,
    remove_debris,
    remove_numbered,
    write_text,
)
from uqsonet.storage.reading import ArrayFile, array_kind
from uqsonet.storage.weights import read_weights, write_weights

__all__ = [
    "ArrayFile",
    "Meta",
    "Stream",
    "array_digest",
    "array_kind",
    "atomic_path",
    "file_digest",
    "of_any_version",
    "provenance",
    "read_weights",
    "remove_debris",
    "remove_numbered",
    "write_arrays",
    "write_text",
    "write_weights",
]
