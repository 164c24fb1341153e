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


def test_a_fetch_that_waited_was_heard_when_it_came(tmp_path: Path) -> None:
    async def test() -> None:
        metadata = await Metadata(tmp_path).begin()
        quorum = metadata.driver.quorum
        reader = ReplicaKey(2, b"e" * 16)
        end = quorum.log_end_offset
        request = fetch_request(reader, end, quorum.epoch, quorum.epoch, cluster_id="cluster")
        request.max_wait_ms = WAIT_MS
        request.topics[0].partitions[0].high_watermark = end
        answers: list[Any] = []
        came_ms = metadata.driver.now_ms()
        metadata.driver.fetches.fetch(request, answers.append)
        waited_from_ms = metadata.driver.now_ms()
        assert not answers
        await until(lambda: answers)
        assert answers[0].responses[0].partitions[0].error_code == 0
        assert metadata.driver.now_ms() >= waited_from_ms + WAIT_MS - 1
        role = quorum._core.role
        assert isinstance(role, Leader)
        assert came_ms <= role.replicas[reader].heard_ms <= waited_from_ms
        assert came_ms <= role.replicas[reader].last_fetch_ms <= waited_from_ms
        metadata.stop()

    run(test)
