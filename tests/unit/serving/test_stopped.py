"""A replica that breaks an invariant serves nobody any more; metadata that cannot be followed ends
the node.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock.base.errors import ErrorCode, InvariantBroken, invariant
from penstock.config.broker_config import broker_config
from penstock.log.log import Log
from penstock.node import main
from penstock.node.node import NodeFailed
from penstock.partitions.partition import Partition
from penstock.serving.broker import Broker
from penstock.wire.messages.describe_log_dirs import DescribeLogDirsRequest
from penstock.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from support.raw import Closed
from unit.net.served import run
from unit.serving.cluster_rig import nodes
from unit.serving.rig import Peer, Rig, produce_request, running, until, waiting_reads

STORAGE = ErrorCode.KAFKA_STORAGE_ERROR


async def list_offsets(peer: Peer, topic: str) -> Any:
    request = ListOffsetsRequest(
        topics=[
            ListOffsetsTopic(
                name=topic, partitions=[ListOffsetsPartition(partition_index=0, timestamp=-1)]
            )
        ]
    )
    [found] = (await peer.call(request, 7)).topics
    return found.partitions[0]


def test_a_stopped_replica_answers_those_who_wait_and_nobody_afterwards(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path) as rig:
            topic, other = await rig.topic(flush_messages="1"), await rig.topic("other")
            writer, reader = await rig.peer(), await rig.peer()
            await writer.produce(topic)
            with rig.held_flushes():
                writer.send(produce_request(topic, None), 12)
                reading = asyncio.create_task(reader.fetch(topic, 1, max_wait_ms=60_000))
                partition = rig.partition(topic)
                await until(lambda: waiting_reads(partition))
                await until(lambda: partition.log.log_end_offset == 2)
                partition.stop("a test says so")
                [answer] = (await writer.receive()).responses
                assert answer.partition_responses[0].error_code == STORAGE
                assert (await reading).error_code == STORAGE
            assert (await writer.produce(topic)).error_code == STORAGE
            assert (await reader.fetch(topic, 0)).error_code == STORAGE
            assert (await list_offsets(reader, topic.name)).error_code == STORAGE
            assert (await writer.produce(other)).error_code == 0
            [whole, failed] = (await reader.call(DescribeLogDirsRequest(topics=None), 4)).results
            assert (whole.error_code, failed.error_code) == (0, STORAGE)
            assert failed.log_dir == f"{tmp_path}/t-0"
            assert scraped(rig, "penstock_stopped_partitions") == 1
        async with running(tmp_path) as rig:  # a start reads the log anew
            peer = await rig.peer()
            assert (await peer.produce(topic)).base_offset == 2
            assert scraped(rig, "penstock_stopped_partitions") == 0

    run(test)


def test_the_status_of_the_cluster_shows_what_was_stopped(tmp_path: Path) -> None:
    async def status(rig: Rig, *options: str) -> tuple[int, str]:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *("-m", "penstock.cli", "cluster", "status", "-b", rig.node.kafka_address, *options),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        output, _ = await process.communicate()
        assert process.returncode is not None
        return process.returncode, output.decode()

    async def test() -> None:
        async with running(tmp_path) as rig:
            topic = await rig.topic()
            rig.partition(topic)
            code, text = await status(rig)
            assert (code, "healthy" in text) == (0, True)
            rig.partition(topic).stop("a test says so")
            code, text = await status(rig)
            assert code != 0
            assert "some replicas were stopped" in text
            assert f"{tmp_path}/t-0 on node 1 serves nobody" in " ".join(text.split())
            code, text = await status(rig, "--format", "json")
            assert json.loads(text)["failed_folders"] == [{"node": 1, "folder": f"{tmp_path}/t-0"}]

    run(test)


def scraped(rig: Rig, name: str) -> float:
    assert rig.node.metrics is not None
    text = rig.node.metrics.registry.render().decode()
    [value] = re.findall(rf"^{name} (\S+)$", text, re.MULTILINE)
    return float(value)


@pytest.mark.uncompiled
def test_an_invariant_that_breaks_in_a_write_stops_the_partition(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test() -> None:
        async with running(tmp_path) as rig:
            topic, other = await rig.topic(), await rig.topic("other")
            peer = await rig.peer()
            await peer.produce(topic)
            real = Log.write_staged

            def broken(log: Log) -> None:
                invariant(log.topic_partition.topic != topic.name, "a broken log")
                real(log)

            monkeypatch.setattr(Log, "write_staged", broken)
            answer = await peer.produce(topic)
            assert answer.error_code == STORAGE
            assert "a broken log" in answer.error_message
            monkeypatch.setattr(Log, "write_staged", real)
            # Not a full disk, which would heal: the replica is not opened again.
            assert (await peer.produce(topic)).error_code == STORAGE
            assert (await peer.produce(other)).error_code == 0
            [stopped] = rig.broker.replicas.stopped.values()
            assert stopped.reason == "a broken log"

    run(test)


@pytest.mark.uncompiled
def test_an_invariant_that_breaks_in_retention_stops_the_partition(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test() -> None:
        async with running(tmp_path) as rig:
            topic = await rig.topic()
            peer = await rig.peer()
            await peer.produce(topic)

            def broken(log: Log, now_ms: int) -> int:
                raise InvariantBroken("a broken log")

            monkeypatch.setattr("penstock.log.manager.delete_old_segments", broken)
            for _ in rig.broker.logs.retention_steps(rig.broker.clock.now_ms()):
                pass
            assert (await peer.produce(topic)).error_code == STORAGE
            [stopped] = rig.broker.replicas.stopped.values()
            assert stopped.reason == "a broken log"

    run(test)


def stopped(partition: Partition) -> None:
    partition.stop("a test says so")


def refuses_writes(partition: Partition) -> None:
    partition.log.health.fail_for_good("fsync failed: a test says so")
    partition.flush_failed("fsync failed: a test says so")


@pytest.mark.parametrize("fails", [stopped, refuses_writes])
def test_a_leader_that_is_stopped_or_refuses_writes_hands_over_to_a_replica_in_sync(
    tmp_path: Path, fails: Callable[[Partition], None]
) -> None:
    async def test() -> None:
        async with nodes(tmp_path) as cluster:
            await cluster.create(1, "t")
            await cluster.all_know("t")
            registered = cluster.broker(1).metadata.topics["t"].partitions
            leader = registered[0].leader
            partition = cluster.broker(leader).replicas.leader_of("t", 0)
            await until(lambda: len(registered[0].isr) == 3)
            fails(partition)
            others = [n for n in (1, 2, 3) if n != leader]
            await until(
                lambda: all(
                    cluster.broker(n).metadata.topics["t"].partitions[0].leader in others
                    for n in (1, 2, 3)
                )
            )
            now = cluster.broker(leader).metadata.topics["t"].partitions[0]
            assert leader not in now.isr
            taken = cluster.broker(now.leader).replicas.leader_of("t", 0)
            assert taken.log.log_end_offset == 0

    run(test)


def test_metadata_that_cannot_be_followed_ends_the_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test() -> None:
        async with running(tmp_path) as rig:
            before, peer = await rig.topic("before"), await rig.peer()
            real = Broker.apply

            def broken(broker: Broker, delta: Any) -> None:
                if "t" in broker.metadata.topics:
                    raise InvariantBroken("no such thing")
                real(broker, delta)

            rig.broker.quorum.metadata._listeners[0] = lambda d: broken(rig.broker, d)
            with pytest.raises((AssertionError, TimeoutError, Closed)):
                async with asyncio.timeout(0.3):
                    await rig.topic()
            assert rig.node.failed is not None
            assert "no such thing" in await asyncio.wait_for(rig.node.failed, 5)
            assert not rig.node.health().live
            with pytest.raises(Closed):
                await peer.produce(before)
            with pytest.raises(NodeFailed):
                await rig.node.unless_failed(asyncio.sleep(60))

    run(test)


def test_records_that_cannot_be_applied_end_the_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test() -> None:
        async with running(tmp_path) as rig:
            before, peer = await rig.topic("before"), await rig.peer()

            def broken(*_: Any) -> None:
                raise InvariantBroken("no such record")

            committed = rig.broker.quorum.metadata
            monkeypatch.setattr(committed, "_apply_decided", broken)
            with pytest.raises((AssertionError, TimeoutError, Closed)):
                async with asyncio.timeout(0.3):
                    await rig.topic()
            assert rig.node.failed is not None
            assert "no such record" in await asyncio.wait_for(rig.node.failed, 5)
            with pytest.raises(Closed):
                await peer.produce(before)

    run(test)


def test_a_node_that_has_failed_exits_with_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    real = Broker.apply

    def broken(broker: Broker, delta: Any) -> None:
        if delta.changed_brokers and broker.cluster.id:
            raise InvariantBroken("no such thing")
        real(broker, delta)

    monkeypatch.setattr(Broker, "apply", broken)
    config = broker_config(
        {
            "log.dirs": str(tmp_path),
            "listeners": "PLAINTEXT://127.0.0.1:0",
            "penstock.http.listen": "",
        }
    )
    assert main.run(config) == 1
    assert "cannot be followed" in capsys.readouterr().err
