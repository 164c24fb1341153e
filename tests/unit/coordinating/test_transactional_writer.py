"""The node's own transactional producer, against the coordinators and leaders of real nodes."""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from penstock.base.errors import ApiError, ErrorCode, InvariantBroken
from penstock.base.ids import TopicPartition
from penstock.coordinating import transactional_writer
from penstock.coordinating.transactional_writer import (
    GroupPositions,
    Outcome,
    Position,
    TransactionalWriter,
    WriterEnvironment,
)
from penstock.metadata.features import TRANSACTION_VERSION
from penstock.serving.broker import Broker
from penstock.wire.messages.end_txn import EndTxnRequest
from penstock.wire.records import Record, build_batch
from penstock.wire.schema import Message
from support.committed import committed_values
from unit.coordinating.test_transactional_commits import FEW_TRANSACTIONS
from unit.net.served import run
from unit.serving.cluster_rig import nodes
from unit.serving.rig import Rig, running, until

GROUP, ID = "__marks", "writer"
SOURCE, OUT = TopicPartition("source", 0), TopicPartition("out", 0)
OTHER_OUT = TopicPartition("out", 1)

both_versions = pytest.mark.parametrize("version", [1, 2])


def batch(*values: bytes) -> bytes:
    return build_batch([Record(0, 1_000, None, value) for value in values])


def at(offset: int, metadata: str = "") -> GroupPositions:
    return GroupPositions(GROUP, {SOURCE: Position(offset, metadata)})


@asynccontextmanager
async def a_node(tmp_path: Path, version: int = 2) -> AsyncIterator[Rig]:
    async with running(tmp_path, **FEW_TRANSACTIONS) as rig:
        rig.broker.metadata.features[TRANSACTION_VERSION] = version
        await rig.topic("out", partitions=2, max_message_bytes="10000")
        await rig.topic("source")
        yield rig


async def read(rig: Rig, place: TopicPartition = OUT) -> list[bytes | None]:
    """What is committed, when no transaction is open."""
    partition = rig.broker.replicas.leader_of(*place)
    await until(lambda: partition.last_stable_offset == partition.log.log_end_offset)
    return committed_values(partition)


async def opened(env: WriterEnvironment) -> TransactionalWriter:
    writer = TransactionalWriter(env, ID)
    await writer.open()
    return writer


class Losing:
    """The node, of whose answers to one kind of request some are lost."""

    def __init__(self, env: WriterEnvironment, kind: type[Message], times: int) -> None:
        self.node = env.here
        self.kind = kind
        self.times = times

    async def ask(self, request: Message, version: int) -> Any:
        answer = await self.node.ask(request, version)
        if isinstance(request, self.kind) and self.times:
            self.times -= 1
            raise ApiError(ErrorCode.NETWORK_EXCEPTION, "lost")
        return answer


@both_versions
def test_records_and_positions_are_written_together(tmp_path: Path, version: int) -> None:
    async def test() -> None:
        async with a_node(tmp_path, version) as rig:
            writer = await opened(rig.broker.writers)
            assert await writer.committed(GROUP, [SOURCE]) == {}
            for number in range(3):
                value = b"%d" % number
                written = await writer.write(
                    {OUT: batch(value), OTHER_OUT: batch(value, value)}, at(number, f"m{number}")
                )
                assert written.outcome is Outcome.COMMITTED
            assert await writer.committed(GROUP, [SOURCE]) == {SOURCE: Position(2, "m2")}
            assert await read(rig) == [b"0", b"1", b"2"]
            assert await read(rig, OTHER_OUT) == [b"0", b"0", b"1", b"1", b"2", b"2"]

    run(test)


@both_versions
def test_positions_can_be_written_alone(tmp_path: Path, version: int) -> None:
    async def test() -> None:
        async with a_node(tmp_path, version) as rig:
            writer = await opened(rig.broker.writers)
            assert (await writer.write({}, at(7))).outcome is Outcome.COMMITTED
            assert await writer.committed(GROUP, [SOURCE]) == {SOURCE: Position(7, "")}

    run(test)


