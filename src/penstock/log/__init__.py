"""The log room: segments, indexes, producer state, leader epochs, recovery, retention,
compaction.
"""
