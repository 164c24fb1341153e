"""The shard: timeouts, expiry, what an operator is shown, loading, and the table of states."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.base.errors import CorruptRecord, ErrorCode, InvariantBroken
from penstock.coordinator.transaction import refuse
from penstock.coordinator.transaction import shard as shard_module
from penstock.coordinator.transaction.metadata import (
    EPOCH_MAX,
    LAST_EPOCH_OF_CLIENTS,
    TransactionMetadata,
)
from penstock.coordinator.transaction.refusals import REFUSALS
from penstock.coordinator.transaction.shard import _HANDLERS
from penstock.coordinator.transaction.states import MOVES, STATUS, State
from penstock.wire.messages.describe_transactions import DescribeTransactionsRequest
from penstock.wire.messages.list_transactions import ListTransactionsRequest
from unit.coordinator.transaction.rig import TIMEOUT_MS, Rig

NONE = ErrorCode.NONE


def test_the_table_of_states_is_whole() -> None:
    assert set(MOVES) == set(STATUS) == set(State)
    assert sorted(STATUS.values()) == list(range(8))
    with pytest.raises(InvariantBroken, match="'t' goes from Empty to CompleteAbort"):
        TransactionMetadata("t", 1).complete(0)


def test_every_request_can_be_refused() -> None:
    assert set(REFUSALS) == set(_HANDLERS)


# -- timeouts ----------------------------------------------------------------------------------


@pytest.mark.parametrize("transaction_version", [0, 2])
def test_a_transaction_that_takes_too_long_is_aborted(transaction_version: int) -> None:
    rig = Rig(transaction_version=transaction_version)
    producer = rig.opened()
    rig.now = TIMEOUT_MS
    rig.fire(("t", "timeout"))
    assert rig.state == "PrepareAbort"
    assert (rig.actions[0].producer_epoch, rig.actions[0].commit) == (1, False)
    rig.write_markers()
    end_version = 5 if transaction_version == 2 else 4
    code, _, _ = rig.end(producer, version=end_version)
    if transaction_version == 2:
        assert code is ErrorCode.INVALID_TXN_STATE
    else:
        assert code is ErrorCode.PRODUCER_FENCED
    assert rig.add(producer, "a-0") == [ErrorCode.PRODUCER_FENCED]


def test_a_timer_that_comes_too_early_or_too_late() -> None:
    rig = Rig()
    producer = rig.opened()
    rig.now = TIMEOUT_MS - 1
    assert rig.fire(("t", "timeout")).timers
    assert rig.state == "Ongoing"
    rig.end(producer)
    assert not rig.shard.on_timer(("t", "timeout"), TIMEOUT_MS)
    assert not rig.shard.on_timer(("other", "timeout"), TIMEOUT_MS)


def test_a_timeout_that_needs_a_producer_id_is_tried_again() -> None:
    rig = Rig()
    rig.started()
    rig.add(rig.set_epoch(LAST_EPOCH_OF_CLIENTS), "a-0")
    rig.out_of_ids = True
    rig.now = TIMEOUT_MS
    rig.fire(("t", "timeout"))
    assert rig.state == "Ongoing"
    assert rig.timers == {("t", "timeout"): TIMEOUT_MS + 10_000}
    rig.out_of_ids = False
    rig.now += 10_000
    rig.fire(("t", "timeout"))
    assert rig.state == "PrepareAbort"


def test_a_foreign_log_with_a_transaction_of_the_last_epoch() -> None:
    for transaction_version in (0, 2):
        rig = Rig(transaction_version=transaction_version)
        rig.started()
        rig.add(rig.set_epoch(LAST_EPOCH_OF_CLIENTS), "a-0")
        rig.set_epoch(EPOCH_MAX)
        rig.now = TIMEOUT_MS
        rig.fire(("t", "timeout"))
        rig.write_markers()
        assert rig.state == "CompleteAbort"
        assert rig.init()[0] is NONE


def test_time_goes_on_after_a_fail_over() -> None:
    rig = Rig()
    rig.now = 300
    rig.opened()
    rig.now = 1_000
    rig.crash()
    assert rig.timers == {("t", "timeout"): 300 + TIMEOUT_MS}


def test_ends_are_counted() -> None:
    rig = Rig()
    counts = rig.shard.environment.counts
    rig.end(rig.opened(id_="c"), id_="c")
    rig.end(rig.opened(id_="a"), id_="a", commit=False)
    rig.opened()
    rig.now = TIMEOUT_MS
    rig.fire(("t", "timeout"))
    assert (counts.committed, counts.aborted, counts.timed_out) == (0, 0, 1)
    rig.write_markers()
    assert (counts.committed, counts.aborted, counts.timed_out) == (1, 2, 1)


# -- expiry ------------------------------------------------------------------------------------


def test_transactional_ids_expire() -> None:
    rig = Rig(transactional_id_expiration_ms=1_000)
    rig.opened(id_="open")
    rig.started("idle")
    ended = rig.opened(id_="ended")
    rig.now = 500
    rig.end(ended, id_="ended")
    rig.now = 999
    assert not rig.expire()
    rig.now = 1_000
    [tombstone] = rig.expire().records
    assert tombstone.value is None
    assert set(rig.shard.transactions) == {"open", "ended"}
    rig.write_markers()
    rig.now = 1_999
    assert not rig.expire()
    rig.now = 2_000
    rig.expire()
    assert set(rig.shard.transactions) == {"open"}
    assert rig.add(ended, "a-0", id_="ended") == [ErrorCode.INVALID_PRODUCER_ID_MAPPING]
    # A new producer of the old transactional id is another producer.
    assert rig.init("ended")[1] != ended[0]


def test_a_round_of_expiry_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shard_module, "EXPIRED_RECORDS_MAX", 2)
    rig = Rig(transactional_id_expiration_ms=1)
    for name in "abc":
        rig.started(name)
    rig.now = 1
    assert [len(rig.expire().records) for _ in range(3)] == [2, 1, 0]


# -- what an operator is shown -----------------------------------------------------------------


def test_describe() -> None:
    rig = Rig()
    rig.now = 40
    producer_id, _ = rig.opened("a-0", "b-1", "a-2")
    wanted = DescribeTransactionsRequest(transactional_ids=["t", "other", ""])
    known, other, empty = rig.ask(wanted, 0).transaction_states
    assert known.error_code == NONE
    assert (known.transactional_id, known.transaction_state) == ("t", "Ongoing")
    assert (known.producer_id, known.producer_epoch) == (producer_id, 0)
    assert (known.transaction_start_time_ms, known.transaction_timeout_ms) == (40, TIMEOUT_MS)
    assert {t.topic: t.partitions for t in known.topics} == {"a": [0, 2], "b": [1]}
    assert other.transactional_id == "other"
    assert other.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    assert empty.error_code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ({}, {"idle", "open 1", "ending"}),
        ({"state_filters": ["Ongoing"]}, {"open 1"}),
        ({"state_filters": ["Ongoing", "PrepareCommit", "Nonsense"]}, {"open 1", "ending"}),
        ({"state_filters": ["Nonsense"]}, set()),
        ({"producer_id_filters": [1000, 1002]}, {"idle", "ending"}),
        ({"producer_id_filters": [1000], "state_filters": ["Ongoing"]}, set()),
        ({"duration_filter": 49}, {"idle", "open 1", "ending"}),
        ({"duration_filter": 50}, {"idle", "ending"}),
        ({"transactional_id_pattern": "open.*"}, {"open 1"}),
        ({"transactional_id_pattern": r".*\d"}, {"open 1"}),
        ({"transactional_id_pattern": "open"}, set()),
        ({"transactional_id_pattern": ""}, {"idle", "open 1", "ending"}),
    ],
)
def test_list(filters: dict[str, Any], expected: set[str]) -> None:
    rig = Rig()
    rig.now = 100
    rig.started("idle")
    rig.now = 150
    rig.opened(id_="open 1")
    rig.now = 120
    ending = rig.opened(id_="ending")
    rig.end(ending, id_="ending")
    rig.now = 200
    answer = rig.ask(ListTransactionsRequest(**filters), 2)
    assert answer.error_code == NONE
    assert {one.transactional_id for one in answer.transaction_states} == expected
    unknown = [name for name in filters.get("state_filters", []) if name == "Nonsense"]
    assert answer.unknown_state_filters == unknown


def test_a_pattern_that_is_none() -> None:
    answer = Rig().ask(ListTransactionsRequest(transactional_id_pattern="(a"), 2)
    assert answer.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION


def test_refusals() -> None:
    code = ErrorCode.NOT_COORDINATOR
    answer: Any = refuse(DescribeTransactionsRequest(transactional_ids=["t", "u"]), 0, code)
    assert [s.error_code for s in answer.transaction_states] == [code, code]
    answer = refuse(ListTransactionsRequest(), 2, code)
    assert answer.error_code == code


# -- loading -----------------------------------------------------------------------------------


def test_records_of_others_are_left_alone() -> None:
    rig = Rig()
    rig.shard.replay(b"\x00\x05x", b"\x00\x00", 0, None)
    assert not rig.shard.transactions


def test_what_cannot_be_read() -> None:
    with pytest.raises(CorruptRecord):
        Rig().shard.replay(b"\x00\x00\x00\x01t", b"\x00\x09", 0, None)
    with pytest.raises(InvariantBroken):
        Rig().shard.replay_marker(1, True)


def test_nobody_waits_inside() -> None:
    rig = Rig()
    rig.opened()
    assert rig.shard.unload() == []


def test_a_decided_transaction_without_partitions_is_over_once_loaded() -> None:
    rig = Rig()
    producer = rig.started()
    rig.end(producer, commit=False)
    rig.log.pop()  # the completion is lost
    rig.shard = rig.replayed()
    assert rig.state == "PrepareAbort"
    rig.crash()
    assert rig.state == "CompleteAbort"
