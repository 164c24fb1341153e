"""The metadata quorum's driver: committed means on disk, and only committed is seen."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.api.vote import vote
from penstock.base.clock import SystemClock, SystemRng
from penstock.base.errors import ApiError, ErrorCode, StorageError
from penstock.base.ids import METADATA_TOPIC, METADATA_TOPIC_ID, TopicPartition
from penstock.config.broker_config import broker_config
from penstock.config.layers import BrokerSettings
from penstock.controlling import metadata_snapshots as snapshots
from penstock.controlling.metadata_log import METADATA_LOG_CONFIG, MetadataLog
from penstock.controlling.quorum_driver import QuorumDriver
from penstock.controlling.quorum_fetches import Then
from penstock.log.manager import LogManager
from penstock.metadata.controller import Controller
from penstock.metadata.delta import MetadataDelta
from penstock.metadata.features import SUPPORTED_FEATURES
from penstock.metadata.image import MetadataImage
from penstock.peers.peers import Peers
from penstock.raft.types import Endpoint, QuorumConfig, ReplicaKey
from penstock.serving.quorum import QuorumService
from penstock.serving.rights import Rights
from penstock.wire.messages.allocate_producer_ids import AllocateProducerIdsRequest
from penstock.wire.messages.broker_registration import (
    BrokerRegistrationRequest,
    Feature,
    Listener,
)
from penstock.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from penstock.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from penstock.wire.messages.vote import VoteRequest
from unit.net.served import run
from unit.serving.rig import running, until

PARTITION = TopicPartition(METADATA_TOPIC, 0)


ENDPOINT = Endpoint("PLAINTEXT", "127.0.0.1", 9092)
FEATURES = [
    Feature(name=name, min_supported_version=low, max_supported_version=high)
    for name, (low, high) in SUPPORTED_FEATURES.items()
]


class Metadata:
    """A driver of a quorum of one and the data folder it lives in."""

    def __init__(self, root: Path, **settings: str) -> None:
        self.logs = LogManager(str(root), lambda topic: METADATA_LOG_CONFIG)
        self.log = self.logs.get_or_create(PARTITION, METADATA_TOPIC_ID)
        names = {name.replace("_", "."): value for name, value in settings.items()}
        layers = BrokerSettings.of(broker_config(names))
        clock = SystemClock()
        log = MetadataLog(self.log, clock)
        self.peers = Peers("test")
        self.driver = QuorumDriver(log, self.peers, layers, clock, SystemRng())
        self.deltas: list[MetadataDelta] = []
        self.driver.metadata.on_committed(self.deltas.append)
        me = ReplicaKey(1, b"d" * 16)
        self.driver.start(me, "cluster", QuorumConfig("cluster", founder=True), [ENDPOINT])
        self.submit = self.driver.seat.submit

    async def begin(self) -> Metadata:
        request = BrokerRegistrationRequest(
            broker_id=1,
            cluster_id="cluster",
            incarnation_id=SystemRng().uuid(),
            listeners=[Listener(name="PLAINTEXT", host="127.0.0.1", port=9092)],
            features=FEATURES,
            log_dirs=[b"d" * 16],
        )
        driver = self.driver
        response = await self.submit(
            lambda c: c.register_broker(request, driver.next_offset, driver.now_ms())
        )
        self.broker_epoch = response.broker_epoch
        return self

    @property
    def committed(self) -> MetadataImage:
        return self.driver.metadata.image

    @property
    def controller(self) -> Controller:
        assert self.driver.seat.active is not None
        return self.driver.seat.active.controller

    async def create(self, *names: str) -> Any:
        topics = [CreatableTopic(name=n, num_partitions=2, replication_factor=1) for n in names]
        request = CreateTopicsRequest(topics=topics)
        return await self.submit(lambda c: c.create_topics(request))

    async def delete(self, name: str) -> Any:
        request = DeleteTopicsRequest(topics=[DeleteTopicState(name=name)])
        return await self.submit(lambda c: c.delete_topics(request))

    async def ids(self) -> range:
        request = AllocateProducerIdsRequest(broker_id=1, broker_epoch=self.broker_epoch)
        block = await self.submit(lambda c: c.allocate_producer_ids(request))
        return range(block.producer_id_start, block.producer_id_start + block.producer_id_len)

    @property
    def topics(self) -> set[str]:
        return set(self.committed.topics)

    @contextmanager
    def held(self) -> Iterator[Event]:
        event = Event()
        self.driver._pool.submit(event.wait, 30.0)
        try:
            yield event
        finally:
            event.set()

    def stop(self) -> None:
        self.driver.stop()
        self.peers.close()
        self.logs.close()

    def crash(self) -> None:
        """Leaves the folder as a killed process would."""
        self.driver.stop()
        self.peers.close()
        self.log.release()
        os.close(self.logs._lock_fd)


def test_a_change_is_committed_and_told(tmp_path: Path) -> None:
    async def test() -> None:
        metadata = await Metadata(tmp_path).begin()
        before = metadata.driver.metadata.applied_offset
        response = await metadata.create("a", "b")
        assert [t.error_code for t in response.topics] == [0, 0]
        assert metadata.topics == {"a", "b"}
        assert {t.name for t in metadata.deltas[-1].created_topics.values()} == {"a", "b"}
        assert metadata.driver.metadata.applied_offset == metadata.driver.next_offset > before
        assert metadata.log.recovery_point == metadata.log.log_end_offset
        metadata.stop()

    run(test)


@pytest.mark.parametrize("clean", [True, False])
def test_a_replay_gives_the_same_image(tmp_path: Path, clean: bool) -> None:
    async def test() -> None:
        first = await Metadata(tmp_path).begin()
        for i in range(20):
            await first.create(f"t{i}")
        for i in range(0, 20, 3):
            await first.delete(f"t{i}")
        await first.ids()
        expected = first.committed
        assert expected == first.controller.image
        if clean:
            first.stop()
        else:
            first.crash()
        second = Metadata(tmp_path)
        assert second.committed == expected
        assert second.controller.image == expected
        assert len(second.topics) == 13
        second.stop()

    run(test)


def test_nothing_uncommitted_is_visible(tmp_path: Path) -> None:
    async def test() -> None:
        metadata = await Metadata(tmp_path).begin()
        told = len(metadata.deltas)
        with metadata.held() as release:
            first = asyncio.create_task(metadata.create("a"))
            second = asyncio.create_task(metadata.create("a", "b"))
            await asyncio.sleep(0.05)
            assert not first.done()
            assert not second.done()
            assert metadata.topics == set()
            assert len(metadata.deltas) == told
            release.set()
            one, two = await asyncio.gather(first, second)
        # The second decision was built on the first, although that was not yet committed.
        assert [t.error_code for t in one.topics] == [0]
        codes = {t.name: t.error_code for t in two.topics}
        assert codes == {"a": ErrorCode.TOPIC_ALREADY_EXISTS, "b": 0}
        assert metadata.topics == {"a", "b"}
        metadata.stop()

    run(test)


def test_an_answer_that_rests_on_uncommitted_records_waits_for_them(tmp_path: Path) -> None:
    async def test() -> None:
        metadata = await Metadata(tmp_path).begin()
        with metadata.held() as release:
            first = asyncio.create_task(metadata.create("a"))
            await asyncio.sleep(0)
            refused = asyncio.create_task(metadata.create("a"))
            await asyncio.sleep(0.05)
            assert not refused.done()
            release.set()
            await first
            [topic] = (await refused).topics
            assert topic.error_code == ErrorCode.TOPIC_ALREADY_EXISTS
        metadata.stop()

    run(test)


def test_responses_come_in_the_order_of_their_records(tmp_path: Path) -> None:
    async def test() -> None:
        metadata = await Metadata(tmp_path).begin()
        order: list[int] = []

        async def change(i: int) -> None:
            await metadata.create(f"t{i}")
            order.append(i)

        with metadata.held() as release:
            tasks = []
            for i in range(10):
                tasks.append(asyncio.create_task(change(i)))
                await asyncio.sleep(0)
            release.set()
            await asyncio.gather(*tasks)
        assert order == list(range(10))
        metadata.stop()

    run(test)


def test_one_fsync_serves_all_that_wait(tmp_path: Path) -> None:
    async def test() -> None:
        metadata = await Metadata(tmp_path).begin()
        told = len(metadata.deltas)
        with metadata.held() as release:
            tasks = [asyncio.create_task(metadata.create(f"t{i}")) for i in range(50)]
            await asyncio.sleep(0.02)
            release.set()
            await asyncio.gather(*tasks)
        assert len(metadata.deltas) - told <= 2
        metadata.stop()

    run(test)


def test_who_gives_up_waiting_takes_nothing_back(tmp_path: Path) -> None:
    async def test() -> None:
        metadata = await Metadata(tmp_path).begin()
        with metadata.held() as release:
            impatient = asyncio.create_task(metadata.create("a"))
            patient = asyncio.create_task(metadata.create("b"))
            await asyncio.sleep(0.01)
            impatient.cancel()
            release.set()
            await patient
        assert metadata.topics == {"a", "b"}
        metadata.stop()

    run(test)


@contextmanager
def poisoned(metadata: Metadata, *, readable: bool) -> Iterator[None]:
    """The log's descriptor is a read-only one of its file, or a pipe's, which cannot be synced."""
    file = metadata.log.segments.active.file
    fd = file.pin()
    kept = os.dup(fd)
    ends = [os.open(file.path, os.O_RDONLY)] if readable else list(os.pipe())
    os.dup2(ends[-1], fd)
    try:
        yield
    finally:
        os.dup2(kept, fd)
        for end in (kept, *ends):
            os.close(end)
        file.unpin()


def test_a_refused_append_leaves_nothing(tmp_path: Path) -> None:
    async def test() -> None:
        metadata = await Metadata(tmp_path).begin()
        await metadata.create("a")
        end = metadata.log.log_end_offset
        image = metadata.committed
        with poisoned(metadata, readable=True):
            for _ in range(2):
                with pytest.raises(ApiError) as caught:
                    await metadata.create("b")
                assert caught.value.code == ErrorCode.KAFKA_STORAGE_ERROR
        assert metadata.log.log_end_offset == end == metadata.driver.next_offset
        assert metadata.topics == {"a"}
        assert "b" not in metadata.controller.image.topics
        assert metadata.driver.failure is None

        async def healed() -> Any:
            try:
                return await metadata.create("b")
            except ApiError:
                return None

        response = None
        while response is None:
            response = await healed()
            await asyncio.sleep(0.02)
        assert [t.error_code for t in response.topics] == [0]
        assert metadata.topics == {"a", "b"}
        metadata.stop()
        again = Metadata(tmp_path)
        assert again.committed == image
        again.stop()

    run(test)


def test_a_failed_fsync_stops_changes_until_a_restart(tmp_path: Path) -> None:
    async def test() -> None:
        metadata = await Metadata(tmp_path).begin()
        with metadata.held() as release:
            task = asyncio.create_task(metadata.create("a"))
            await until(lambda: metadata.driver.seat._waiters)
            with poisoned(metadata, readable=False):
                release.set()
                with pytest.raises(ApiError) as caught:
                    await task
        assert caught.value.code == ErrorCode.KAFKA_STORAGE_ERROR
        assert "restart" in caught.value.message
        assert metadata.topics == set()
        with pytest.raises(ApiError):
            await metadata.create("b")
        metadata.crash()
        # What the disk has kept counts again.
        again = await Metadata(tmp_path).begin()
        assert again.topics == {"a"}
        assert [t.error_code for t in (await again.create("b")).topics] == [0]
        again.stop()

    run(test)


@pytest.mark.parametrize("clean", [True, False])
def test_every_start_leads_a_new_epoch(tmp_path: Path, clean: bool) -> None:
    async def test() -> None:
        epochs = []
        for _ in range(4):
            metadata = await Metadata(tmp_path).begin()
            epochs.append(metadata.driver.quorum.epoch)
            stored = json.loads((tmp_path / str(PARTITION) / "quorum-state").read_text())
            assert stored["leaderEpoch"] == epochs[-1]
            assert metadata.log.epochs.latest_epoch == epochs[-1]
            if clean:
                metadata.stop()
            else:
                metadata.crash()
        assert epochs == sorted(set(epochs))

    run(test)


def test_an_epoch_is_not_used_again_although_its_file_is_lost(tmp_path: Path) -> None:
    async def test() -> None:
        metadata = await Metadata(tmp_path).begin()
        epoch = metadata.driver.quorum.epoch
        metadata.stop()
        (tmp_path / str(PARTITION) / "quorum-state").unlink()
        again = Metadata(tmp_path)
        assert again.driver.quorum.epoch > epoch
        again.stop()

    run(test)


def test_a_listener_that_fails_does_not_keep_the_answers(tmp_path: Path) -> None:
    """A folder that cannot be moved away is a matter of the disk; the deletion is committed."""

    async def test() -> None:
        async with running(tmp_path) as rig:
            topic = await rig.topic()
            await (await rig.peer()).produce(topic)
            shutil.rmtree(tmp_path / "t-0")
            async with asyncio.timeout(2):
                await rig.delete_topic("t")
                await rig.topic("other")
            assert "t" not in rig.broker.metadata.topics

    run(test)


# -- snapshots ------------------------------------------------------------------------------------

SMALL = {"metadata_log_max_record_bytes_between_snapshots": "2000"}


def checkpoints(root: Path) -> list[str]:
    return sorted(p.name for p in (root / str(PARTITION)).glob("*.checkpoint"))


@pytest.mark.parametrize("clean", [True, False])
def test_a_snapshot_takes_the_place_of_the_log_before_it(tmp_path: Path, clean: bool) -> None:
    async def test() -> None:
        metadata = await Metadata(tmp_path, **SMALL).begin()
        seen: set[str] = set()
        for i in range(60):
            await metadata.create(f"t{i}")
            seen.update(checkpoints(tmp_path))
            if i % 4 == 0:
                await metadata.delete(f"t{i}")
        await until(lambda: metadata.log.log_start_offset > 0)
        await until(lambda: metadata.driver._writing._task is None)
        assert len(seen) > 2
        assert len(checkpoints(tmp_path)) == 2
        oldest = int(checkpoints(tmp_path)[0][:20])
        assert metadata.log.log_start_offset == oldest
        assert metadata.log.segments[0].base_offset > 0
        expected = metadata.committed
        if clean:
            metadata.stop()
        else:
            metadata.crash()
        again = Metadata(tmp_path, **SMALL)
        assert again.committed == expected
        assert again.controller.image == expected
        assert again.log.log_start_offset == oldest
        assert [voter.key.id for voter in again.driver.quorum.voters] == [1]
        await again.begin()
        assert [t.error_code for t in (await again.create("after")).topics] == [0]
        again.stop()

    run(test)


def test_a_damaged_snapshot_leaves_the_older_one_and_the_log(tmp_path: Path) -> None:
    async def test() -> None:
        metadata = await Metadata(tmp_path, **SMALL).begin()
        i = 0
        while len(checkpoints(tmp_path)) < 2:
            await metadata.create(f"t{i}")
            i += 1
        await until(lambda: metadata.driver._writing._task is None)
        expected = metadata.committed
        metadata.stop()
        newest = tmp_path / str(PARTITION) / checkpoints(tmp_path)[-1]
        newest.write_bytes(newest.read_bytes()[:-5])
        again = Metadata(tmp_path)
        assert again.committed == expected
        again.stop()
        for path in (tmp_path / str(PARTITION)).glob("*.checkpoint"):
            path.write_bytes(b"")
        with pytest.raises(StorageError, match="empty data folder"):
            Metadata(tmp_path)

    run(test)


def test_a_snapshot_comes_with_time_when_something_has_changed(tmp_path: Path) -> None:
    async def test() -> None:
        metadata = await Metadata(tmp_path, metadata_log_max_snapshot_interval_ms="50").begin()
        await metadata.create("a")
        await until(lambda: checkpoints(tmp_path))
        metadata.stop()

    run(test)


def test_changes_go_on_while_a_large_snapshot_is_written(tmp_path: Path) -> None:
    async def test() -> None:
        metadata = await Metadata(tmp_path).begin()
        for i in range(20):
            await metadata.create(*(f"t{i}-{j}" for j in range(50)))
        before = metadata.committed.copy()
        writing = asyncio.create_task(metadata.driver._writing._write())
        await asyncio.sleep(0)
        made = 0
        while not writing.done():
            await metadata.create(f"meanwhile-{made}")
            made += 1
        assert made > 3
        assert len(checkpoints(tmp_path)) == 1
        found = snapshots.newest_snapshot(metadata.log.dir, metadata.log.env.keys)
        assert found is not None
        image = await metadata.driver.metadata.decoded(found)
        assert image == before
        metadata.stop()

    run(test)


def test_who_waits_for_anothers_records_hears_that_the_leadership_is_lost(tmp_path: Path) -> None:
    async def test() -> None:
        metadata = await Metadata(tmp_path).begin()
        active = metadata.driver.seat.active
        assert active is not None
        topics = [CreatableTopic(name="a", num_partitions=1, replication_factor=1)]
        request = CreateTopicsRequest(topics=topics)
        with metadata.held():
            # What the controller decides by itself is given up with the leadership.
            active._spawn(active._decide(lambda c: c.create_topics(request)))
            await until(lambda: bool(metadata.driver.seat._waiters))
            reads = asyncio.create_task(metadata.submit(lambda c: ([], None)))
            await asyncio.sleep(0)
            metadata.driver.event(metadata.driver.quorum.resign)
            with pytest.raises(ApiError) as refused:
                await reads
        assert refused.value.code == ErrorCode.NOT_CONTROLLER
        metadata.stop()

    run(test)


def test_a_node_that_has_not_read_its_log_yet_does_not_deny_its_cluster(tmp_path: Path) -> None:
    async def test() -> None:
        async def epoch(folder: Path) -> int:
            logs = LogManager(str(folder), lambda topic: METADATA_LOG_CONFIG)
            log = MetadataLog(logs.get_or_create(PARTITION, METADATA_TOPIC_ID), SystemClock())
            layers, peers = BrokerSettings.of(broker_config({})), Peers("test")
            driver = QuorumDriver(log, peers, layers, SystemClock(), SystemRng())
            asked: Any = SimpleNamespace(
                quorum=QuorumService(driver, Rights(driver.metadata.image))
            )
            request: Any = SimpleNamespace(body=VoteRequest(), principal="")
            answering: Any = vote(asked, request)
            answer = await answering
            driver.stop()
            logs.close()
            return int(answer.topics[0].partitions[0].leader_epoch)

        (await Metadata(tmp_path / "old").begin()).stop()
        assert await epoch(tmp_path / "old") > 0
        assert await epoch(tmp_path / "new") == 0

    run(test)


def test_effects_that_cannot_be_carried_out_stop_the_node_loudly(tmp_path: Path) -> None:
    async def test() -> None:
        metadata = await Metadata(tmp_path).begin()
        driver = metadata.driver

        def broken() -> None:
            raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            driver.event(lambda now_ms: [Then(broken)])
        assert driver.failure is not None
        with pytest.raises(ApiError):
            async with asyncio.timeout(5):
                await metadata.create("a")
        metadata.stop()

    run(test)
