"""Random histories against a model: whatever happens, the final map is the same."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.log.cleaner_filter import MAP_ENTRY_BYTES
from penstock.wire.records import Compression, ControlType, Record, control_type

KEYS = st.integers(0, 12).map(lambda n: b"k%d" % n * (1 + n % 4 * 3))
RECORD = st.builds(
    Record,
    st.just(0),
    st.integers(1_000, 9_000_000),
    KEYS,
    st.none() | st.binary(max_size=30),
    st.sampled_from([(), (("h", b"x"), ("n", None))]),
)
BATCH = st.tuples(st.lists(RECORD, min_size=1, max_size=8), st.sampled_from(Compression))
ROUND = st.tuples(
    st.lists(BATCH, min_size=1, max_size=8),
    st.integers(0, 3),
    st.integers(4, 40),
    st.integers(0, 100_000_000),
)


@settings(max_examples=60, deadline=None)
@given(st.lists(ROUND, min_size=1, max_size=4), st.lists(st.booleans(), min_size=4, max_size=4))
def test_cleaning_never_changes_the_final_map(
    compacted_log: Any, rounds: list[Any], encrypted: list[bool]
) -> None:
    """Whether it is encrypted, or not any more, or only now."""
    with tempfile.TemporaryDirectory() as directory:
        log = compacted_log(Path(directory), index_interval_bytes=64)
        written: dict[int, Record] = {}
        for (batches, roll_every, map_entries, passed_ms), key in zip(
            rounds, encrypted, strict=False
        ):
            log.encrypt("orders" if key else "")
            log.now_ms += passed_ms
            for i, (records, kind) in enumerate(batches):
                first = log.append(records, compression=kind)
                written |= {first + j: r._replace(offset=first + j) for j, r in enumerate(records)}
                if roll_every and i % roll_every == 0:
                    log.log.roll()
            log.clean(dedupe_buffer_bytes=MAP_ENTRY_BYTES * map_entries)
            check(log, written)
        log.reload()
        check(log, written)


OPERATION = st.tuples(
    st.sampled_from(["plain", "data", "data", "commit", "abort", "roll"]),
    st.integers(1, 3),
    KEYS,
    st.none() | st.binary(max_size=8),
)


@settings(max_examples=80, deadline=None)
@given(
    st.lists(st.tuples(st.lists(OPERATION, max_size=12), st.booleans()), min_size=1, max_size=4),
    st.integers(0, 100_000_000),
)
def test_readers_of_committed_data_see_the_same_map(
    compacted_log: Any, rounds: list[Any], passed_ms: int
) -> None:
    with tempfile.TemporaryDirectory() as directory:
        log = compacted_log(Path(directory))
        decided: dict[int, Record] = {}
        open_txns: dict[int, dict[int, Record]] = {}
        sequences: dict[int, int] = {}
        for operations, forget_producers in rounds:
            log.now_ms += passed_ms
            for kind, producer, key, value in operations:
                record = Record(0, log.now_ms, key, value)
                if kind == "plain":
                    offset = log.append([record])
                    decided[offset] = record._replace(offset=offset)
                elif kind == "data":
                    sequence = sequences.get(producer, 0)
                    sequences[producer] = sequence + 1
                    offset = log.append(
                        [record],
                        producer_id=producer,
                        producer_epoch=0,
                        base_sequence=sequence,
                        transactional=True,
                    )
                    own = open_txns.setdefault(producer, {})
                    own[offset] = record._replace(offset=offset)
                elif kind == "roll":
                    if log.log.segments.active.size:
                        log.log.roll()
                elif producer in open_txns:
                    written = open_txns.pop(producer)
                    if kind == "commit":
                        decided |= written
                    log.end(producer, commit=kind == "commit")
            log.clean([] if forget_producers else None)
            stable = log.log.last_stable_offset
            expected = [decided[o] for o in sorted(decided) if o < stable]
            assert final_map(committed(log, stable)) == final_map(expected)


def committed(log: Any, stable: int) -> list[Record]:
    """What a consumer with isolation.level=read_committed gets."""
    upcoming = sorted(log.log.aborted_transactions(0, stable), key=lambda txn: txn.first_offset)
    aborted: set[int] = set()
    found: list[Record] = []
    for header, records in log.batches():
        while upcoming and upcoming[0].first_offset <= header.last_offset:
            aborted.add(upcoming.pop(0).producer_id)
        if header.is_control:
            if records and control_type(records[0]) is ControlType.ABORT:
                aborted.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in aborted):
            found += [r for r in records if r.offset < stable]
    return found


def check(log: Any, written: dict[int, Record]) -> None:
    found = log.records()
    offsets = [r.offset for r in found]
    assert offsets == sorted(set(offsets)), "order is kept, nothing is doubled"
    assert all(r == written[r.offset] for r in found), "what stays is unchanged"
    assert final_map(found) == final_map(written.values())
    assert log.log.log_end_offset == max(written) + 1
    clean_keys = [r.key for r in found if r.offset < log.checkpoint]
    assert len(clean_keys) == len(set(clean_keys)), "one record per key in the clean section"
    latest = {r.key: r.offset for r in written.values()}
    for key, offset in latest.items():
        if written[offset].value is not None:
            assert offset in offsets, f"the latest value of {key!r} is gone"
    dirty = [o for o in written if o >= log.checkpoint]
    assert [o for o in offsets if o >= log.checkpoint] == dirty
    for offset in offsets[::3]:
        data = log.log.read(offset, 1, up_to_offset=log.log.log_end_offset).read()
        assert int.from_bytes(data[:8], "big") <= offset


def final_map(records: Any) -> dict[bytes | None, bytes]:
    final: dict[bytes | None, bytes] = {}
    for record in records:
        if record.value is None:
            final.pop(record.key, None)
        else:
            final[record.key] = record.value
    return final