@both_versions
def test_nothing_is_seen_of_a_write_of_which_a_part_was_refused(
    tmp_path: Path, version: int
) -> None:
    async def test() -> None:
        async with a_node(tmp_path, version) as rig:
            writer = await opened(rig.broker.writers)
            too_large = {OUT: batch(b"good"), OTHER_OUT: batch(bytes(20_000))}
            for _ in range(2):
                written = await writer.write(too_large, at(1))
                assert written.outcome is Outcome.FAILED
                assert written.code == ErrorCode.MESSAGE_TOO_LARGE
            assert (await writer.write({OUT: batch(b"next")}, at(2))).outcome is Outcome.COMMITTED
            assert await writer.committed(GROUP, [SOURCE]) == {SOURCE: Position(2, "")}
            assert await read(rig) == [b"next"]
            assert await read(rig, OTHER_OUT) == []

    run(test)


@both_versions
def test_who_opens_the_id_fences_the_writer_before(tmp_path: Path, version: int) -> None:
    async def test() -> None:
        async with a_node(tmp_path, version) as rig:
            old = await opened(rig.broker.writers)
            assert (await old.write({OUT: batch(b"old")}, at(1))).outcome is Outcome.COMMITTED
            new = await opened(rig.broker.writers)
            assert (await old.write({OUT: batch(b"late")}, at(2))).outcome is Outcome.FENCED
            assert not old.is_open
            assert (await new.write({OUT: batch(b"new")}, at(3))).outcome is Outcome.COMMITTED
            assert await read(rig) == [b"old", b"new"]
            with pytest.raises(InvariantBroken):
                await old.write({}, at(4))

    run(test)


@both_versions
def test_a_lost_answer_to_the_end_is_asked_for_again(tmp_path: Path, version: int) -> None:
    async def test() -> None:
        async with a_node(tmp_path, version) as rig:
            env = rig.broker.writers
            losing = Losing(env, EndTxnRequest, times=1)
            writer = await opened(dataclasses.replace(env, here=losing))
            for number in (1, 2):
                written = await writer.write({OUT: batch(b"%d" % number)}, at(number))
                assert written.outcome is Outcome.COMMITTED
            assert losing.times == 0
            assert await read(rig) == [b"1", b"2"]

    run(test)


@both_versions
def test_what_is_not_known_is_resolved_by_opening_again(
    tmp_path: Path, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test() -> None:
        async with a_node(tmp_path, version) as rig:
            env = rig.broker.writers
            losing = Losing(env, EndTxnRequest, times=1_000)
            writer = await opened(dataclasses.replace(env, here=losing))
            monkeypatch.setattr(transactional_writer, "STEP_S_MAX", 0.2)
            assert (await writer.write({OUT: batch(b"1")}, at(1))).outcome is Outcome.FENCED
            monkeypatch.undo()
            losing.times = 0
            await writer.open()
            assert await writer.committed(GROUP, [SOURCE]) == {SOURCE: Position(1, "")}
            assert (await writer.write({OUT: batch(b"2")}, at(2))).outcome is Outcome.COMMITTED
            assert await read(rig) == [b"1", b"2"]

    run(test)


def test_nodes_write_through_the_coordinators_and_leaders_of_others(tmp_path: Path) -> None:
    async def test() -> None:
        few = {
            "offsets_topic_num_partitions": "1",
            "transaction_state_log_num_partitions": "1",
            "transaction_state_log_min_isr": "1",
        }
        async with nodes(tmp_path, 3, **few) as cluster:
            await cluster.create(1, "out", "source")
            await cluster.all_know("out")
            await cluster.all_know("source")
            for node_id in (1, 2, 3):
                writer = await opened(cluster.broker(node_id).writers)
                batches = {TopicPartition("out", i): batch(b"%d" % node_id) for i in range(3)}
                written = await writer.write(batches, at(node_id))
                assert written.outcome is Outcome.COMMITTED, written
                found = await writer.committed(GROUP, [SOURCE])
                assert found == {SOURCE: Position(node_id, "")}
            for index in range(3):
                leader = cluster.broker(1).metadata.topics["out"].partitions[index].leader
                partition = cluster.broker(leader).replicas.leader_of("out", index)
                await until(lambda p=partition: committed_values(p) == [b"1", b"2", b"3"])

    run(test)


def test_a_topic_that_does_not_exist_fails_the_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test() -> None:
        async with a_node(tmp_path) as rig:
            broker: Broker = rig.broker
            writer = await opened(broker.writers)
            monkeypatch.setattr(transactional_writer, "STEP_S_MAX", 0.2)
            written = await writer.write({TopicPartition("nowhere", 0): batch(b"v")}, at(1))
            assert written.outcome is Outcome.FAILED
            assert written.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            assert await writer.committed(GROUP, [SOURCE]) == {}

    run(test)
