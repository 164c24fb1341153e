"""The replicas on this node: roles, offsets, turns of writing, waiting, replication.

Duty: from a checked batch to a committed one, on the leader and on its followers. Knows no request,
session or connection. Owned by the event loop's thread; large writes and fsyncs run in worker
threads.
"""
