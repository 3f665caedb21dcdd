"""Speed against peers and floors: `python -m benchmarks`, or `make bench`."""
