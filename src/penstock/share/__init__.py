"""Share groups at the leader of a partition: one share-partition, and the sessions of members.

A room of decisions: it imports no I/O, clock or randomness. A driver reads the log, keeps the
time, persists what a `Change` says and hands the result back.
"""
