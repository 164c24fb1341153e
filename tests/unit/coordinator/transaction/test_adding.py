"""AddPartitionsToTxn and AddOffsetsToTxn: adding, verifying, and who is refused."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.base.errors import ErrorCode
from penstock.base.ids import TopicPartition
from penstock.coordinator.transaction import (
    offsets_as_partitions,
    partitions_as_offsets,
    refuse,
)
from penstock.coordinator.transaction.metadata import EPOCH_MAX
from penstock.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from penstock.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from unit.coordinator.transaction.rig import Rig, add_request, partition

NONE = ErrorCode.NONE
MAPPING = ErrorCode.INVALID_PRODUCER_ID_MAPPING
CONCURRENT = ErrorCode.CONCURRENT_TRANSACTIONS
FENCED = ErrorCode.PRODUCER_FENCED
ABORTABLE = ErrorCode.TRANSACTION_ABORTABLE


@pytest.mark.parametrize("version", range(6))
def test_partitions_are_added(version: int) -> None:
    rig = Rig()
    producer = rig.started()
    rig.now = 500
    assert rig.add(producer, "a-0", "b-2", version=version) == [NONE, NONE]
    found = rig.shard.transactions["t"]
    assert list(found.partitions) == [partition("a-0"), partition("b-2")]
    assert (rig.state, found.start_ms) == ("Ongoing", 500)
    assert found.client_version == (2 if version >= 4 else 0)
    assert rig.timers == {("t", "timeout"): 60_500}


def test_the_clock_of_a_transaction_is_not_set_anew() -> None:
    rig = Rig()
    producer = rig.opened()
    rig.now = 500
    rig.add(producer, "b-0")
    assert rig.shard.transactions["t"].start_ms == 0
    assert rig.timers == {("t", "timeout"): 60_000}


def test_what_is_in_already_is_not_written_again() -> None:
    rig = Rig()
    producer = rig.opened("a-0", "a-1")
    written = len(rig.log)
    assert rig.add(producer, "a-1") == [NONE]
    assert len(rig.log) == written


@pytest.mark.parametrize(
    ("version", "code"),
    [*((v, ErrorCode.INVALID_PRODUCER_EPOCH) for v in (0, 1)), *((v, FENCED) for v in range(2, 6))],
)
def test_another_epoch(version: int, code: ErrorCode) -> None:
    rig = Rig()
    old = rig.started()
    rig.started()
    assert rig.add(old, "a-0", "a-1", version=version) == [code, code]
    assert rig.add((old[0], 7), "a-0", version=version) == [code]


@pytest.mark.parametrize("version", [3, 5])
def test_ids_that_are_not_known(version: int) -> None:
    rig = Rig()
    producer = rig.started()
    assert rig.add(producer, "a-0", id_="other", version=version) == [MAPPING]
    assert rig.add((producer[0] + 1, 0), "a-0", version=version) == [MAPPING]
    assert rig.add(producer, "a-0", id_="", version=version) == [ErrorCode.INVALID_REQUEST]


def test_an_epoch_that_nobody_was_given() -> None:
    rig = Rig(transaction_version=1)
    made_up = rig.fenced_at_the_last_epoch()
    assert made_up[1] == EPOCH_MAX
    assert rig.add(made_up, "a-0") == [FENCED]


def test_while_the_last_transaction_is_being_ended() -> None:
    rig = Rig()
    producer = rig.opened()
    _, *after = rig.end(producer)
    for who in (producer, (after[0], after[1]), (producer[0] + 9, 0)):
        assert rig.add(who, "b-0", version=4) == [CONCURRENT]
    rig.write_markers()
    assert rig.add((after[0], after[1]), "b-0", version=4) == [NONE]
    assert list(rig.shard.transactions["t"].partitions) == [partition("b-0")]


def test_verifying() -> None:
    rig = Rig()
    producer = rig.opened("a-0", "b-0")
    assert rig.verify(producer, "a-0", "a-1", "b-0") == [NONE, ABORTABLE, NONE]
    assert rig.verify((producer[0], 3), "a-0") == [FENCED]
    assert rig.verify((producer[0] + 1, 0), "a-0") == [MAPPING]
    assert rig.verify(producer, "a-0", id_="other") == [MAPPING]
    assert rig.verify(producer, "a-0", id_="") == [ErrorCode.INVALID_REQUEST]
    rig.end(producer, version=3)
    assert rig.verify(producer, "a-0") == [CONCURRENT]
    assert rig.verify((producer[0], 3), "a-0") == [FENCED]
    rig.write_markers()
    assert rig.verify(producer, "a-0") == [ABORTABLE]


def test_verifying_changes_nothing() -> None:
    rig = Rig()
    producer = rig.started()
    written = len(rig.log)
    assert rig.verify(producer, "a-0") == [ABORTABLE]
    assert rig.state == "Empty"
    assert len(rig.log) == written


def test_brokers_ask_for_several_transactions() -> None:
    rig = Rig()
    first, second = rig.started("x"), rig.opened("a-0", id_="y")
    topics = [AddPartitionsToTxnTopic(name="a", partitions=[0, 1])]
    request = add_request(
        5,
        AddPartitionsToTxnTransaction(
            transactional_id="x", producer_id=first[0], producer_epoch=0, topics=topics
        ),
        AddPartitionsToTxnTransaction(
            transactional_id="y",
            producer_id=second[0],
            producer_epoch=0,
            verify_only=True,
            topics=topics,
        ),
        AddPartitionsToTxnTransaction(transactional_id="z", topics=topics),
    )
    answer, effects = rig.send(request, 5)
    assert {
        one.transactional_id: [
            result.partition_error_code
            for topic in one.topic_results
            for result in topic.results_by_partition
        ]
        for one in answer.results_by_transaction
    } == {"x": [NONE, NONE], "y": [NONE, ABORTABLE], "z": [MAPPING, MAPPING]}
    assert len(effects.records) == 1


OFFSETS = TopicPartition("__consumer_offsets", 7)


@pytest.mark.parametrize("version", range(5))
def test_offsets_are_a_partition(version: int) -> None:
    rig = Rig()
    producer_id, epoch = rig.started()
    request = AddOffsetsToTxnRequest(
        transactional_id="t", producer_id=producer_id, producer_epoch=epoch, group_id="g"
    )
    answer = rig.ask(offsets_as_partitions(request, OFFSETS), min(version, 3))
    assert partitions_as_offsets(answer).error_code == NONE
    assert list(rig.shard.transactions["t"].partitions) == [OFFSETS]
    request.producer_epoch = 5
    answer = rig.ask(offsets_as_partitions(request, OFFSETS), min(version, 3))
    fenced = ErrorCode.INVALID_PRODUCER_EPOCH if version < 2 else FENCED
    assert partitions_as_offsets(answer).error_code == fenced


@pytest.mark.parametrize("version", [3, 5])
def test_a_refusal_reaches_every_partition(version: int) -> None:
    topics = [AddPartitionsToTxnTopic(name="a", partitions=[0, 1])]
    wanted = AddPartitionsToTxnTransaction(transactional_id="t", topics=topics)
    answer: Any = refuse(add_request(version, wanted), version, ErrorCode.NOT_COORDINATOR)
    answer.encode(version)
    results = (
        answer.results_by_transaction[0].topic_results
        if version >= 4
        else answer.results_by_topic_v3_and_below
    )
    assert [r.partition_error_code for r in results[0].results_by_partition] == [16, 16]
