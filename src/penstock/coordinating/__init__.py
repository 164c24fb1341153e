"""The drivers of the coordinators' shards: groups, transactions, markers.

Duty: pass requests and time to the pure shards in `coordinator`, append their records, and answer
when the records are committed. Owned by the event loop's thread.
"""
