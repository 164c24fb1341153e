"""Fetches of the metadata log that wait: what they say of who fetches."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from penstock.raft.states import Leader
from penstock.raft.types import ReplicaKey
from unit.controlling.test_quorum_driver import Metadata
from unit.net.served import run
from unit.raft.rig import fetch_request
from unit.serving.rig import until

WAIT_MS = 60
READER = ReplicaKey(2, b"e" * 16)


def waiting_fetch(metadata: Metadata) -> Any:
    """The fetch of a reader that has everything."""
    quorum = metadata.driver.quorum
    end = quorum.log_end_offset
    request = fetch_request(READER, end, quorum.epoch, quorum.epoch, cluster_id="cluster")
    request.max_wait_ms = WAIT_MS
    request.topics[0].partitions[0].high_watermark = end
    return request


def test_who_waits_when_the_quorum_stops_has_to_look_elsewhere(tmp_path: Path) -> None:
    async def test() -> None:
        metadata = await Metadata(tmp_path).begin()
        answers: list[Any] = []
        forgotten: list[Any] = []
        metadata.driver.fetches.fetch(waiting_fetch(metadata), "", answers.append)
        metadata.driver.fetches.fetch(waiting_fetch(metadata), "", forgotten.append).cancel()
        metadata.stop()
        assert answers == [None]
        assert forgotten == []

    run(test)


def test_a_fetch_that_waited_was_heard_when_it_came(tmp_path: Path) -> None:
    async def test() -> None:
        metadata = await Metadata(tmp_path).begin()
        quorum = metadata.driver.quorum
        answers: list[Any] = []
        came_ms = metadata.driver.now_ms()
        metadata.driver.fetches.fetch(waiting_fetch(metadata), "", answers.append)
        waited_from_ms = metadata.driver.now_ms()
        assert not answers
        await until(lambda: answers)
        assert answers[0].responses[0].partitions[0].error_code == 0
        assert metadata.driver.now_ms() >= waited_from_ms + WAIT_MS - 1
        role = quorum._core.role
        assert isinstance(role, Leader)
        assert came_ms <= role.replicas[READER].heard_ms <= waited_from_ms
        assert came_ms <= role.replicas[READER].last_fetch_ms <= waited_from_ms
        metadata.stop()

    run(test)
