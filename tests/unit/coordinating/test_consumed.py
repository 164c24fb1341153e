"""What all groups have consumed is deleted, in one node and across nodes; nothing else is."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from penstock.base.errors import ErrorCode
from penstock.coordinating.consumed_offsets import ConsumedOffsets
from penstock.coordinating.consumed_retention import BLOCKED_ALARM_S
from penstock.coordinating.coordinators import java_hash
from penstock.metadata.names import OFFSETS_TOPIC
from penstock.partitions.partition import Partition
from penstock.wire.messages.delete_groups import DeleteGroupsRequest
from support.calls import RawTopic
from unit.coordinating.test_group_coordinator import FEW, commit, find
from unit.coordinating.test_share_groups import SETTINGS, move
from unit.coordinating.test_transactional_commits import FEW_TRANSACTIONS, Txn
from unit.coordinating.transaction_rig import elect
from unit.net.served import run
from unit.serving.rig import Peer, Rig, running

SEGMENTS = 4


def passes(rig: Rig) -> Any:
    return rig.broker.consumed.run_once()


async def filled(rig: Rig, peer: Peer, *, setting: str = "all-groups") -> tuple[RawTopic, Any]:
    """A log of `SEGMENTS` closed segments of two records each, looked at once before."""
    topic = await rig.topic(penstock_retention_consumed=setting, retention_ms="-1")
    log = rig.partition(topic).log
    for _ in range(SEGMENTS):
        for _ in range(2):
            assert (await peer.produce(topic)).error_code == 0
        log.roll()
    await find(peer, "g", "h")
    await settled_commit(peer, "settled", 0)
    await passes(rig)
    await drop(peer, "settled")
    return topic, log


async def settled_commit(peer: Peer, group: str, offset: int) -> None:
    """A commit, once the group's coordinator is loaded."""
    async with asyncio.timeout(20):
        while (code := await commit(peer, group, offset)) != ErrorCode.NONE:
            assert code in (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR)
            await asyncio.sleep(0.01)


async def drop(peer: Peer, group: str) -> None:
    [gone] = (await peer.call(DeleteGroupsRequest(groups_names=[group]), 2)).results
    assert gone.error_code == 0


def held(rig: Rig) -> list[tuple[str, int]]:
    return [(of.group_id, of.messages) for of in rig.broker.consumed._held]


def test_whole_segments_go_when_the_slowest_group_has_consumed_them(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path, **FEW) as rig:
            peer = await rig.peer()
            _, log = await filled(rig, peer)
            await passes(rig)
            assert (log.log_start_offset, held(rig)) == (0, [])  # a topic without any group
            await settled_commit(peer, "g", 5)
            size = log.segments[0].size + log.segments[1].size
            await passes(rig)
            assert (log.log_start_offset, len(log.segments)) == (4, SEGMENTS - 1)
            assert (held(rig), rig.broker.consumed.bytes_deleted) == ([("g", 3)], size)
            await settled_commit(peer, "h", 4)
            await settled_commit(peer, "g", 8)
            await passes(rig)
            assert (log.log_start_offset, held(rig)) == (4, [("h", 4)])
            await drop(peer, "h")
            await passes(rig)
            assert (log.log_start_offset, len(log.segments), held(rig)) == (8, 1, [("g", 0)])

    run(test)


def test_a_topic_without_the_setting_keeps_all_and_asks_nobody(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path, **FEW) as rig:
            peer = await rig.peer()
            _, log = await filled(rig, peer, setting="none")
            await settled_commit(peer, "g", 8)
            for _ in range(2):
                await passes(rig)
            assert (log.log_start_offset, rig.broker.consumed._offsets._seen) == (0, None)

    run(test)


def test_share_groups_count_by_where_their_partitions_start(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path, **SETTINGS) as rig:
            peer = await rig.peer()
            topic, log = await filled(rig, peer)
            assert (await move(peer, "t", 3)).responses[0].partitions[0].error_code == 0
            await settled_commit(peer, "h", 6)
            await passes(rig)  # the states have coordinators now
            await passes(rig)
            assert (log.log_start_offset, held(rig)) == (2, [("g", 5)])
            await move(peer, "t", 6)
            await passes(rig)
            assert log.log_start_offset == 6
            # Where it begins is to be found by its first fetch.
            codes = await rig.broker.persister.initialize("g", {(topic.id, 0): (99, -1)})
            assert set(codes.values()) == {ErrorCode.NONE}
            await settled_commit(peer, "h", 8)
            await passes(rig)
            assert (log.log_start_offset, held(rig)) == (6, [("g", 8)])

    run(test)


