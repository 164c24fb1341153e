"""Measures a cluster of three real nodes on one machine: `make bench-cluster`."""
