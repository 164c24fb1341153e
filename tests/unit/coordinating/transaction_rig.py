"""What tests of transactions in a node send: a transactional producer, by hand."""

from __future__ import annotations

import asyncio
from typing import Any, NamedTuple

from penstock.base.errors import ErrorCode
from penstock.coordinating.shard_driver import ShardDriver
from penstock.coordinator.transaction import TransactionShard
from penstock.metadata.names import TRANSACTIONS_TOPIC
from penstock.metadata.records import PartitionChangeRecord
from penstock.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from penstock.wire.messages.describe_transactions import DescribeTransactionsRequest
from penstock.wire.messages.end_txn import EndTxnRequest
from penstock.wire.messages.find_coordinator import FindCoordinatorRequest
from penstock.wire.messages.init_producer_id import InitProducerIdRequest
from support.batches import batch
from support.calls import RawTopic
from unit.serving.rig import ANSWER_SECONDS_MAX, Peer, Rig, one, produce_request

FEW = {"transaction_state_log_num_partitions": "4", "offsets_topic_num_partitions": "4"}
PASSING = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
)
TRANSACTIONAL = 0x10
PRODUCE_VERSION = 11  # of transactions version 1: the client adds its partitions itself


class Identity(NamedTuple):
    producer_id: int
    epoch: int


async def begin(peer: Peer, id_: str = "x", *, timeout_ms: int = 60_000) -> Identity:
    """Find the coordinator and become the producer of a transactional id."""
    await peer.call(FindCoordinatorRequest(coordinator_keys=[id_], key_type=1), 6)
    request = InitProducerIdRequest(transactional_id=id_, transaction_timeout_ms=timeout_ms)
    async with asyncio.timeout(ANSWER_SECONDS_MAX):
        while (answer := await peer.call(request, 5)).error_code in PASSING:
            await asyncio.sleep(0.01)
    assert answer.error_code == 0
    return Identity(answer.producer_id, answer.producer_epoch)


def add_request(
    who: Identity, *topics: str, id_: str = "x", index: int = 0
) -> AddPartitionsToTxnRequest:
    """To put a partition of each topic into the transaction (versions 0 to 3)."""
    return AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=id_,
        v3_and_below_producer_id=who.producer_id,
        v3_and_below_producer_epoch=who.epoch,
        v3_and_below_topics=[AddPartitionsToTxnTopic(name=t, partitions=[index]) for t in topics],
    )


async def add(
    peer: Peer, who: Identity, *topics: str, id_: str = "x", version: int = 3, index: int = 0
) -> list[ErrorCode]:
    """Put a partition of each topic into the transaction; the codes in order."""
    request = add_request(who, *topics, id_=id_, index=index)
    async with asyncio.timeout(ANSWER_SECONDS_MAX):
        while True:
            answer = await peer.call(request, version)
            codes = [
                ErrorCode(partition.partition_error_code)
                for topic in answer.results_by_topic_v3_and_below
                for partition in topic.results_by_partition
            ]
            if codes[0] not in PASSING:
                return codes
            await asyncio.sleep(0.01)


async def write(
    peer: Peer,
    topic: RawTopic,
    who: Identity,
    sequence: int = 0,
    *,
    id_: str = "x",
    version: int = PRODUCE_VERSION,
) -> int:
    """Write one record in the transaction; the error code."""
    records = batch(
        [b"v"],
        attributes=TRANSACTIONAL,
        producer_id=who.producer_id,
        producer_epoch=who.epoch,
        base_sequence=sequence,
    )
    request = produce_request(topic, records, version)
    request.transactional_id = id_
    return int(one(await peer.call(request, version)).error_code)


async def open_transaction(
    peer: Peer, topic: RawTopic, *, id_: str = "x", timeout_ms: int = 60_000
) -> Identity:
    """A transaction with one record in partition 0 of `topic`."""
    who = await begin(peer, id_, timeout_ms=timeout_ms)
    assert await add(peer, who, topic.name, id_=id_) == [ErrorCode.NONE]
    assert await write(peer, topic, who, id_=id_) == 0
    return who


async def end(
    peer: Peer, who: Identity, *, commit: bool = True, id_: str = "x", version: int = 4
) -> int:
    request = EndTxnRequest(
        transactional_id=id_,
        producer_id=who.producer_id,
        producer_epoch=who.epoch,
        committed=commit,
    )
    return int((await peer.call(request, version)).error_code)


async def state(peer: Peer, id_: str = "x") -> Any:
    """What DescribeTransactions says, once the shard has been loaded."""
    async with asyncio.timeout(ANSWER_SECONDS_MAX):
        while True:
            request = DescribeTransactionsRequest(transactional_ids=[id_])
            [found] = (await peer.call(request, 0)).transaction_states
            if found.error_code not in PASSING:
                return found
            await asyncio.sleep(0.01)


async def state_becomes(peer: Peer, wanted: str, id_: str = "x") -> None:
    async with asyncio.timeout(ANSWER_SECONDS_MAX):
        while (await state(peer, id_)).transaction_state != wanted:
            await asyncio.sleep(0.01)


def driver_of(rig: Rig, id_: str = "x") -> ShardDriver[TransactionShard]:
    index = rig.broker.transactions.partition_of(id_)
    assert index is not None
    return rig.broker.transactions._drivers[index]


def shard_partition(rig: Rig, id_: str = "x") -> Any:
    index = rig.broker.transactions.partition_of(id_)
    assert index is not None
    return rig.broker.replicas.leader_of(TRANSACTIONS_TOPIC, index)


async def elect(rig: Rig, topic: str, index: int, leader: int) -> None:
    """Name the leader of a partition, which begins a new leader epoch."""
    topic_id = rig.broker.metadata.topics[topic].id
    record = PartitionChangeRecord(partition_id=index, topic_id=topic_id, leader=leader)
    await rig.broker.controller.submit(lambda _: ([record], None))
