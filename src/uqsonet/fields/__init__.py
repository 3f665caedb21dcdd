"""Fields: grids, point clouds, transforms, names and units."""
