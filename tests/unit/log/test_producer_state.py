"""Idempotent and transactional producers, judged as Kafka judges them."""

from __future__ import annotations

from struct import pack
from typing import Any

import pytest
from crc32c import crc32c

from penstock.base.errors import ApiError, CorruptRecord, ErrorCode
from penstock.base.ids import TopicPartition
from penstock.log.closing import close_logs
from penstock.log.log import Batch
from penstock.log.producer_snapshot import (
    BatchMetadata,
    ProducerStateEntry,
    read_snapshot,
    write_snapshot,
)
from penstock.log.producer_state import AppendOrigin
from penstock.log.retention import delete_old_segments
from penstock.wire.records import Record, build_batch, parse_header

SEQUENCE_MAX = 2**31 - 1


def refused(code: ErrorCode, call: Any, *args: Any, **kw: Any) -> None:
    with pytest.raises(ApiError) as e:
        call(*args, **kw)
    assert e.value.code is code


def test_sequences_in_order_are_taken_and_a_gap_is_refused(box: Any) -> None:
    assert box.send(7, 0, 3).first_offset == 0
    assert box.send(7, 3, 2).first_offset == 3
    refused(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, box.send, 7, 6)
    assert box.log.log_end_offset == 5
    assert box.send(7, 5).first_offset == 5


def test_the_last_five_batches_are_recognised_and_answered_with_their_first_offset(
    box: Any,
) -> None:
    for i in range(7):
        box.send(7, 2 * i, 2)
    for i in range(2, 7):
        again = box.send(7, 2 * i, 2)
        assert again.duplicate
        assert (again.first_offset, again.last_offset) == (2 * i, 2 * i + 1)
    refused(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, box.send, 7, 2, 2)
    refused(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, box.send, 7, 12, 1)
    assert box.log.log_end_offset == 14


def test_a_producer_without_state_may_begin_anywhere(box: Any) -> None:
    assert box.send(7, 41).first_offset == 0
    refused(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, box.send, 7, 43)
    assert box.send(7, 42).first_offset == 1


def test_sequences_wrap_at_the_largest_int(box: Any) -> None:
    box.send(7, SEQUENCE_MAX - 1, 2)
    assert box.send(7, 0, 2).first_offset == 2
    again = box.send(7, SEQUENCE_MAX - 1, 2)
    assert (again.duplicate, again.first_offset) == (True, 0)


def test_a_batch_may_wrap_in_its_middle(box: Any) -> None:
    box.send(7, SEQUENCE_MAX - 1, 4)
    assert box.send(7, 2).first_offset == 4
    again = box.send(7, SEQUENCE_MAX - 1, 4)
    assert (again.duplicate, again.first_offset) == (True, 0)
    box.reopen_clean()
    assert box.send(7, 3).first_offset == 5


def test_a_new_epoch_begins_at_zero_and_an_old_one_is_refused(box: Any) -> None:
    box.send(7, 0, 3, epoch=4)
    refused(ErrorCode.INVALID_PRODUCER_EPOCH, box.send, 7, 3, epoch=3)
    refused(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, box.send, 7, 3, epoch=5)
    assert box.send(7, 0, epoch=5).first_offset == 3
    refused(ErrorCode.INVALID_PRODUCER_EPOCH, box.send, 7, 3, epoch=4)


def test_producers_do_not_touch_each_other(box: Any) -> None:
    box.send(1, 0)
    box.send(2, 0)
    box.send(1, 1)
    assert not box.send(2, 1).duplicate
    assert box.log.producers.producers[1].last_sequence == 1


def test_later_batches_of_the_same_turn_see_the_staged_ones(box: Any) -> None:
    def stage(sequence: int) -> Any:
        data = build_batch(
            [Record(0, 1, None, b"v")], producer_id=7, producer_epoch=0, base_sequence=sequence
        )
        return box.log.stage([Batch(parse_header(data), data)], 0, 1)

    assert stage(0).first_offset == 0
    assert stage(1).first_offset == 1
    again = stage(0)
    assert (again.duplicate, again.first_offset) == (True, 0)
    refused(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, stage, 3)
    assert box.log.log_end_offset == 0
    box.log.write_staged()
    assert sorted(box.values()) == [0, 1]
    assert stage(2).first_offset == 2


