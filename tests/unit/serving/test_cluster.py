"""Nodes with one another: changes that travel to the controller, and brokers' lives."""

from __future__ import annotations

import asyncio
import struct
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from penstock.api.registry import APIS, Request
from penstock.auth.principal import Principal, anonymous
from penstock.base.errors import ApiError, ErrorCode
from penstock.peers.errors import PeerError
from penstock.serving.services import Services
from penstock.wire.apis import ApiKey
from penstock.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from penstock.wire.messages.describe_cluster import DescribeClusterRequest
from penstock.wire.messages.envelope import EnvelopeRequest
from penstock.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from penstock.wire.messages.unregister_broker import UnregisterBrokerRequest
from penstock.wire.messages.vote import RequestPartitionData, RequestTopicData, VoteRequest
from support.batches import batch
from support.calls import RawTopic, produce_request
from unit.net.served import run
from unit.serving.cluster_rig import Nodes, nodes
from unit.serving.rig import until

ANONYMOUS = anonymous("127.0.0.1")
ANNA = Principal("User", "anna", "10.1.2.3")


def test_every_node_takes_a_change_to_the_controller(tmp_path: Path) -> None:
    async def test() -> None:
        async with nodes(tmp_path) as cluster:
            for node_id in (1, 2, 3):
                response = await cluster.create(node_id, f"by-{node_id}")
                assert [t.error_code for t in response.topics] == [0]
                await cluster.all_know(f"by-{node_id}")
            again = await cluster.create(cluster.others[0], "by-1")
            assert again.topics[0].error_code == ErrorCode.TOPIC_ALREADY_EXISTS
            assert "'by-1' already exists" in again.topics[0].error_message
            ids = [await cluster.broker(i).producer_ids.next() for i in (1, 2, 3)]
            assert len(set(ids)) == 3
            refused = await cluster.broker(cluster.others[0]).topics.create(ANONYMOUS, ["auto"])
            assert refused == {}
            await cluster.all_know("auto")

    run(test)


def test_a_topic_made_for_a_client_has_the_partitions_that_its_brokers_file_says(
    tmp_path: Path,
) -> None:
    async def test() -> None:
        async with nodes(tmp_path) as cluster:
            silent, outspoken = cluster.others
            await cluster.stop(outspoken)
            cluster.settings |= {"num.partitions": "5", "default.replication.factor": "2"}
            await cluster.start(outspoken)
            for node_id, partitions, replicas in ((silent, 1, 1), (outspoken, 5, 2)):
                name = f"by-{node_id}"
                assert await cluster.broker(node_id).topics.create(ANONYMOUS, [name]) == {}
                await cluster.all_know(name)
                made = cluster.broker(node_id).metadata.topics[name].partitions
                assert [len(p.replicas) for p in made] == [replicas] * partitions

    run(test)


def test_clients_are_told_of_a_controller_that_they_reach(tmp_path: Path) -> None:
    async def test() -> None:
        async with nodes(tmp_path) as cluster:
            asked = cluster.others[0]
            service = cluster.broker(asked).services.cluster
            assert service.controller_id(ANONYMOUS, "PLAINTEXT") == cluster.controller
            assert service.controller_id(ANONYMOUS, "OF_NO_OTHER_NODE") == asked

    run(test)


def test_followers_describe_the_producers_of_a_partition(tmp_path: Path) -> None:
    async def test() -> None:
        async with nodes(tmp_path) as cluster:
            await cluster.create(1, "t")
            await cluster.all_know("t")
            producer_id = await cluster.broker(1).producer_ids.next()
            leader = cluster.broker(1).metadata.topics["t"].partitions[0].leader
            peer = await cluster.peer(leader)
            records = batch([b"v"], producer_id=producer_id, producer_epoch=0, base_sequence=0)
            topic = RawTopic("t", cluster.broker(leader).metadata.topics["t"].id)
            answer = await peer.send(produce_request(topic, records, 12), 12)
            assert answer.responses[0].partition_responses[0].error_code == ErrorCode.NONE
            for node_id in cluster.running:
                found = cluster.broker(node_id).services.records.producers(ANONYMOUS, "t", 0)
                assert [p.producer_id for p in found] == [producer_id]

    run(test)


def test_the_controller_is_asked_through_any_node_in_every_version(tmp_path: Path) -> None:
    async def test() -> None:
        async with nodes(tmp_path) as cluster:
            there = await cluster.peer(cluster.controller)
            here = await cluster.peer(cluster.others[0])
            for api in (api for api in APIS.values() if api.on_controller):
                for version in api.versions:
                    request = api.request()
                    if hasattr(request, "timeout_ms"):
                        request.timeout_ms = 5_000
                    expected = await there.send(request, version)
                    answer = await here.send(request, version)
                    assert isinstance(answer, api.response)
                    codes = list(answer.error_codes())
                    assert codes == list(expected.error_codes()), (api.key, version)

    run(test)


