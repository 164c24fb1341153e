"""Transactions between nodes: verification over the network, and partitions that change leader."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from penstock.base.errors import ErrorCode
from penstock.peers.errors import PeerError
from penstock.peers.peers import Channel
from penstock.serving.broker import Broker
from penstock.wire.messages.end_txn import EndTxnRequest
from penstock.wire.messages.find_coordinator import FindCoordinatorRequest
from penstock.wire.messages.init_producer_id import InitProducerIdRequest
from support.batches import Rec, batch
from support.calls import RawTopic, produce_request
from unit.serving.cluster_rig import Nodes, nodes
from unit.serving.rig import one, until

TRANSACTION, TRANSACTIONAL = 1, 0x10
OLD, NEW = 10, 13
FAST = {
    "transaction_state_log_num_partitions": "1",
    "transaction_state_log_min_isr": "1",
    "offsets_topic_num_partitions": "1",
}
# What a client, which asks again, may hear while nodes come and go.
PASSING = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.CONCURRENT_TRANSACTIONS,
)


def run(test: Any) -> None:
    asyncio.run(test())


class Cluster:
    """A topic of three partitions and the coordinator of all transactional ids."""

    def __init__(self, cluster: Nodes) -> None:
        self.nodes = cluster
        self.topic = RawTopic("t", b"")

    async def begin(self) -> Cluster:
        cluster = self.nodes
        await cluster.create(1, "t")
        await cluster.all_know("t")
        self.topic = RawTopic("t", cluster.broker(1).metadata.topics["t"].id)
        asked = FindCoordinatorRequest(key_type=TRANSACTION, coordinator_keys=["any"])
        peer = await cluster.peer(1)
        for _ in range(500):
            if not (await peer.send(asked, 4)).coordinators[0].error_code:
                break
            await asyncio.sleep(0.01)
        await cluster.all_know("__transaction_state")
        return self

    @property
    def any_broker(self) -> Broker:
        return self.nodes.broker(next(iter(self.nodes.running)))

    @property
    def coordinator(self) -> int:
        return self.any_broker.metadata.topics["__transaction_state"].partitions[0].leader

    def leader(self, index: int) -> int:
        return self.any_broker.metadata.topics["t"].partitions[index].leader

    def led_elsewhere(self) -> int:
        """A partition whose leader does not coordinate."""
        return next(i for i in range(3) if self.leader(i) != self.coordinator)

    async def ask_coordinator(self, request: Any, version: int) -> Any:
        for _ in range(1_000):
            try:
                answer = await (await self.nodes.peer(self.coordinator)).send(request, version)
            except PeerError:
                await asyncio.sleep(0.02)
                continue
            if answer.error_code not in PASSING:
                assert answer.error_code == 0, ErrorCode(answer.error_code).name
                return answer
            await asyncio.sleep(0.02)
        raise AssertionError(f"no answer to {request}")

    async def producer(self, transactional_id: str) -> tuple[int, int]:
        request = InitProducerIdRequest(
            transactional_id=transactional_id, transaction_timeout_ms=60_000
        )
        answer = await self.ask_coordinator(request, 4)
        return answer.producer_id, answer.producer_epoch

    async def end(self, transactional_id: str, producer: tuple[int, int], *, commit: bool) -> None:
        request = EndTxnRequest(
            transactional_id=transactional_id,
            producer_id=producer[0],
            producer_epoch=producer[1],
            committed=commit,
        )
        await self.ask_coordinator(request, 5)

    def request(
        self, transactional_id: str, producer: tuple[int, int], index: int, version: int
    ) -> Any:
        now_ms = self.any_broker.clock.now_ms()
        records = batch(
            [Rec(timestamp=now_ms)],
            producer_id=producer[0],
            producer_epoch=producer[1],
            base_sequence=0,
            attributes=TRANSACTIONAL,
        )
        request = produce_request(self.topic, records, version, partition=index)
        request.transactional_id = transactional_id
        return request


def test_transactions_are_verified_with_a_coordinator_elsewhere(tmp_path: Path) -> None:
    async def test() -> None:
        async with nodes(tmp_path, **FAST) as made:
            cluster = await Cluster(made).begin()
            index = cluster.led_elsewhere()
            leader = made.broker(cluster.leader(index))
            ids = [f"id-{n}" for n in range(12)]
            producers = {i: await cluster.producer(i) for i in ids}
            send, flying, most, sent = leader.peers.send, 0, 0, 0

            async def counted(address: Any, channel: Channel, *args: Any) -> Any:
                nonlocal flying, most, sent
                asks = channel is Channel.VERIFICATION
                flying, sent = flying + asks, sent + asks
                most = max(most, flying)
                try:
                    return await send(address, channel, *args)
                finally:
                    flying -= asks

            leader.peers.send = counted  # type: ignore[method-assign]
            peers = [await made.peer(leader.node_id) for _ in ids]
            answers = await asyncio.gather(
                *(
                    peer.send(cluster.request(i, producers[i], index, NEW), NEW)
                    for peer, i in zip(peers, ids, strict=True)
                )
            )
            assert [one(a).error_code for a in answers] == [0] * len(ids)
            assert most == 1
            assert sent < len(ids), "what waits shares a request"
            log = leader.replicas.leader_of("t", index).log
            assert len(log.producers.ongoing) == len(ids)
            for i in ids:
                await cluster.end(i, producers[i], commit=True)
            await until(lambda: log.last_stable_offset == log.log_end_offset == 2 * len(ids))

    run(test)


def test_a_coordinator_that_is_gone_is_waited_for(tmp_path: Path) -> None:
    """Clients of all versions are told something that has them send the batch again."""

    async def test() -> None:
        async with nodes(tmp_path, **FAST) as made:
            cluster = await Cluster(made).begin()
            index = cluster.led_elsewhere()
            producers = {v: await cluster.producer(f"v{v}") for v in (OLD, NEW)}
            peer = await made.peer(cluster.leader(index))
            await made.lose(cluster.coordinator)
            seen: dict[int, list[int]] = {OLD: [], NEW: []}
            for version, producer in producers.items():
                request = cluster.request(f"v{version}", producer, index, version)
                for _ in range(500):
                    code = one(await peer.send(request, version)).error_code
                    seen[version].append(code)
                    if code != ErrorCode.NOT_ENOUGH_REPLICAS:
                        break
                    await asyncio.sleep(0.02)
            # The old client has not added its partition, and its version has no better word.
            assert seen[OLD][-1] == ErrorCode.INVALID_TXN_STATE
            assert seen[NEW][-1] == 0

    run(test)


def test_a_new_leader_goes_on_with_open_transactions(tmp_path: Path) -> None:
    async def test() -> None:
        async with nodes(tmp_path, **FAST) as made:
            cluster = await Cluster(made).begin()
            index = cluster.led_elsewhere()
            old = cluster.leader(index)
            producer = await cluster.producer("mine")
            request = cluster.request("mine", producer, index, NEW)
            peer = await made.peer(old)
            assert one(await peer.send(request, NEW)).error_code == 0
            before = made.broker(old).replicas.leader_of("t", index)
            assert (before.log.producers.ongoing, before.last_stable_offset) == (
                {0: producer[0]},
                0,
            )
            await made.stop(old)
            await until(lambda: cluster.leader(index) not in (-1, old))
            new = made.broker(cluster.leader(index)).replicas.leader_of("t", index)
            assert new.log.producers.ongoing == {0: producer[0]}
            assert (new.last_stable_offset, new.log.producers.guards) == (0, {})
            # Sent again to the new leader it is known, and needs no verification.
            again = one(await (await made.peer(cluster.leader(index))).send(request, NEW))
            assert (again.error_code, again.base_offset) == (0, 0)
            await cluster.end("mine", producer, commit=False)
            await until(lambda: new.last_stable_offset == 2)
            [aborted] = new.log.aborted_transactions(0, 2)
            assert (aborted.producer_id, aborted.first_offset) == (producer[0], 0)
            # A follower has the same.
            other = next(i for i in made.running if i != cluster.leader(index))
            log = made.broker(other).replicas.replica_of("t", index).log
            await until(lambda: log.log_end_offset == 2)
            assert log.aborted_transactions(0, 2) == [aborted]
            assert log.producers.ongoing == {}

    run(test)
