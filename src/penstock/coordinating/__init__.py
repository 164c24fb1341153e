"""The drivers of the coordinators' shards: groups, transactions, markers.

Duty: hand requests and time to the pure shards in `coordinator`, append their records, and give
their answers when the records are committed. Owned by the event loop's thread.
"""