def test_the_controller_is_told_for_whom_it_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    api = APIS[ApiKey.UNREGISTER_BROKER]
    seen: list[tuple[Principal, bool]] = []

    async def watched(services: Services, request: Request[Any]) -> Any:
        seen.append((request.principal, request.forwarded))
        assert api.handle is not None
        return await api.handle(services, request)

    monkeypatch.setitem(APIS, api.key, replace(api, handle=watched))

    async def test() -> None:
        async with nodes(tmp_path) as cluster:
            asked = cluster.broker(cluster.others[0])
            request = UnregisterBrokerRequest(broker_id=99)
            answer = await asked.services.cluster.ask(ANNA, request, 0, forward=True)
            assert answer.error_code == ErrorCode.BROKER_ID_NOT_REGISTERED
            assert answer.error_message == "broker 99 is not registered"
            assert seen == [(ANNA, True)]
            with pytest.raises(ApiError) as refused:
                await asked.services.cluster.ask(ANNA, request, 0, forward=False)
            assert refused.value.code == ErrorCode.NOT_CONTROLLER
            assert len(seen) == 1

    run(test)


def test_without_a_controller_the_time_runs_out(tmp_path: Path) -> None:
    async def test() -> None:
        async with nodes(tmp_path) as cluster:
            left = cluster.others[0]
            for node_id in [i for i in cluster.running if i != left]:
                await cluster.lose(node_id)
            request = UnregisterBrokerRequest(broker_id=99)
            with pytest.raises(ApiError) as refused:
                await cluster.broker(left).controller.ask(request, timeout_s=0.3)
            assert refused.value.code == ErrorCode.NOT_CONTROLLER

    run(test)


def test_leaderships_are_handed_over_before_a_node_stops(tmp_path: Path) -> None:
    async def test() -> None:
        async with nodes(tmp_path) as cluster:
            await cluster.create(1, "t")
            await cluster.all_know("t")
            first = cluster.controller
            await cluster.stop(first)
            await until(lambda: cluster.controller)
            for node_id in cluster.running:
                image = cluster.broker(node_id).metadata
                await until(lambda image=image: image.brokers[first].fenced)  # type: ignore[misc]
                for partition in image.topics["t"].partitions:
                    assert partition.leader in cluster.running
                    assert first not in partition.isr
            await cluster.start(first)
            assert not cluster.broker(first).metadata.brokers[first].fenced
            response = await cluster.create(first, "after")
            assert [t.error_code for t in response.topics] == [0]

    run(test)


def test_a_broker_that_was_forgotten_registers_again(tmp_path: Path) -> None:
    async def test() -> None:
        async with nodes(tmp_path, broker_heartbeat_interval_ms="50") as cluster:
            forgotten = cluster.others[0]
            image = cluster.broker(cluster.controller).metadata
            before = image.brokers[forgotten].epoch
            peer = await cluster.peer(cluster.others[1])
            gone = await peer.send(UnregisterBrokerRequest(broker_id=forgotten))
            assert gone.error_code == 0

            def back() -> bool:
                broker = image.brokers.get(forgotten)
                return broker is not None and broker.epoch > before and not broker.fenced

            await until(back)

    run(test)


@pytest.mark.parametrize("controller_too", [False, True])
def test_who_asks_right_after_a_death_is_told_the_new_leaders(
    tmp_path: Path, controller_too: bool
) -> None:
    """Sessions last longer than the test: it is the refused knock that tells."""

    async def test() -> None:
        async with nodes(tmp_path, broker_session_timeout_ms="60000") as cluster:
            await cluster.create(1, "t")
            await cluster.all_know("t")
            lost = cluster.controller if controller_too else cluster.others[0]
            asked = next(i for i in cluster.running if i != lost)
            image = cluster.broker(asked).metadata
            await until(lambda: all(len(p.isr) == 3 for p in image.topics["t"].partitions))
            peer = await cluster.peer(asked)
            await cluster.lose(lost)
            await until(lambda: cluster.broker(asked).suspicions)
            answer = await peer.send(MetadataRequest(topics=[MetadataRequestTopic(name="t")]))
            [topic] = answer.topics
            assert [p.error_code for p in topic.partitions] == [0, 0, 0]
            assert lost not in {p.leader_id for p in topic.partitions}
            # The list of brokers keeps it for a moment, for clients that are about to leave it.
            assert lost in {broker.node_id for broker in answer.brokers}
            left = cluster.broker(asked).cluster.live_nodes
            await until(lambda: lost not in {node.id for node in left(ANONYMOUS, "PLAINTEXT")})

    run(test)


def test_all_nodes_can_be_stopped_together(tmp_path: Path) -> None:
    """The last ones have no majority to hand over to, and need not wait for one."""

    async def test() -> None:
        async with nodes(tmp_path) as cluster:
            await cluster.create(1, "t")
            await cluster.all_know("t")
            async with asyncio.timeout(10):
                await asyncio.gather(*(cluster.stop(i) for i in (1, 2, 3)))
            await cluster.start()
            assert "t" in cluster.broker(2).metadata.topics

    run(test)


