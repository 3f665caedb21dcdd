"""Files that last: HDF5 for arrays, safetensors for weights, CSV and JSON for results.

Every write goes to a temporary name in the same folder, is flushed to disk and then renamed, so
a killed job leaves the old file or the new one and never half of one. Every array carries a
SHA-256 digest besides HDF5's own fletcher32 checksums. Nothing here unpickles. The layout is
written down in docs/data-format.md.
"""
