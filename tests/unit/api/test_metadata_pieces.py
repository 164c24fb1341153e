"""Metadata answers are made of kept pieces: never out of date, never too many, never too long."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from penstock.api import metadata as metadata_api
from penstock.metadata.delta import MetadataDelta
from penstock.metadata.image import Topic
from penstock.net import turn
from penstock.serving.topic_pieces import ALL_TOPICS_FORMS_MAX, TopicPieces
from penstock.wire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from penstock.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)
from penstock.wire.pieces import piece_bytes
from unit.net.served import run
from unit.serving.cluster_rig import nodes
from unit.serving.rig import ANSWER_SECONDS_MAX, Peer, running

VERSION = 12
FORM = (VERSION, False)


def test_answers_follow_what_happens_to_a_topic(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path) as rig:
            peer = await rig.peer()
            await rig.topic("t", 2)
            first = await _asked(peer, "t")
            assert len(first.partitions) == 2
            assert await _asked(peer, "t") == first
            more = CreatePartitionsTopic(name="t", count=5, assignments=None)
            await peer.call(CreatePartitionsRequest(topics=[more], timeout_ms=5000), 3)
            assert len((await _asked(peer, "t")).partitions) == 5
            await rig.delete_topic("t")
            assert (await _asked(peer, "t")).error_code == 3
            await rig.topic("t", 1)
            again = await _asked(peer, "t")
            assert (len(again.partitions), again.topic_id != first.topic_id) == (1, True)

    run(test)


def test_answers_follow_what_happens_to_brokers(tmp_path: Path) -> None:
    async def test() -> None:
        async with nodes(tmp_path) as cluster:
            lost, asked = cluster.others
            await cluster.create(asked, "t")
            await cluster.all_know("t")
            peer = await cluster.peer(asked)
            request = MetadataRequest(topics=[MetadataRequestTopic(name="t")])

            async def offline() -> set[int]:
                (topic,) = (await peer.send(request)).topics
                return {id_ for p in topic.partitions for id_ in p.offline_replicas}

            assert await offline() == set()
            await cluster.stop(lost)
            async with asyncio.timeout(ANSWER_SECONDS_MAX):
                while await offline() != {lost}:
                    await asyncio.sleep(0.02)
            await cluster.start(lost)
            async with asyncio.timeout(ANSWER_SECONDS_MAX):
                while await offline():
                    await asyncio.sleep(0.02)

    run(test)


def test_each_version_and_each_wish_has_pieces_of_its_own(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path) as rig:
            peer = await rig.peer()
            await rig.topic("t", 2)
            seen: dict[tuple[int, bool], Any] = {}
            for _ in range(2):
                for version in (*MetadataResponse.VERSIONS, *reversed(MetadataResponse.VERSIONS)):
                    for wishes in (False, True) if version >= 8 else (False,):
                        answer = await _asked(peer, "t", version, wishes=wishes)
                        assert seen.setdefault((version, wishes), answer) == answer
            assert seen[8, False] != seen[8, True]
            assert len(rig.broker.topics.pieces) == len(seen)

    run(test)


def test_all_of_many_topics_are_answered_in_turns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metadata_api, "PARTITIONS_AT_ONCE_MAX", 4)
    monkeypatch.setattr(turn, "TURN_NS_MAX", 0)

    async def test() -> None:
        async with running(tmp_path) as rig:
            peer = await rig.peer()
            names = [f"t{i}" for i in range(9)]
            for name in names:
                await rig.topic(name, 2)
            peer.deliver(MetadataRequest(topics=None), VERSION)
            kept = [0]
            while peer.inside.pending:
                await asyncio.sleep(0)
                kept.append(len(rig.broker.topics.pieces))
            assert max(after - before for before, after in pairwise(kept)) == 1
            answer = await peer.receive()
            assert [topic.name for topic in answer.topics] == names
            assert all(len(topic.partitions) == 2 for topic in answer.topics)
            assert await peer.call(MetadataRequest(topics=None), VERSION) == answer

    run(test)


def test_a_topic_that_goes_meanwhile_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metadata_api, "PARTITIONS_AT_ONCE_MAX", 1)
    monkeypatch.setattr(turn, "TURN_NS_MAX", 0)

    async def test() -> None:
        async with running(tmp_path) as rig:
            peer = await rig.peer()
            for name in ("a", "b", "c"):
                await rig.topic(name, 1)
            peer.deliver(MetadataRequest(topics=None), VERSION)
            await rig.delete_topic("c")
            answer = await peer.receive()
            assert {topic.name for topic in answer.topics} - {"c"} == {"a", "b"}
            answer = await peer.call(MetadataRequest(topics=None), VERSION)
            assert [topic.name for topic in answer.topics] == ["a", "b"]

    run(test)


def test_what_is_kept_is_limited() -> None:
    def piece(name: str) -> MetadataResponseTopic:
        return MetadataResponse.piece(MetadataResponseTopic(name=name), VERSION)

    ids = [bytes([i]) * 16 for i in range(4)]
    size = piece_bytes(piece("t0"))
    pieces = TopicPieces(bytes_max=3 * size)
    for i in range(3):
        pieces.put(ids[i], FORM, piece(f"t{i}"), size)
    assert pieces.get(ids[0], FORM) is not None  # asked for last, so t1 goes
    pieces.put(ids[3], FORM, piece("t3"), size)
    assert [pieces.get(id_, FORM) is not None for id_ in ids] == [True, False, True, True]
    assert pieces.get(ids[0], (11, False)) is None
    pieces.put(ids[0], (11, False), piece("t0"), size)  # another form takes room too: t2 goes
    assert [pieces.get(id_, FORM) is not None for id_ in ids] == [True, False, False, True]
    assert len(pieces) == 3


def test_what_has_changed_is_forgotten() -> None:
    pieces = TopicPieces()
    ids = [bytes([i]) * 16 for i in range(4)]

    def fill() -> None:
        for id_ in ids:
            if pieces.get(id_, FORM) is None:
                topic = MetadataResponseTopic(name="t", topic_id=id_)
                pieces.put(id_, FORM, MetadataResponse.piece(topic, VERSION), 1)

    fill()
    pieces.apply(
        MetadataDelta(
            changed_partitions={(ids[1], 0), (ids[1], 3), (b"?" * 16, 0)},
            deleted_topics={ids[2]: Topic("gone", ids[2])},
        )
    )
    assert [pieces.get(id_, FORM) is not None for id_ in ids] == [True, False, False, True]
    fill()
    pieces.apply(MetadataDelta(changed_brokers={7}))
    assert len(pieces) == 0


async def _asked(peer: Peer, name: str, version: int = VERSION, *, wishes: bool = False) -> Any:
    request = MetadataRequest(
        topics=[MetadataRequestTopic(name=name)],
        allow_auto_topic_creation=version < 4,
        include_topic_authorized_operations=wishes,
    )
    (topic,) = (await peer.call(request, version)).topics
    return topic


def test_clients_that_ask_for_everything_at_once_are_answered_one_in_a_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether they read the answers or not; what another client sends comes in between."""
    monkeypatch.setattr(metadata_api, "PARTITIONS_AT_ONCE_MAX", 20)
    monkeypatch.setattr(turn, "TURN_NS_MAX", 0)
    answers = 0
    respond = metadata_api._response

    def counted(*args: Any) -> MetadataResponse:
        nonlocal answers
        answers += 1
        return respond(*args)

    monkeypatch.setattr(metadata_api, "_response", counted)

    async def test() -> None:
        async with running(tmp_path) as rig:
            for i in range(10):
                await rig.topic(f"t{i}", 10)
            peers = [await rig.peer() for _ in range(8)]
            for peer in peers:
                for _ in range(5):
                    peer.deliver(MetadataRequest(topics=None), VERSION)
            most = 0
            while answers < 40:
                before = answers
                await asyncio.sleep(0)
                most = max(most, answers - before)
            assert most == 1
            for peer in peers:
                for _ in range(5):
                    assert len((await peer.receive()).topics) == 10

    run(test)