def test_a_refused_call_leaves_nothing_behind(box: Any) -> None:
    def batch(sequence: int) -> Batch:
        data = build_batch(
            [Record(0, 1, None, b"v")], producer_id=7, producer_epoch=0, base_sequence=sequence
        )
        return Batch(parse_header(data), data)

    refused(
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, box.log.stage, [batch(0), batch(1), batch(5)], 0, 1
    )
    box.log.write_staged()
    assert box.log.log_end_offset == 0
    assert box.log.producers.producers == {}
    assert box.log.append([batch(0), batch(1)], 0, 1).last_offset == 1


def test_state_survives_clean_stops_and_crashes(box: Any) -> None:
    for i in range(6):
        box.send(7, i)
    box.reopen_clean()
    assert box.names(".snapshot") == [f"{6:020d}.snapshot"]
    again = box.send(7, 5)
    assert (again.duplicate, again.first_offset) == (True, 5)
    box.send(7, 6)
    box.crash()
    again = box.send(7, 6)
    assert (again.duplicate, again.first_offset) == (True, 6)
    # All of the last five are known again, not only the very last.
    assert box.send(7, 2).duplicate
    refused(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, box.send, 7, 9)


def test_a_damaged_snapshot_is_replaced_by_reading_the_log(box: Any) -> None:
    box.send(7, 0, 3)
    assert close_logs([box.log])
    path = box.path(3, ".snapshot")
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    box.log = box.load(clean=True, recovery_point=3)
    assert box.send(7, 0, 3).duplicate
    refused(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, box.send, 7, 4)


def test_a_snapshot_taken_in_the_middle_of_a_write_holds_only_what_lies_before_it(
    new_box: Any,
) -> None:
    box = new_box(segment_bytes=2_000)
    for sequence in range(4):
        data = build_batch(
            [Record(0, 1, None, b"x" * 900)],
            producer_id=7,
            producer_epoch=0,
            base_sequence=sequence,
        )
        box.log.stage([Batch(parse_header(data), data)], 0, 1)
    box.log.write_staged()
    rolled_at = box.log.segments.active.base_offset
    assert rolled_at == 2
    (entry,) = read_snapshot(str(box.path(rolled_at, ".snapshot")))
    assert entry.last_sequence == 1


def test_idle_producers_are_forgotten_but_not_those_in_a_transaction(box: Any) -> None:
    expiration = box.log.producers.expiration_ms
    box.send(1, 0)
    box.send(2, 0, transactional=True)
    box.log.producers.remove_expired(1_000 + expiration - 1)
    assert set(box.log.producers.producers) == {1, 2}
    box.log.producers.remove_expired(1_000 + expiration)
    assert set(box.log.producers.producers) == {2}


def test_coordinators_need_no_sequence_numbers(box: Any) -> None:
    for _ in range(2):
        box.append(
            producer_id=7, producer_epoch=1, transactional=True, origin=AppendOrigin.COORDINATOR
        )
    refused(
        ErrorCode.INVALID_PRODUCER_EPOCH,
        box.append,
        producer_id=7,
        producer_epoch=0,
        transactional=True,
        origin=AppendOrigin.COORDINATOR,
    )


def test_the_last_stable_offset_waits_for_the_oldest_open_transaction(box: Any) -> None:
    log = box.log
    box.append()
    box.send(1, 0, transactional=True)
    box.send(2, 0, transactional=True)
    assert log.last_stable_offset == 1
    box.end_txn(2, commit=False)
    assert log.last_stable_offset == 1
    box.end_txn(1, commit=True)
    # Both are closed; they stay unstable until the markers are committed.
    assert log.last_stable_offset == 1
    log.update_high_watermark(4)
    assert log.last_stable_offset == 1
    log.update_high_watermark(5)
    assert log.last_stable_offset == 5


def test_the_last_stable_offset_is_not_below_the_start_of_the_log(box: Any) -> None:
    """A reader that is sent there would be out of range, and be sent there again."""
    box.send(1, 0, transactional=True)
    box.append()
    box.append()
    box.log.update_high_watermark(3)
    box.log.delete_records(2)
    assert box.log.last_stable_offset == 2
    box.end_txn(1, commit=True)
    box.log.update_high_watermark(4)
    assert box.log.last_stable_offset == 4


