"""Fetches over very many partitions: others are served in between, and nothing is missed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from penstock.api.registry import DECODED_AT_ONCE_BYTES_MAX
from penstock.net import turn
from penstock.partitions.waiting import RELEASED
from penstock.serving.read import PARTITIONS_PER_STEP
from penstock.serving.read_plan import ReadPlanner
from penstock.serving.read_session import PARTITIONS_AT_ONCE_MAX
from penstock.wire.messages.api_versions import ApiVersionsRequest
from penstock.wire.messages.fetch import ReplicaState
from support import calls
from support.batches import batch
from support.calls import RawTopic
from unit.net.served import run
from unit.partitions.replica_rig import staged
from unit.serving.rig import Peer, Rig, running, until, waiting_reads

MANY = 6 * PARTITIONS_AT_ONCE_MAX
LONG_MS = 60_000
ONE = batch([b"v"])


@pytest.fixture(autouse=True)
def _short_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turn, "TURN_NS_MAX", -1)


def with_topic(tmp_path: Path, test: Callable[[Rig, Peer, RawTopic], Awaitable[None]]) -> None:
    """Nothing stays registered or accounted for when its clients are gone."""

    async def whole() -> None:
        async with running(tmp_path) as rig:
            topic = await rig.topic("t", MANY)
            await test(rig, await rig.peer(), topic)
            rig.close_peers()
            await until(lambda: not rig.server.connections)
            assert rig.server.memory.used_bytes == 0
            for partition in rig.broker.replicas.open_partitions():
                readers = [*partition.readers.consumers, *partition.readers.followers]
                assert all(reader.session.id for reader in readers)  # type: ignore[attr-defined]

    run(whole)


def request(topic: RawTopic, offsets: dict[int, int] | None = None, **how: Any) -> Any:
    wanted = dict.fromkeys(range(MANY), 0) if offsets is None else offsets
    return calls.fetch_request([(topic, wanted)] if wanted else [], 16, **how)


async def turns_of(peer: Peer, wanted: Any) -> tuple[int, Any]:
    """How many turns of the loop there were before the request was answered."""
    peer.deliver(wanted, 16)
    turns = 0
    while peer.inside.pending:
        await asyncio.sleep(0)
        turns += 1
    return turns, await peer.receive()


def found(answer: Any) -> dict[int, bytes]:
    assert answer.error_code == 0
    return {
        p.partition_index: bytes(p.records or b"") for t in answer.responses for p in t.partitions
    }


def planned(rig: Rig) -> int:
    """At how many partitions of the topic a fetch has been counted."""
    one = next((p for p in rig.broker.replicas.open_partitions() if p.topic == "t"), None)
    return 0 if one is None else one.counters.fetch_requests


def test_between_any_two_turns_only_some_partitions_are_checked(tmp_path: Path) -> None:
    async def test(rig: Rig, peer: Peer, topic: RawTopic) -> None:
        other = await rig.peer()
        await peer.produce(topic, ONE, partition=MANY - 1)
        before, steps = planned(rig), []
        peer.deliver(request(topic), 16)
        while peer.inside.pending:
            before, was = planned(rig), before
            steps.append(before - was)
            await asyncio.sleep(0)
        assert max(steps) <= PARTITIONS_PER_STEP
        assert sum(steps) == MANY
        answer = found(await peer.receive())
        assert list(answer) == list(range(MANY))
        assert [len(records) for records in answer.values()] == [0] * (MANY - 1) + [len(ONE)]
        peer.deliver(request(topic), 16)
        assert (await other.call(ApiVersionsRequest(), 0)).error_code == 0
        assert peer.inside.pending  # the other one did not have to wait for it
        assert found(await peer.receive()) == answer

    with_topic(tmp_path, test)


def test_planning_reading_and_encoding_take_their_turns(tmp_path: Path) -> None:
    async def test(rig: Rig, peer: Peer, topic: RawTopic) -> None:
        turns, _ = await turns_of(peer, request(topic))
        assert turns >= 3 * MANY / PARTITIONS_PER_STEP
        few = dict.fromkeys(range(PARTITIONS_AT_ONCE_MAX), 0)
        peer.deliver(request(topic, few), 16)
        assert not peer.inside.pending  # answered at once
        assert len(found(await peer.receive())) == len(few)

    with_topic(tmp_path, test)


@pytest.mark.parametrize("epoch", [-1, 0], ids=["full", "session"])
def test_what_arrives_while_others_are_checked_ends_the_wait(tmp_path: Path, epoch: int) -> None:
    async def test(rig: Rig, peer: Peer, topic: RawTopic) -> None:
        other = await rig.peer()
        wanted = request(topic, max_wait_ms=LONG_MS, session_epoch=epoch)
        peer.deliver(wanted, 16)
        await until(lambda: planned(rig) > PARTITIONS_PER_STEP)
        assert planned(rig) < MANY
        assert (await other.produce(topic, ONE, partition=0)).error_code == 0
        answer = await peer.receive()
        assert found(answer)[0]
        if answer.session_id:
            again = request(
                topic, {}, max_wait_ms=LONG_MS, session_id=answer.session_id, session_epoch=1
            )
            peer.deliver(again, 16)
            assert found(await peer.receive()).keys() == {0}

    with_topic(tmp_path, test)


@pytest.mark.parametrize("epoch", [-1, 0], ids=["full", "session"])
def test_a_read_of_many_waits_for_as_much_as_it_wants(tmp_path: Path, epoch: int) -> None:
    async def test(rig: Rig, peer: Peer, topic: RawTopic) -> None:
        other = await rig.peer()
        wanted = request(topic, max_wait_ms=LONG_MS, min_bytes=2 * len(ONE), session_epoch=epoch)
        peer.deliver(wanted, 16)
        [read] = await until(lambda: waiting_reads(rig.partition(topic, MANY - 1)))
        await until(lambda: read.waits_since_ns)
        await other.produce(topic, ONE, partition=1)
        read.moved(0, RELEASED)  # all of it is counted again
        await until(lambda: not read._counting and not read._released)
        assert peer.inside.pending
        await other.produce(topic, ONE, partition=2)
        answer = found(await peer.receive())
        assert [i for i, records in answer.items() if records] == [1, 2]

    with_topic(tmp_path, test)


def test_a_session_of_many_tells_each_thing_once(tmp_path: Path) -> None:
    async def test(rig: Rig, peer: Peer, topic: RawTopic) -> None:
        opened = await peer.call(request(topic, session_epoch=0), 16)
        for i in range(MANY):
            await peer.produce(topic, ONE, partition=i)
        in_session = {"session_id": opened.session_id}
        turns, answer = await turns_of(peer, request(topic, {}, session_epoch=1, **in_session))
        assert found(answer) == dict.fromkeys(range(MANY), found(answer)[0])
        assert turns >= MANY / PARTITIONS_PER_STEP
        read_on = request(topic, dict.fromkeys(range(MANY), 1), session_epoch=2, **in_session)
        assert found((await turns_of(peer, read_on))[1]) == {}
        peer.deliver(request(topic, {}, session_epoch=3, **in_session), 16)
        assert not peer.inside.pending  # nothing has changed, and nothing is checked
        assert found(await peer.receive()) == {}

    with_topic(tmp_path, test)


def test_a_request_that_names_many_is_decoded_in_turns(tmp_path: Path) -> None:
    async def test(rig: Rig, peer: Peer, topic: RawTopic) -> None:
        absent = DECODED_AT_ONCE_BYTES_MAX // 30
        far = dict.fromkeys(range(MANY, MANY + absent), 0)
        wanted = request(topic, {0: 0} | far, session_epoch=0)
        turns, opened = await turns_of(peer, wanted)
        assert turns >= absent / PARTITIONS_PER_STEP
        assert len(found(opened)) == absent + 1
        [session] = rig.broker.services.sessions._sessions.values()
        assert len(session.partitions) == absent + 1
        less = request(
            topic,
            {1: 0},
            session_id=opened.session_id,
            session_epoch=1,
            forgotten=[(topic, [*far] * 8)],
        )
        await turns_of(peer, less)
        assert [index for _, index in session.partitions] == [0, 1]
        last = request(
            topic,
            {},
            session_id=opened.session_id,
            session_epoch=2,
            forgotten=[(topic, [*range(10_000)])],
        )
        assert found((await turns_of(peer, last))[1]) == {}
        assert not rig.broker.services.sessions._sessions

    with_topic(tmp_path, test)


def test_a_large_request_that_cannot_be_read_closes_its_connection(tmp_path: Path) -> None:
    async def test(rig: Rig, peer: Peer, topic: RawTopic) -> None:
        raw = peer.frame(request(topic, dict.fromkeys(range(5_000), 0)), 16)[4:-100]
        peer.send_raw(len(raw).to_bytes(4, "big") + raw)
        assert await peer.is_closed()
        assert rig.server.refused_total == {"protocol": 1}

    with_topic(tmp_path, test)


def test_a_client_that_goes_leaves_nothing_behind(tmp_path: Path) -> None:
    """Whenever it goes: while its request is decoded, planned, or waits."""

    async def test(rig: Rig, peer: Peer, topic: RawTopic) -> None:
        for turns in (0, 1, 5, 20, 40, 100):
            offsets = dict.fromkeys(range(MANY + 500 * (turns % 2)), 0)
            gone = await rig.peer()
            gone.deliver(request(topic, offsets, max_wait_ms=LONG_MS), 16)
            for _ in range(turns):
                await asyncio.sleep(0)
            gone.close()
            await until(lambda: len(rig.server.connections) == 1)
        assert not any(waiting_reads(p) for p in rig.broker.replicas.open_partitions())
        assert (await peer.produce(topic, ONE)).error_code == 0

    with_topic(tmp_path, test)


@pytest.mark.uncompiled  # which does not find what replaces a method
def test_a_read_that_fails_unexpectedly_closes_its_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test(rig: Rig, peer: Peer, topic: RawTopic) -> None:
        plan, calls_ = ReadPlanner.plan, [0]

        def fails(*args: Any, **how: Any) -> Any:
            calls_[0] += 1
            if calls_[0] == 3:
                raise RuntimeError("on purpose")
            return plan(*args, **how)

        with monkeypatch.context() as patch:
            patch.setattr(ReadPlanner, "plan", fails)
            peer.deliver(request(topic), 16)
            assert await peer.is_closed()

    with_topic(tmp_path, test)


def test_the_progress_of_a_follower_of_many_is_noted_in_turns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One partition is many here."""
    monkeypatch.setattr("penstock.serving.read.PARTITIONS_AT_ONCE_MAX", 0)
    monkeypatch.setattr("penstock.serving.read_session.PARTITIONS_AT_ONCE_MAX", 0)

    async def test() -> None:
        async with staged(tmp_path, 1, 2) as stage:
            await stage.leave(2, fence=False)
            topic = stage.topic(1, 2)
            peer = await stage.actors[1].peer()
            for _ in range(3):
                await peer.produce(topic, ONE, acks=1)
            leader = stage.actors[1].partition()
            state = ReplicaState(replica_id=2, replica_epoch=2)
            as_follower = {"replica_state": state, "max_wait_ms": LONG_MS}
            answer = await peer.call(request(topic, {0: 2}, **as_follower), 16)
            assert leader.high_watermark == 2
            assert found(answer)[0]
            # The next request of the follower ends one that is still being planned, or waits.
            peer.send(request(topic, {0: 3}, **as_follower), 16)
            peer.send(ApiVersionsRequest(), 0)
            assert found(await peer.receive()) == {0: b""}
            assert leader.high_watermark == 3
            assert (await peer.receive()).error_code == 0

    run(test)
