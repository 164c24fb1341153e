"""What a reader of committed records finds in a partition of a node in the test's process."""

from __future__ import annotations

from penstock.partitions.partition import Partition
from penstock.serving.share_batches import aborted_ranges, batches_in
from penstock.wire.records import Record, parse_header, read_records

READ_BYTES_MAX = 64 << 20


def committed_records(partition: Partition) -> list[Record]:
    log, found, offset = partition.log, [], partition.log.log_start_offset
    end = partition.last_stable_offset
    aborted = log.aborted_transactions(offset, end)
    while offset < end:
        part = log.read(offset, READ_BYTES_MAX, up_to_offset=end, min_one=True)
        assert part is not None
        data = part.read()
        batches = batches_in(data)
        hidden = set(aborted_ranges(data, batches, aborted))
        begin = 0
        for bounds, stop in zip(batches.offsets, batches.ends, strict=True):
            if not parse_header(data, begin).is_control and bounds not in hidden:
                found += read_records(memoryview(data)[begin:stop])
            begin, offset = stop, bounds[1] + 1
    return found


def committed_values(partition: Partition) -> list[bytes | None]:
    return [record.value for record in committed_records(partition)]
