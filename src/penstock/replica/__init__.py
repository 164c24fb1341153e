"""Partition replication as decisions: what a leader and a follower know, and what follows from it.

Pure: events and a time go in, decisions come out. `partitions/partition.py` holds one of the two.
"""