def test_a_node_that_was_away_for_long_takes_a_snapshot(tmp_path: Path) -> None:
    async def test() -> None:
        often = {"metadata_log_max_record_bytes_between_snapshots": "3000"}
        async with nodes(tmp_path, **often) as cluster:
            await cluster.create(1, "gone", "kept")
            away = cluster.others[0]
            await cluster.stop(away)
            end = cluster.broker(cluster.controller).quorum.log.end_offset
            peer = await cluster.peer(cluster.others[0])
            await peer.send(DeleteTopicsRequest(topics=[DeleteTopicState(name="gone")]))
            for i in range(30):
                await cluster.create(cluster.others[0], f"t{i}", replicas=2)
            metadata = cluster.broker(cluster.controller).quorum
            await until(lambda: metadata.log.log.log_start_offset > end)
            await cluster.start(away)
            assert cluster.broker(away).quorum.log.log.log_start_offset > end
            first, second, third = (cluster.broker(i) for i in (1, 2, 3))
            await until(lambda: first.metadata == second.metadata == third.metadata)
            assert len(first.metadata.topics) == 31
            assert not list((tmp_path / str(away)).glob("gone-?"))

    run(test)


# -- envelopes -------------------------------------------------------------------------------------


def inner(api_key: int, version: int, body: bytes) -> bytes:
    return struct.pack(">hhih", api_key, version, 9, -1) + b"\0" + body


async def enveloped(cluster: Nodes, node_id: int, data: bytes) -> tuple[int, bytes | None]:
    peer = await cluster.peer(node_id)
    response = await peer.send(EnvelopeRequest(request_data=data, request_principal=None))
    return response.error_code, response.response_data


def test_an_envelope_is_for_the_controller_and_for_what_it_decides(tmp_path: Path) -> None:
    async def test() -> None:
        async with nodes(tmp_path) as cluster:
            forget = inner(
                ApiKey.UNREGISTER_BROKER, 0, UnregisterBrokerRequest(broker_id=99).encode(0)
            )
            code, _ = await enveloped(cluster, cluster.others[0], forget)
            assert code == ErrorCode.NOT_CONTROLLER
            controller = cluster.controller
            code, data = await enveloped(cluster, controller, forget)
            assert code == 0
            assert data is not None
            assert data[:4] == (9).to_bytes(4, "big"), "the client's own correlation id"
            read_only = inner(ApiKey.METADATA, 12, MetadataRequest(topics=[]).encode(12))
            assert (await enveloped(cluster, controller, read_only))[0] == ErrorCode.INVALID_REQUEST
            cut = inner(ApiKey.CREATE_TOPICS, 7, b"\x05")
            assert (await enveloped(cluster, controller, cut))[0] == ErrorCode.INVALID_REQUEST
            for unknown in (inner(4000, 0, b""), inner(ApiKey.CREATE_TOPICS, 99, b""), b""):
                code, _ = await enveloped(cluster, controller, unknown)
                assert code == ErrorCode.UNSUPPORTED_VERSION

    run(test)


# -- while a node starts ---------------------------------------------------------------------------


def test_a_node_that_looks_for_its_cluster_serves_only_that(tmp_path: Path) -> None:
    async def test() -> None:
        cluster = Nodes(tmp_path, 3)
        starting = asyncio.create_task(cluster.start(1, 2))
        try:
            await until(lambda: all(i in cluster.running for i in (1, 2)))
            await until(lambda: "whether a cluster" in cluster.running[1].health().reason)
            await until(lambda: "to know of a cluster" in cluster.running[2].health().reason)
            assert cluster.running[1].health()[:2] == (True, False)
            peer = await cluster.peer(2)
            assert (await peer.send(DescribeClusterRequest())).cluster_id == ""
            part = RequestPartitionData(replica_id=1, pre_vote=True)
            topic = RequestTopicData(topic_name="__cluster_metadata", partitions=[part])
            vote = (await peer.send(VoteRequest(topics=[topic]))).topics[0].partitions[0]
            assert (vote.leader_id, vote.leader_epoch, vote.vote_granted) == (-1, 0, False)
            with pytest.raises(PeerError):
                await peer.send(MetadataRequest(topics=[]))
            await cluster.start(3)
            await starting
            assert {cluster.broker(i).cluster.id for i in (1, 2, 3)} == {
                cluster.broker(1).cluster.id
            }
            assert cluster.running[1].health()[:2] == (True, True)
        finally:
            starting.cancel()
            for peer in cluster.peers:
                peer.close()
            for node in cluster.running.values():
                node.hurry()
            await asyncio.gather(*(node.stop() for node in cluster.running.values()))

    run(test)