@pytest.mark.parametrize("committed", [True, False])
def test_offsets_of_an_open_transaction_count_when_it_ends(tmp_path: Path, committed: bool) -> None:
    async def test() -> None:
        async with running(tmp_path, **FEW_TRANSACTIONS) as rig:
            peer = await rig.peer()
            _, log = await filled(rig, peer)
            await settled_commit(peer, "h", 8)
            await find(peer, "x", kind=1)
            txn = Txn(peer)
            await txn.begin()
            await txn.add_offsets()
            assert await txn.commit(6) == 0
            await passes(rig)  # of `g` nothing is committed yet: it is not known where it is
            assert (log.log_start_offset, held(rig)) == (0, [])
            assert rig.broker.consumed._blocked_since.keys() == {"t"}
            await settled_commit(peer, "g", 2)
            await txn.commit(6)
            await passes(rig)
            assert (log.log_start_offset, rig.broker.consumed._blocked_since) == (2, {})
            await txn.end(commit=committed)
            async with asyncio.timeout(20):
                while log.log_start_offset != (6 if committed else 2) or held(rig) == []:
                    await passes(rig)

    run(test)


@pytest.mark.uncompiled  # the clock is set
def test_nothing_goes_right_after_a_coordinator_has_changed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test() -> None:
        async with running(tmp_path, **FEW) as rig:
            peer = await rig.peer()
            _, log = await filled(rig, peer)
            await settled_commit(peer, "g", 8)
            await elect(rig, OFFSETS_TOPIC, 0, rig.broker.node_id)
            await passes(rig)
            assert log.log_start_offset == 0
            await elect(rig, OFFSETS_TOPIC, 0, rig.broker.node_id)
            retention, now_ms = rig.broker.consumed, rig.broker.clock.now_ms()
            later_ms = now_ms + BLOCKED_ALARM_S * 1000 + 5_000
            monkeypatch.setattr(rig.broker.clock, "now_ms", lambda: later_ms)
            await passes(rig)
            assert "coordinators have changed" in caplog.text
            [blocked] = [r for r in retention.readings() if "blocked" in r.metric.name]
            assert next(sample.value for sample in blocked.samples) >= BLOCKED_ALARM_S
            async with asyncio.timeout(20):
                while log.log_start_offset != 8:
                    await passes(rig)
            assert not retention._blocked_since

    run(test)


def test_a_node_that_does_not_coordinate_all_that_it_should_is_not_believed(tmp_path: Path) -> None:
    """Its groups may be elsewhere by now."""

    async def test() -> None:
        async with running(tmp_path, **FEW) as rig:
            peer = await rig.peer()
            _, log = await filled(rig, peer)
            await settled_commit(peer, "g", 8)
            real = rig.broker.groups.submit

            def moved(key: str, request: Any, version: int, *who: Any) -> Any:
                answer = real(key, request, version, *who)
                if java_hash(key) % 4 == 2 and key.startswith("penstock.probe."):
                    answer.groups[0].error_code = ErrorCode.NOT_COORDINATOR
                return answer

            rig.broker.groups.submit = moved  # type: ignore[method-assign]
            await passes(rig)
            assert log.log_start_offset == 0
            rig.broker.groups.submit = real  # type: ignore[method-assign]
            await passes(rig)
            assert log.log_start_offset == 8

    run(test)


def test_another_leadership_is_not_judged_by_what_was_asked_for_the_last(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path, **FEW) as rig:
            peer = await rig.peer()
            topic, log = await filled(rig, peer)
            await settled_commit(peer, "g", 8)
            offsets, partition = rig.broker.consumed._offsets, rig.partition(topic)
            real = offsets.slowest

            async def meanwhile(*asked: Any) -> Any:
                found = await real(*asked)
                await elect(rig, "t", 0, rig.broker.node_id)
                return found

            epoch = partition.leader_epoch
            offsets.slowest = meanwhile  # type: ignore[method-assign]
            await passes(rig)
            assert (log.log_start_offset, partition.leader_epoch > epoch) == (0, True)
            offsets.slowest = real  # type: ignore[method-assign]
            await passes(rig)
            assert log.log_start_offset == 8

    run(test)


def test_a_transaction_that_is_open_in_the_log_is_kept(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path, **FEW) as rig:
            peer = await rig.peer()
            topic, log = await filled(rig, peer)
            await settled_commit(peer, "g", 8)
            partition: Partition = rig.partition(topic)
            partition.log.producers.ongoing[4] = None  # type: ignore[assignment]
            await passes(rig)
            assert log.log_start_offset == 4

    run(test)


@pytest.mark.parametrize("count", [1, 4, 50])
def test_there_is_a_probe_for_every_partition_of_the_offsets(count: int) -> None:
    leaders = {(OFFSETS_TOPIC, index): (index % 3, 7) for index in range(count)}
    probes = ConsumedOffsets._probes(None, leaders)  # type: ignore[arg-type]
    assert probes.keys() == {leader for leader, _ in leaders.values()}
    places = {java_hash(p) % count: node for node, found in probes.items() for p in found}
    assert places == {index: index % 3 for index in range(count)}
    assert sum(map(len, probes.values())) == count
