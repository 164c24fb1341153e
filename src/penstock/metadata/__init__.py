"""Cluster metadata: records in KRaft's formats, the image they build, and the controller's
decisions.

Pure: nothing here reads a clock, a socket or a disk. What needs random numbers is passed a `Rng`.
"""
