"""What the arithmetic of `penstock plan` rests on: figures that were measured, and rules.

A measured figure names the row it comes from, in docs/performance-tables.md where nothing else is
said; a test holds the two together. Processor times are those of one core of the machines of that
page, for the compiled package: half of that speed is twice the nodes.

Costs of a request and of its bytes were taken apart from rows with small and with large requests.
Together they give back the rows that they do not come from: 100 B in 16 KB batches come to 6.0 M
messages per core-second (5.7 M were measured), 10 KB one by one to 23.8 s per million (22.7).
"""

from __future__ import annotations

from typing import Final, NamedTuple

KIB: Final = 1024
MIB: Final = 1024 * KIB
GIB: Final = 1024 * MIB


class Figure(NamedTuple):
    """A number with its unit, and where it comes from."""

    value: float
    unit: str
    source: str


PUBLISH_REQUEST_S: Final = Figure(
    18.2e-6,
    "s of a core for each request of a producer",
    "publish 100 B, one per request, 64 connections, acks=1, server's CPU: 18.2 s per million",
)
PUBLISH_BYTE_S: Final = Figure(
    0.556e-9,
    "s of a core for each byte of a producer",
    "publish 1 KB, 256 KiB batches, 8 connections, acks=1, server's CPU: 0.556 s per million",
)
COPY_REQUEST_S: Final = Figure(
    26.7e-6,
    "s of a core for each request and further copy, leader and follower together",
    "three nodes: publish 100 B, one per request, server's CPU: 71.6 s per million, less 18.2, for"
    " two copies",
)
COPY_BYTE_S: Final = Figure(
    3.87e-9,
    "s of a core for each byte and further copy, leader and follower together",
    "three nodes: publish 100 B, 256 KiB batches, server's CPU: 0.837 s per million, less 0.0630,"
    " for two copies",
)
FETCH_ANSWER_S: Final = Figure(
    75e-6,
    "s of a core for each answer to a consumer",
    "fetch from the page cache: 0.71 GB/s in answers of 64 KB, 2.92 GB/s in those of 1 MB",
)
FETCH_BYTE_S: Final = Figure(
    0.288e-9,
    "s of a core for each byte to a consumer that keeps up",
    "consume 1 KB from cache, server's CPU: 0.288 s per million",
)
NODE_BYTES: Final = Figure(42.8e6, "bytes of memory of a node", "memory when idle: 42.8 MB")
PARTITION_BYTES: Final = Figure(
    6.8e3, "bytes of memory for each replica", "memory, MB (about 6.8 KB each)"
)
CONNECTION_BYTES: Final = Figure(
    3.2e3,
    "bytes of memory for each connection",
    "memory with 10,000 idle connections (3.2 KB each)",
)
REPLICAS_PER_NODE_MAX: Final = Figure(
    10_000,
    "replicas that a node has at most",
    "after kill -9 a node with 10,000 partitions serves after 0.8 s and has checked all after 10 s",
)
MEASURED: Final = (
    PUBLISH_REQUEST_S,
    PUBLISH_BYTE_S,
    COPY_REQUEST_S,
    COPY_BYTE_S,
    FETCH_ANSWER_S,
    FETCH_BYTE_S,
    NODE_BYTES,
    PARTITION_BYTES,
    CONNECTION_BYTES,
    REPLICAS_PER_NODE_MAX,
)

PROCESSOR_USE_MAX: Final = 0.6
NETWORK_USE_MAX: Final = 0.6
"""How busy a node may be at the peak; queues grow quickly above that."""
RECORD_BYTES: Final = 10
BATCH_BYTES: Final = 61
"""What Kafka's format puts around each record (about) and each batch."""
SEGMENT_BYTES: Final = GIB
SEGMENT_S: Final = 7 * 86_400
"""`log.segment.bytes` and `log.roll.hours`: retention removes whole segments, so each partition has
up to one more than it should.
"""
REQUEST_BYTES_MAX: Final = 100 * MIB
"""`socket.request.max.bytes`."""
QUEUED_BYTES_MAX: Final = 256 * MIB
"""`queued.max.request.bytes`: what requests in flight may take of a node's memory."""
CACHED_S: Final = 30
"""What was written so recently should be in the page cache, for consumers to find it there."""
