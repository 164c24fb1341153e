"""Limits of the log room that Kafka has no setting for, each with its unit in the name."""

from __future__ import annotations

OPEN_FILES_MAX = 4_096
"""Segment files that are held open at once; the one used longest ago is closed first."""

INDEX_CACHE_BYTES_MAX = 64 * 1024 * 1024
"""Memory for the indexes of closed segments; what was used longest ago is dropped first."""

WRITE_RETRY_PAUSE_MS = 1_000
"""A log whose disk refused a write refuses further ones for this long, then tries again."""

JOIN_BYTES_PER_BUFFER_MAX = 1_024
"""Buffers no larger than this on average are joined for one `pwrite`, which is then quicker than
`pwritev` (measured: the vector costs about 50 ns a buffer, the copy about 0.1 ns a byte).
"""

BACKGROUND_WRITE_BYTES_MIN = 64 * 1024
"""Smaller writes run in the loop's thread: handing them to a worker takes about as long."""

TAIL_BYTES_MAX = 8 * 1024
"""A last write of up to this size stays in memory for readers at the tail, while the segment's file
is open: for `OPEN_FILES_MAX` logs at most.
"""

FRESH_S = 10.0
"""Data written or checked no longer ago is sent without another check: the page cache holds it as
it was. By default the kernel keeps written pages for 30 s before it writes them to the disk.
"""
UNREAD_BYTES_MIN = 64 * 1024
"""Smaller ranges are read and checked again, which takes no longer."""

REGIONS_MAX = 1_024
"""File regions that may be in transit to peers at once: each keeps its file open until it is sent.
Beyond that, data is read into memory.
"""

READ_AHEAD_BYTES = 8 * 1024 * 1024
"""How far ahead of a reader the page cache is asked to read what it did not have."""

SEALED_ON_LOOP_BYTES_MAX = 1024 * 1024 + 64 * 1024
"""A read that finds more encrypted data is decrypted in a worker thread: a megabyte takes about a
fifth of a millisecond.
"""

RECENT_CHECKS_MAX = 1_024
"""Ranges of segments that are remembered as recently checked."""

SYNC_THREADS = 16
"""Threads that sync files at a time while logs are closed. One takes many times as long; between 4
and 32 threads no difference was measured.
"""

CLOSED_AT_ONCE = 512
"""Logs that are closed together: each keeps a descriptor or two until it is synced."""

RETENTION_LOGS_PER_STEP = 64
"""Open logs per step of a retention pass; a log that has to be opened first is a step of its own.
"""

LOOKUPS_AT_ONCE_MAX = 2
"""Look-ups by time that run in worker threads: each holds a batch and what it unpacks to."""

LOOKUP_ON_LOOP_BYTES_MAX = 64 * 1024
"""Bytes of headers and uncompressed batches that the look-ups by time of one request read on the
loop: about a millisecond.
"""

CLEANED_GROUP_SEGMENTS_MAX = 32
"""Segments that compaction makes into one: the event loop renames their files in one go."""

IOV_MAX = 1_024
"""Buffers that one `pwritev` takes (the kernel's limit)."""

SCAN_CHUNK_BYTES = 4 * 1024
"""Read at once while searching an offset from header to header."""

RECOVERY_CHUNK_BYTES = 4 * 1024 * 1024
"""Read at once while a segment is checked batch by batch."""

UNFLUSHED_BATCHES_MAX = 500_000
"""A log that has taken so many batches since its last flush is flushed although no setting asks for
it: recovery checks them one by one, about 250,000 a second.
"""

INDEX_FLUSH_BATCHES = 50_000
"""A flush after so many batches also writes indexes and producer state: recovery begins there."""

RELATIVE_OFFSET_MAX = 2**31 - 1
"""Offsets of a segment lie within this distance of its base (index entries hold 32 bits)."""

INDEX_INTERVAL_BYTES_REBUILT = 4_096
"""Distance of entries in an index that is rebuilt because its file was damaged."""
