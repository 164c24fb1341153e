"""Quotas on a whole node: what a client is told, when it is read again, and whom others meet."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from penstock.auth import client_quotas
from penstock.auth.throttling import Throttling
from penstock.auth.usage import LoopTime, Usage
from penstock.base.errors import ErrorCode
from penstock.net.connection import Connection
from penstock.net.server import Server
from penstock.wire.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    EntityData,
    OpData,
    RequestEntryData,
)
from penstock.wire.messages.api_versions import ApiVersionsRequest
from penstock.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from penstock.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from penstock.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from penstock.wire.messages.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
)
from penstock.wire.messages.list_offsets import ListOffsetsRequest
from penstock.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from support.batches import batch
from support.calls import RawTopic, fetch_request
from unit.net.served import run
from unit.serving.cluster_rig import nodes
from unit.serving.rig import Peer, produce_request, running, until

KIB = 1024
USER = "ANONYMOUS"


async def alter(peer: Peer, entity: dict[str, str | None], key: str, value: float | None) -> Any:
    """Sets a quota, or takes it away; what the node says of the entity."""
    entry = RequestEntryData(
        entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in entity.items()],
        ops=[OpData(key=key, value=value or 0.0, remove=value is None)],
    )
    [said] = (await peer.call(AlterClientQuotasRequest(entries=[entry]), 1)).entries
    return said


async def described(peer: Peer, kind: str = "user") -> list[tuple[str | None, dict[str, float]]]:
    part = ComponentData(entity_type=kind, match_type=2, match=None)
    asked = DescribeClientQuotasRequest(components=[part])
    answer = await peer.call(asked, 1)
    return [
        (entry.entity[0].entity_name, {value.key: value.value for value in entry.values})
        for entry in answer.entries
    ]


async def produced(peer: Peer, topic: Any, size: int, version: int = 12, acks: int = 1) -> int:
    """The time that the client is told to wait."""
    request = produce_request(topic, batch([bytes(size)]), version, acks=acks)
    answer = await peer.call(request, version)
    assert answer.responses[0].partition_responses[0].error_code == 0
    return int(answer.throttle_time_ms)


def is_muted(peer: Peer) -> bool:
    return peer.inside._muted_until_s > asyncio.get_running_loop().time() and bool(
        peer.inside._mute_timer
    )


def muted(server: Server) -> set[Connection]:
    return {c for c in server.connections if c._mute_timer is not None}


# -- the APIs --------------------------------------------------------------------------------------


def test_what_is_set_is_described_and_taken_away(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path) as rig:
            peer = await rig.peer()
            for value in (2048.0, 4096.0):
                assert (
                    await alter(peer, {"user": "a"}, "producer_byte_rate", value)
                ).error_code == 0
            assert (await alter(peer, {"user": None}, "request_percentage", 12.5)).error_code == 0
            assert await described(peer) == [
                ("a", {"producer_byte_rate": 4096.0}),
                (None, {"request_percentage": 12.5}),
            ]
            assert rig.broker.quotas.active
            await alter(peer, {"user": None}, "request_percentage", None)
            await alter(peer, {"user": "a"}, "producer_byte_rate", None)
            assert await described(peer) == []
            assert not rig.broker.quotas.active

    run(test)


def test_what_makes_no_sense_is_refused(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path) as rig:
            peer = await rig.peer()
            for entity, key, value in (
                ({"user": "a"}, "no_such_rate", 1.0),
                ({"user": "a"}, "producer_byte_rate", 0.5),
                ({"user": "a"}, "producer_byte_rate", -1.0),
                ({"user": ""}, "producer_byte_rate", 1.0),
                ({"ip": "1.1.1.1", "user": "a"}, "connection_creation_rate", 1.0),
                ({"ip": "1.1.1.1"}, "producer_byte_rate", 1.0),
                ({"planet": "a"}, "producer_byte_rate", 1.0),
            ):
                said = await alter(peer, entity, key, value)
                assert said.error_code == ErrorCode.INVALID_REQUEST, (entity, key, value)
            twice = [ComponentData(entity_type="user", match_type=2, match=None)] * 2
            answer = await peer.call(DescribeClientQuotasRequest(components=twice), 1)
            assert (answer.error_code, answer.entries) == (ErrorCode.INVALID_REQUEST, None)

    run(test)


def test_quotas_are_there_after_a_restart(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path) as rig:
            await alter(await rig.peer(), {"user": USER}, "producer_byte_rate", 1.0)
        async with running(tmp_path) as rig:
            topic, peer = await rig.topic(), await rig.peer()
            assert await produced(peer, topic, 100) > 1_000

    run(test)


# -- bytes -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [3, 8, 12])
def test_a_producer_is_told_at_once_and_read_later(tmp_path: Path, version: int) -> None:
    """The answer comes while the client is muted; what it sends waits; others do not."""

    async def test() -> None:
        async with running(tmp_path) as rig:
            topic, admin, peer = await rig.topic(), await rig.peer(), await rig.peer()
            await alter(admin, {"client-id": "peer"}, "producer_byte_rate", 10 * KIB)
            other = await rig.peer()
            waits = [await produced(peer, topic, 48 * KIB, version) for _ in range(2)]
            assert waits == [0, 0]
            wait_ms = await produced(peer, topic, 18 * KIB, version)
            assert 900 < wait_ms < 2_500
            assert is_muted(peer)
            assert not peer.inside.idle, "who is made to wait is not idle"
            loop = asyncio.get_running_loop()
            began = loop.time()
            peer.send(ApiVersionsRequest(), 0)
            await other.call(ApiVersionsRequest(), 0)
            assert loop.time() - began < wait_ms / 2_000
            await peer.receive()
            assert loop.time() - began > wait_ms / 1_000 * 0.9

    run(test)


def test_a_producer_without_acknowledgements_waits_too(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path) as rig:
            topic, peer = await rig.topic(), await rig.peer()
            await alter(peer, {"user": USER}, "producer_byte_rate", KIB)
            peer._writer.write(
                peer.frame(produce_request(topic, batch([bytes(30_000)]), acks=0), 12)
            )
            await until(lambda: is_muted(peer))

    run(test)


def test_a_quota_that_is_raised_or_taken_away_holds_for_the_next_request(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path) as rig:
            topic, admin = await rig.topic(), await rig.peer()
            await alter(admin, {"user": USER}, "producer_byte_rate", 100.0)
            assert await produced(await rig.peer(), topic, 10_000) > 10_000
            await alter(admin, {"user": USER}, "producer_byte_rate", 1e9)
            assert await produced(await rig.peer(), topic, 10_000) == 0
            await alter(admin, {"user": USER}, "producer_byte_rate", 100.0)
            assert await produced(await rig.peer(), topic, 10) > 10_000, "what was used counts"
            await alter(admin, {"user": USER}, "producer_byte_rate", None)
            assert await produced(await rig.peer(), topic, 10_000) == 0

    run(test)


def fetched(answer: Any) -> int:
    """How many bytes of records there are in it."""
    return sum(len(p.records or b"") for topic in answer.responses for p in topic.partitions)


@pytest.mark.parametrize("version", [4, 7, 12, 16])
def test_a_consumer_gets_nothing_and_waits(tmp_path: Path, version: int) -> None:
    async def test() -> None:
        async with running(tmp_path) as rig:
            topic, admin, peer = await rig.topic(), await rig.peer(), await rig.peer()
            for _ in range(5):
                await produced(admin, topic, 10 * KIB)
            await alter(admin, {"user": USER}, "consumer_byte_rate", 2 * KIB)
            request = fetch_request([(topic, {0: 0})], version, max_bytes=1 << 20)
            first = await peer.call(request, version)
            # No more than the whole window allows, but a whole batch.
            assert 10 * KIB < fetched(first) <= 20 * KIB
            assert first.throttle_time_ms == 0
            given = fetched(first)
            while not (second := await (await rig.peer()).call(request, version)).throttle_time_ms:
                given += fetched(second)
                assert given < 40 * KIB
            assert (second.responses, second.error_code) == ([], 0)
            assert rig.partition(topic).counters.bytes_out == given

    run(test)


def test_a_batch_larger_than_the_window_is_given_once_nothing_else_counts(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path) as rig:
            topic, admin = await rig.topic(), await rig.peer()
            await produced(admin, topic, 100 * KIB)
            await alter(admin, {"user": USER}, "consumer_byte_rate", KIB)
            request = fetch_request([(topic, {0: 0})], 16)
            first = await (await rig.peer()).call(request, 16)
            assert (fetched(first) > 100 * KIB, first.throttle_time_ms) == (True, 0)
            second = await (await rig.peer()).call(request, 16)
            assert fetched(second) == 0
            assert second.throttle_time_ms > 100_000, "the next waits for both"

    run(test)


def session_request(topic: Any, session_id: int, epoch: int, offset: int = 0) -> Any:
    topics = [(topic, {0: offset})] if epoch == 0 else []
    request = fetch_request(topics, 16, max_bytes=1 << 20)
    request.session_id, request.session_epoch = session_id, epoch
    return request


def test_a_session_goes_on_where_it_was_when_its_client_had_to_wait(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path) as rig:
            topic, admin = await rig.topic(), await rig.peer()
            first = await admin.call(session_request(topic, 0, 0), 16)
            assert first.session_id
            await produced(admin, topic, 10 * KIB)
            await alter(admin, {"user": USER}, "consumer_byte_rate", 5)
            user = rig.broker.quotas._quotas.fetch.find(USER, "peer", 0)
            user.record(100, LoopTime(rig.broker.clock).now_ms())
            empty = await (await rig.peer()).call(session_request(topic, first.session_id, 1), 16)
            assert (empty.responses, empty.session_id) == ([], first.session_id)
            assert empty.throttle_time_ms > 0
            await alter(admin, {"user": USER}, "consumer_byte_rate", None)
            full = await admin.call(session_request(topic, first.session_id, 2), 16)
            assert fetched(full) > 10 * KIB, "nothing was taken for read"

    run(test)


def test_a_new_session_ends_when_its_client_has_to_wait(tmp_path: Path) -> None:
    """Its client takes an empty answer for no session, and would miss what the node holds."""

    async def test() -> None:
        async with running(tmp_path) as rig:
            topic, admin = await rig.topic(), await rig.peer()
            await produced(admin, topic, 10 * KIB)
            await alter(admin, {"user": USER}, "consumer_byte_rate", 5)
            assert (await (await rig.peer()).call(session_request(topic, 0, 0), 16)).session_id
            held = len(rig.broker.fetch_sessions)
            again = await (await rig.peer()).call(session_request(topic, 0, 0), 16)
            assert (again.session_id, again.responses) == (0, [])
            assert again.throttle_time_ms > 0
            assert len(rig.broker.fetch_sessions) == held

    run(test)


def test_a_long_poll_is_bound_when_it_ends(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path) as rig:
            topic, admin, peer = await rig.topic(), await rig.peer(), await rig.peer()
            await alter(admin, {"user": USER}, "consumer_byte_rate", 5)
            rig.broker.quotas._quotas.fetch.find(USER, "peer", 0).record(
                1, LoopTime(rig.broker.clock).now_ms()
            )
            peer.send(fetch_request([(topic, {0: 0})], 16, max_wait_ms=15_000), 16)
            assert await peer.silent()
            await produced(admin, topic, KIB)
            answer = await peer.receive()
            assert (answer.responses, answer.throttle_time_ms > 0) == ([], True)

    run(test)


def test_nodes_never_wait_for_each_other(tmp_path: Path) -> None:
    """Every kind of quota is broken by everybody, and records are replicated as before; a client is
    told by the node that it is connected to what the controller has counted.
    """

    async def test() -> None:
        async with nodes(tmp_path) as cluster:
            assert [t.error_code for t in (await cluster.create(1, "t")).topics] == [0]
            await cluster.all_know("t")
            peer = await cluster.peer(cluster.others[0])
            keys = ("consumer_byte_rate", "producer_byte_rate", "request_percentage")
            entries = [
                RequestEntryData(
                    entity=[EntityData(entity_type=kind, entity_name=None)],
                    ops=[OpData(key=key, value=1.0) for key in (*keys, "controller_mutation_rate")],
                )
                for kind in ("user", "client-id")
            ]
            said = await peer.send(AlterClientQuotasRequest(entries=entries))
            assert [entry.error_code for entry in said.entries] == [0, 0]
            await until(lambda: all(cluster.broker(n).quotas.active for n in (1, 2, 3)))
            topic = RawTopic("t", cluster.broker(1).metadata.topics["t"].id)
            leader = cluster.broker(1).metadata.topics["t"].partitions[0].leader
            for _ in range(10):
                producer = await cluster.peer(leader)
                request = produce_request(topic, batch([bytes(100_000)]), 12, acks=-1)
                answer = await producer.send(request, 12)
                assert answer.responses[0].partition_responses[0].error_code == 0
                assert answer.throttle_time_ms > 10_000

            asked = cluster.others[0]
            active = cluster.running[cluster.controller]._listening.servers[0]
            muted_before = muted(active)
            refused = await cluster.create(asked, "u", "v", "w", "x", "y")
            assert [t.error_code for t in refused.topics] == [0, 0, 0, 0, EXCEEDED]
            assert refused.throttle_time_ms > 0
            [server] = cluster.running[asked]._listening.servers
            assert muted(server), "the node that was asked mutes its client"
            assert muted(active) <= muted_before, "the controller mutes nobody"

    run(test)


# -- the loop's time -------------------------------------------------------------------------------


def test_time_is_bound_for_every_api(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path) as rig:
            await rig.topic(partitions=400)
            admin = await rig.peer()
            await alter(admin, {"user": USER, "client-id": "peer"}, "request_percentage", 0.01)
            waits = []
            for _ in range(100):
                answer = await (await rig.peer()).call(MetadataRequest(topics=None), 9)
                waits.append(answer.throttle_time_ms)
                if waits[-1]:
                    break
            assert 0 < waits[-1] <= 1_000
            offsets = await (await rig.peer()).call(ListOffsetsRequest(), 6)
            assert 0 < offsets.throttle_time_ms <= 1_000
            oldest = await rig.peer()
            await oldest.call(ApiVersionsRequest(), 0)  # which has no place to say so
            assert is_muted(oldest)

    run(test)


def test_work_in_between_counts_for_whom_it_is_done() -> None:
    class Clock:
        now = 0.0

        def monotonic(self) -> float:
            return self.now

    clock: Any = Clock()
    time = LoopTime(clock)
    door = Throttling(client_quotas.ClientQuotas())
    one, two = (Usage(door, time, name, "", 0) for name in "ab")

    def inner() -> None:
        clock.now += 5

    def outer() -> None:
        clock.now += 1
        two.timed(inner)
        clock.now += 2

    one.timed(outer)
    clock.now += 100
    assert (one.spent_ns, two.spent_ns) == (3_000_000_000, 5_000_000_000)


# -- mutations -------------------------------------------------------------------------------------


def topics(*wanted: tuple[str, int]) -> CreateTopicsRequest:
    return CreateTopicsRequest(
        topics=[
            CreatableTopic(name=name, num_partitions=count, replication_factor=1)
            for name, count in wanted
        ]
    )


EXCEEDED = int(ErrorCode.THROTTLING_QUOTA_EXCEEDED)


def test_topics_beyond_the_quota_are_refused_by_versions_that_know(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path) as rig:
            admin = await rig.peer()
            await alter(admin, {"user": USER}, "controller_mutation_rate", 1.0)
            answer = await admin.call(topics(("a", 20), ("b", 1), ("c", 1)), 7)
            assert [t.error_code for t in answer.topics] == [0, EXCEEDED, EXCEEDED]
            assert 8_000 < answer.throttle_time_ms <= 9_000
            assert is_muted(admin)
            assert set(rig.broker.metadata.topics) == {"a"}
            other = await rig.peer()
            more = CreatePartitionsRequest(topics=[CreatePartitionsTopic(name="a", count=21)])
            answer = await other.call(more, 3)
            assert (answer.results[0].error_code, answer.throttle_time_ms > 0) == (EXCEEDED, True)
            gone = DeleteTopicsRequest(topics=[DeleteTopicState(name="a")])
            answer = await (await rig.peer()).call(gone, 6)
            assert answer.responses[0].error_code == EXCEEDED
            assert set(rig.broker.metadata.topics) == {"a"}

    run(test)


def test_older_versions_are_carried_out_and_wait(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path) as rig:
            admin = await rig.peer()
            await alter(admin, {"user": USER}, "controller_mutation_rate", 1.0)
            for request, version in (
                (topics(("a", 20)), 5),
                (CreatePartitionsRequest(topics=[CreatePartitionsTopic(name="a", count=21)]), 2),
                (DeleteTopicsRequest(topic_names=["a"]), 4),
            ):
                peer = await rig.peer()
                answer = await peer.call(request, version)
                assert list(answer.error_codes()) == []
                assert answer.throttle_time_ms > 8_000
                assert is_muted(peer)

    run(test)


def test_who_may_not_make_topics_uses_no_quota_and_nobody_else_waits(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path) as rig:
            admin = await rig.peer()
            await alter(admin, {"client-id": "peer"}, "controller_mutation_rate", 1.0)
            for _ in range(3):
                answer = await admin.call(topics(("no such/name", 50)), 7)
                assert answer.topics[0].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
                assert answer.throttle_time_ms == 0
            await alter(admin, {"client-id": "peer"}, "controller_mutation_rate", None)
            await alter(admin, {"client-id": "other"}, "controller_mutation_rate", 1.0)
            for name in "abc":
                assert list((await admin.call(topics((name, 20)), 7)).error_codes()) == []

    run(test)


def test_topics_that_are_made_because_they_are_missing_count(tmp_path: Path) -> None:
    async def test() -> None:
        settings = {"auto_create_topics_enable": "true", "num_partitions": "20"}
        async with running(tmp_path, **settings) as rig:
            admin = await rig.peer()
            await alter(admin, {"client-id": "peer"}, "controller_mutation_rate", 1.0)
            codes = []
            for name in "ab":
                asked = MetadataRequest(
                    topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=True
                )
                codes.append((await admin.call(asked, 9)).topics[0].error_code)
            assert codes == [0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]

    run(test)


# -- what clients think up -------------------------------------------------------------------------


def test_a_new_client_id_for_each_request_fills_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_quotas, "BUCKETS_MAX", 20)
    monkeypatch.setattr(client_quotas, "FOUND_MAX", 30)

    async def test() -> None:
        async with running(tmp_path) as rig:
            admin = await rig.peer()
            await alter(admin, {"client-id": None}, "request_percentage", 100.0)
            peer = await rig.peer()
            for number in range(200):
                frame = bytearray(peer.frame(ApiVersionsRequest(), 0))
                frame[14:18] = f"{number:04}".encode()
                peer.send_raw(bytes(frame))
                await peer.receive()
            table = rig.broker.quotas._quotas.request
            assert len(table) <= 21
            assert len(table._found) <= 30

    run(test)


def test_throttled_clients_are_named_and_counted(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path) as rig:
            topic, peer = await rig.topic(), await rig.peer()
            await alter(peer, {"user": USER}, "producer_byte_rate", 10.0)
            await produced(peer, topic, 10_000)
            assert rig.node.metrics is not None
            shown = rig.node.metrics.registry.render().decode()
            labels = '{client_id="",quota="producer_byte_rate",user="ANONYMOUS"}'
            assert f"penstock_quota_throttles_total{labels} 1.0" in shown
            assert f"penstock_quota_throttled_seconds_total{labels} 99" in shown
            assert 'penstock_quota_waiting{quota="producer_byte_rate"} 1.0' in shown
            assert 'penstock_quota_buckets{quota="producer_byte_rate"} 1.0' in shown

    run(test)