def test_what_is_said_of_all_topics_follows_each_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metadata_api, "PARTITIONS_AT_ONCE_MAX", 1)
    monkeypatch.setattr(turn, "TURN_NS_MAX", 0)

    async def test() -> None:
        async with running(tmp_path) as rig:
            peer = await rig.peer()
            await rig.topic("a", 2)
            await rig.topic("b", 1)

            async def all_topics(version: int = VERSION) -> list[tuple[str, int]]:
                answer = await peer.call(MetadataRequest(topics=None), version)
                return sorted((topic.name, len(topic.partitions)) for topic in answer.topics)

            assert await all_topics() == [("a", 2), ("b", 1)]
            await rig.topic("c", 3)
            assert await all_topics() == [("a", 2), ("b", 1), ("c", 3)]
            await rig.delete_topic("a")
            assert await all_topics() == [("b", 1), ("c", 3)]
            more = CreatePartitionsTopic(name="b", count=4, assignments=None)
            await peer.call(CreatePartitionsRequest(topics=[more], timeout_ms=5000), 3)
            for version in range(1, 14):
                assert await all_topics(version) == [("b", 4), ("c", 3)]
            assert len(rig.broker.topics.pieces._all) == ALL_TOPICS_FORMS_MAX

    run(test)


def test_names_stay_sorted() -> None:
    pieces, ids = TopicPieces(), [bytes([i]) * 16 for i in range(4)]
    assert pieces.sorted_names(["b", "d", "a"]) == ["a", "b", "d"]
    made = {ids[0]: Topic("c", ids[0]), ids[1]: Topic("e", ids[1]), ids[2]: Topic("a", ids[2])}
    pieces.apply(
        MetadataDelta(
            created_topics=made,
            deleted_topics={ids[3]: Topic("d", ids[3]), ids[2]: Topic("a", ids[2])},
        )
    )
    assert pieces.sorted_names([]) == ["a", "b", "c", "e"]


def test_many_topics_by_name_are_answered_in_turns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metadata_api, "PARTITIONS_AT_ONCE_MAX", 2)
    monkeypatch.setattr(turn, "TURN_NS_MAX", 0)

    async def test() -> None:
        async with running(tmp_path) as rig:
            names = [f"t{i}" for i in range(5)]
            for name in names:
                await rig.topic(name, 1)
            peer = await rig.peer()
            wanted = [MetadataRequestTopic(name=name) for name in (*names, "none")]
            request = MetadataRequest(topics=wanted, allow_auto_topic_creation=False)
            answer = await peer.call(request, VERSION)
            told = [(topic.name, topic.error_code) for topic in answer.topics]
            assert told == [*((name, 0) for name in names), ("none", 3)]

    run(test)