def test_aborted_transactions_are_found_by_the_range_they_overlap(new_box: Any) -> None:
    box = new_box(segment_bytes=400)
    box.send(1, 0, 2, transactional=True)
    box.append()
    box.end_txn(1, commit=False)
    for _ in range(5):
        box.append(b"x" * 100)
    box.send(1, 2, transactional=True)
    box.end_txn(1, commit=True)
    for log in (box.log, box.reopen_clean(), box.crash(recovery_point=0)):
        (txn,) = log.aborted_transactions(0, log.log_end_offset)
        assert (txn.producer_id, txn.first_offset, txn.last_offset) == (1, 0, 3)
        assert txn.last_stable_offset == 4
        assert log.aborted_transactions(3, 4) == [txn]
        assert log.aborted_transactions(4, log.log_end_offset) == []


def test_transactions_survive_a_crash_while_open(box: Any) -> None:
    box.send(1, 0, transactional=True)
    box.append()
    for start in (box.crash, box.reopen_clean):
        log = start()
        assert log.last_stable_offset == 0
        assert log.producers.ongoing == {0: 1}
    box.end_txn(1, commit=True)
    box.log.update_high_watermark(box.log.log_end_offset)
    assert box.log.last_stable_offset == 3


def test_a_batch_outside_an_open_transaction_is_refused(box: Any) -> None:
    box.send(1, 0, transactional=True)
    refused(ErrorCode.INVALID_TXN_STATE, box.send, 1, 1)


def test_an_old_coordinator_is_fenced(box: Any) -> None:
    box.send(1, 0, transactional=True)
    box.end_txn(1, commit=True, coordinator_epoch=5)
    box.send(1, 1, transactional=True)
    refused(
        ErrorCode.TRANSACTION_COORDINATOR_FENCED,
        box.end_txn,
        1,
        commit=True,
        coordinator_epoch=4,
    )
    assert box.log.producers.ongoing == {2: 1}


def test_a_marker_with_a_newer_epoch_fences_the_producer(box: Any) -> None:
    box.send(1, 0, transactional=True)
    box.end_txn(1, commit=False, epoch=1)
    refused(ErrorCode.INVALID_PRODUCER_EPOCH, box.send, 1, 1, transactional=True)
    assert not box.send(1, 0, epoch=1, transactional=True).duplicate


def test_truncation_brings_back_the_state_of_before(box: Any) -> None:
    box.send(1, 0)
    box.send(1, 1)
    box.send(2, 0, transactional=True)
    box.log.truncate_to(1)
    assert set(box.log.producers.producers) == {1}
    assert box.log.producers.ongoing == {}
    assert not box.send(1, 1).duplicate


def test_snapshots_go_with_their_segments(new_box: Any) -> None:
    box = new_box(segment_bytes=150, retention_bytes=0, file_delete_delay_ms=0)
    for i in range(6):
        box.send(7, i)
    assert len(box.log.segments) > 2
    assert len(box.names(".snapshot")) == len(box.log.segments) - 1
    delete_old_segments(box.log, box.clock.ms)
    box.remove_deleted(box.clock.ms)
    assert [s.base_offset for s in box.log.segments] == [6]
    assert box.names(".snapshot") == [f"{6:020d}.snapshot"]
    box.reopen_clean()
    assert box.send(7, 5).duplicate


BATCHES = tuple(BatchMetadata(3 * i, 3 * i + 2, 10 * i + 2, 2, 7) for i in range(5))


def test_a_snapshot_as_kafka_writes_it_is_read(tmp_path: Any) -> None:
    path = tmp_path / "0.snapshot"
    body = pack(">iqhiqiqiq", 1, 9, 1, 5, 50, 2, 1_000, 4, -1)
    path.write_bytes(pack(">hI", 1, crc32c(body)) + body)
    (entry,) = read_snapshot(str(path))
    assert entry == ProducerStateEntry(9, 1, 4, 1_000, -1, (BatchMetadata(3, 5, 50, 2, 1_000),))


@pytest.mark.parametrize("cut", [0, 1, 5, 9, 20, 100])
def test_a_snapshot_that_ends_too_early_is_refused(tmp_path: Any, cut: int) -> None:
    path = str(tmp_path / "0.snapshot")
    entries = [ProducerStateEntry(1, 2, 3, 4), ProducerStateEntry(5, 0, 0, 7, 9, BATCHES)]
    write_snapshot(path, entries, sync=False)
    assert read_snapshot(path) == entries
    with open(path, "r+b") as f:
        f.truncate(cut)
    with pytest.raises(CorruptRecord):
        read_snapshot(path)


def test_the_partition_is_named_where_it_helps(box: Any) -> None:
    assert box.log.topic_partition == TopicPartition("topic", 0)
    with pytest.raises(ApiError, match="sent sequence 9 after 0"):
        box.send(7, 0) and box.send(7, 9)
