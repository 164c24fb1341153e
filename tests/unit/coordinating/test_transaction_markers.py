"""Markers on their way: how they share requests, what is tried again, and leaders elsewhere."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock.base.errors import ApiError, ErrorCode, StorageError
from penstock.coordinating import transaction_coordinator, transaction_markers
from penstock.metadata.names import TRANSACTIONS_TOPIC
from penstock.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from penstock.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from penstock.wire.messages.end_txn import EndTxnRequest
from penstock.wire.messages.find_coordinator import FindCoordinatorRequest
from penstock.wire.messages.init_producer_id import InitProducerIdRequest
from penstock.wire.messages.write_txn_markers import (
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from unit.coordinating.transaction_rig import (
    FEW,
    PASSING,
    Identity,
    add_request,
    elect,
    end,
    open_transaction,
    state,
    state_becomes,
    write,
)
from unit.net.served import run
from unit.serving.cluster_rig import Nodes, nodes
from unit.serving.rig import Rig, running, until


class Gate:
    """Stands before the writing of markers on a node: counts requests and holds or spoils them."""

    def __init__(self, rig: Rig) -> None:
        sender = rig.broker.transactions.markers
        self._write = sender._write_here
        self.sizes: list[int] = []
        self.in_flight = 0
        self.in_flight_max = 0
        self.open = asyncio.Event()
        self.open.set()
        self.spoil: Callable[[WriteTxnMarkersResponse], None] | None = None
        sender._write_here = self.write

    async def write(self, request: WriteTxnMarkersRequest) -> WriteTxnMarkersResponse:
        self.sizes.append(len(request.markers))
        self.in_flight += 1
        self.in_flight_max = max(self.in_flight_max, self.in_flight)
        try:
            await self.open.wait()
            response = await self._write(request)
            if self.spoil is not None:
                self.spoil(response)
            return response
        finally:
            self.in_flight -= 1


def test_transactions_share_the_request_that_follows(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path, **FEW) as rig:
            peer, topic = await rig.peer(), await rig.topic()
            ids = [f"x{i}" for i in range(6)]
            owners = {id_: await open_transaction(peer, topic, id_=id_) for id_ in ids}
            gate = Gate(rig)
            gate.open.clear()
            for id_, who in owners.items():
                assert await end(peer, who, id_=id_) == 0
            await until(lambda: rig.broker.transactions.markers.pending == 6)
            gate.open.set()
            for id_ in ids:
                await state_becomes(peer, "CompleteCommit", id_)
            assert gate.sizes == [1, 5]
            assert gate.in_flight_max == 1
            assert rig.partition(topic).last_stable_offset == 12

    run(test)


def test_what_the_leader_refuses_is_tried_again(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path, **FEW) as rig:
            peer, topic = await rig.peer(), await rig.topic()
            who = await open_transaction(peer, topic)
            gate = Gate(rig)
            refusals: list[int | None] = [
                9_999,  # of a later release
                ErrorCode.NOT_LEADER_OR_FOLLOWER,
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                ErrorCode.NOT_ENOUGH_REPLICAS,
                None,
            ]

            def spoil(response: WriteTxnMarkersResponse) -> None:
                if not refusals:
                    return
                code = refusals.pop(0)
                if code is None:
                    response.markers.clear()  # as if the answer had forgotten it
                else:
                    response.markers[0].topics[0].partitions[0].error_code = code

            gate.spoil = spoil
            assert await end(peer, who) == 0
            await state_becomes(peer, "CompleteCommit")
            assert gate.sizes == [1] * 6

    run(test)


def test_a_failure_to_send_is_tried_again(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path, **FEW) as rig:
            peer, topic = await rig.peer(), await rig.topic()
            who = await open_transaction(peer, topic)
            gate = Gate(rig)
            errors: list[Exception] = [StorageError("no"), ValueError("a mistake of ours")]

            def spoil(_: WriteTxnMarkersResponse) -> None:
                if errors:
                    raise errors.pop(0)

            gate.spoil = spoil
            assert await end(peer, who) == 0
            await state_becomes(peer, "CompleteCommit")
            assert gate.sizes == [1] * 3

    run(test)


def test_the_answer_to_a_shard_of_the_past_is_not_looked_at(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path, **FEW) as rig:
            peer, topic = await rig.peer(), await rig.topic()
            who = await open_transaction(peer, topic)
            gate = Gate(rig)
            gate.open.clear()
            assert await end(peer, who) == 0
            await until(lambda: gate.in_flight)
            index = rig.broker.transactions.partition_of("x")
            assert index is not None
            await elect(rig, TRANSACTIONS_TOPIC, index, rig.broker.node_id)
            assert (await state(peer)).transaction_state == "PrepareCommit"
            await until(lambda: rig.broker.transactions.markers.pending)
            gate.open.set()
            await state_becomes(peer, "CompleteCommit")
            assert gate.sizes == [1, 1]
            [entry] = rig.partition(topic).log.producers.producers.values()
            epoch = rig.broker.metadata.topics[TRANSACTIONS_TOPIC].partitions[index].leader_epoch
            assert entry.coordinator_epoch == epoch

    run(test)


def test_the_next_transaction_waits_a_moment_for_the_last_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test() -> None:
        async with running(tmp_path, **FEW) as rig:
            peer, topic = await rig.peer(), await rig.topic()
            who = await open_transaction(peer, topic)
            gate = Gate(rig)
            gate.open.clear()
            monkeypatch.setattr(transaction_coordinator, "PATIENCE_S", 60.0)
            assert await end(peer, who) == 0
            peer.send(add_request(who, "t"), 3)
            assert await peer.silent()
            gate.open.set()
            [added] = (await peer.receive()).results_by_topic_v3_and_below
            assert added.results_by_partition[0].partition_error_code == 0

            gate.open.clear()
            assert await end(peer, who) == 0
            # It does not wait for ever, and other transactional ids do not wait at all.
            concurrent = ErrorCode.CONCURRENT_TRANSACTIONS
            waiting = await rig.peer()
            waiting.send(add_request(who, "t"), 3)
            await open_transaction(peer, await rig.topic("u"), id_="y")
            monkeypatch.setattr(transaction_coordinator, "PATIENCE_S", 0.01)
            assert await end(peer, who) == concurrent
            gate.open.set()
            [added] = (await waiting.receive()).results_by_topic_v3_and_below
            assert added.results_by_partition[0].partition_error_code == 0

    run(test)


def test_a_marker_that_comes_while_the_next_transaction_is_being_verified(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path, **FEW) as rig:
            peer, topic = await rig.peer(), await rig.topic()
            who = await open_transaction(peer, topic)
            gate = Gate(rig)
            gate.open.clear()
            assert await end(peer, who, version=5) == 0
            verify = rig.broker.verifier.verify

            async def late(*args: Any) -> Any:
                # The partition has begun to verify; now its last transaction ends.
                gate.open.set()
                await until(lambda: not rig.broker.transactions.markers.pending)
                return await verify(*args)

            rig.broker.verifier.verify = late  # type: ignore[method-assign]
            successor = Identity(who.producer_id, who.epoch + 1)
            assert await write(peer, topic, successor, version=12) == 0
            assert rig.partition(topic).last_stable_offset == 2
            assert (await state(peer)).transaction_state == "Ongoing"

    run(test)


def test_a_large_number_of_transactions_is_divided(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transaction_markers, "TRANSACTIONS_PER_REQUEST_MAX", 2)

    async def test() -> None:
        async with running(tmp_path, **FEW) as rig:
            peer, topic = await rig.peer(), await rig.topic()
            ids = [f"x{i}" for i in range(6)]
            owners = {id_: await open_transaction(peer, topic, id_=id_) for id_ in ids}
            gate = Gate(rig)
            gate.open.clear()
            for id_, who in owners.items():
                assert await end(peer, who, id_=id_) == 0
            gate.open.set()
            for id_ in ids:
                await state_becomes(peer, "CompleteCommit", id_)
            assert gate.sizes == [1, 2, 2, 1]

    run(test)


# -- several nodes ---------------------------------------------------------------------------------


async def opened(made: Nodes, id_: str) -> tuple[int, EndTxnRequest]:
    """A transaction in all partitions of `t`: the node that coordinates it, and how to commit."""
    asked = FindCoordinatorRequest(coordinator_keys=[id_], key_type=1)
    peer = await made.peer(1)
    async with asyncio.timeout(10):
        while (found := (await peer.send(asked)).coordinators[0]).error_code:
            await asyncio.sleep(0.02)
        coordinator = await made.peer(found.node_id)
        init = InitProducerIdRequest(transactional_id=id_, transaction_timeout_ms=60_000)
        while (who := await coordinator.send(init)).error_code in PASSING:
            await asyncio.sleep(0.02)
    add = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=id_,
        v3_and_below_producer_id=who.producer_id,
        v3_and_below_producer_epoch=who.producer_epoch,
        v3_and_below_topics=[AddPartitionsToTxnTopic(name="t", partitions=[0, 1, 2])],
    )
    [topic] = (await coordinator.send(add, 3)).results_by_topic_v3_and_below
    assert {p.partition_error_code for p in topic.results_by_partition} == {0}
    commit = EndTxnRequest(
        transactional_id=id_,
        producer_id=who.producer_id,
        producer_epoch=who.producer_epoch,
        committed=True,
    )
    return found.node_id, commit


def log_ends(made: Nodes) -> list[int]:
    """Where the logs of `t` end at their leaders; -1 where none leads."""
    any_node = next(iter(made.running))
    ends = []
    for index, partition in enumerate(made.broker(any_node).metadata.topics["t"].partitions):
        try:
            led = made.broker(partition.leader).replicas.leader_of("t", index)
            ends.append(led.high_watermark)
        except (KeyError, ApiError):
            ends.append(-1)
    return ends


def states(made: Nodes, id_: str) -> list[str]:
    """What the loaded shards of all nodes say of a transactional id."""
    return [
        shard.transactions[id_].state.value
        for i in made.running
        for shard in made.broker(i).transactions._active_shards()
        if id_ in shard.transactions
    ]


def test_markers_reach_leaders_on_other_nodes(tmp_path: Path) -> None:
    async def test() -> None:
        async with nodes(tmp_path, **FEW) as made:
            await made.create(1, "t")
            await made.all_know("t")
            for i in range(3):
                node, commit = await opened(made, f"x{i}")
                assert (await (await made.peer(node)).send(commit, 4)).error_code == 0
            await until(
                lambda: all(states(made, f"x{i}") == ["CompleteCommit"] for i in range(3)), 10
            )
            leaders = {p.leader for p in made.broker(1).metadata.topics["t"].partitions}
            assert len(leaders) > 1
            assert log_ends(made) == [3, 3, 3]

    run(test)


def test_markers_follow_a_leader_that_moved(tmp_path: Path) -> None:
    async def test() -> None:
        async with nodes(tmp_path, **FEW) as made:
            await made.create(1, "t")
            await made.all_know("t")
            node, commit = await opened(made, "x")
            partitions = made.broker(node).metadata.topics["t"].partitions
            away = next(p.leader for p in partitions if p.leader != node)
            coordinator = await made.peer(node)
            await made.lose(away)
            assert (await coordinator.send(commit, 4)).error_code == 0
            await until(lambda: states(made, "x") == ["CompleteCommit"], 10)
            await until(lambda: log_ends(made) == [1, 1, 1], 10)

    run(test)


def test_markers_do_not_wait_for_a_leader_of_the_past(tmp_path: Path) -> None:
    """A node that hangs keeps its requests; its partitions have a new leader long before that."""

    async def test() -> None:
        async with nodes(tmp_path, **FEW) as made:
            await made.create(1, "t")
            await made.all_know("t")
            node, commit = await opened(made, "x")
            partitions = made.broker(node).metadata.topics["t"].partitions
            away = next(p.leader for p in partitions if p.leader != node)
            there = made.broker(away).markers_here
            held: list[WriteTxnMarkersRequest] = []
            goes_on = asyncio.Event()

            async def hang(request: WriteTxnMarkersRequest) -> WriteTxnMarkersResponse:
                held.append(request)
                await goes_on.wait()
                return WriteTxnMarkersResponse()

            there.write = hang  # type: ignore[method-assign]
            coordinator = await made.peer(node)
            assert (await coordinator.send(commit, 4)).error_code == 0
            await until(lambda: held, 10)
            others = [i for i in made.running if i != away]
            moves = [
                ReassignablePartition(partition_index=index, replicas=others)
                for index, partition in enumerate(partitions)
                if partition.leader == away
            ]
            move = AlterPartitionReassignmentsRequest(
                topics=[ReassignableTopic(name="t", partitions=moves)]
            )
            assert (await coordinator.send(move)).error_code == 0
            await until(lambda: states(made, "x") == ["CompleteCommit"], 10)
            assert log_ends(made) == [1, 1, 1]
            goes_on.set()

    run(test)
