"""Between a coordinator's shard and its partition's log: effects as a batch, batches replayed.

Records that are part of a producer's transaction, and the marker that ends it, are batches of that
producer without sequence numbers. Owned by the event loop's thread; a worker thread reads.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from penstock.base.ids import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from penstock.coordinator.effects import Effects, EndTxnMarker, ProducerIdentity
from penstock.log.log import Batch
from penstock.wire import records as wire
from penstock.wire.records import ControlType, Record, control_type, parse_header, read_records

if TYPE_CHECKING:
    from penstock.coordinator.shard_protocol import Shard
    from penstock.log.log import Log
    from penstock.wire.records import BatchHeader

Placed: TypeAlias = Callable[[Any, bytes, bytes | None, int], None]
"""Called with a shard, the key and the value of a record, and the offset at which it stands."""
LOAD_READ_BYTES: Final = 1024 * 1024
"""How much of the partition one step of a replay reads; requests are served in between."""


def batch_of(effects: Effects, now_ms: int) -> Batch:
    """The one batch that `effects` asks to be appended."""
    if effects.marker is not None:
        return marker_batch(effects.marker, now_ms)
    producer = effects.producer or ProducerIdentity(NO_PRODUCER_ID, NO_PRODUCER_EPOCH)
    data = wire.build_batch(
        [Record(0, now_ms, key, value, ()) for key, value in effects.records],
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        transactional=effects.producer is not None,
    )
    return Batch(parse_header(data), data)


def marker_batch(marker: EndTxnMarker, now_ms: int) -> Batch:
    """The control batch that ends a transaction in a partition."""
    data = wire.build_end_txn_marker(
        wire.EndTxnMarker(marker.commit, marker.coordinator_epoch),
        producer_id=marker.producer_id,
        producer_epoch=marker.producer_epoch,
        timestamp=now_ms,
    )
    return Batch(parse_header(data), data)


async def replay(log: Log, shard: Shard, placed: Placed | None = None) -> None:
    """Replay everything in `log` to `shard`, in order, a part at a time."""
    loop = asyncio.get_running_loop()
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        offset = max(offset, log.log_start_offset)
        found = log.read(offset, LOAD_READ_BYTES, up_to_offset=log.log_end_offset)
        if found is None:
            return
        data = memoryview(await loop.run_in_executor(None, found.read))
        position = 0
        while position < len(data):
            header = parse_header(data, position)
            batch = data[position : position + header.size]
            _replay_batch(shard, header, batch, offset, placed)
            position += header.size
            offset = header.last_offset + 1


def _replay_batch(
    shard: Shard, header: BatchHeader, data: memoryview, from_offset: int, placed: Placed | None
) -> None:
    producer_id = header.producer_id if header.is_transactional else None
    for record in read_records(data):
        if record.offset < from_offset:
            continue
        if not header.is_control:
            if record.key is not None:
                shard.replay(record.key, record.value, record.timestamp, producer_id)
                if placed is not None:
                    placed(shard, record.key, record.value, record.offset)
        elif (kind := control_type(record)) in (ControlType.COMMIT, ControlType.ABORT):
            shard.replay_marker(header.producer_id, kind is ControlType.COMMIT)
