"""From files to runs: npz, HDF5, NetCDF (`open_runs`)."""
