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
from typing import Any

import pytest

from penstock.base.clock import SystemClock, SystemRng
from penstock.base.errors import ApiError, ErrorCode
from penstock.base.ids import METADATA_TOPIC, METADATA_TOPIC_ID, TopicPartition
from penstock.broker.controller_driver import METADATA_LOG_CONFIG, ControllerDriver
from penstock.broker.producer_ids import ProducerIdManager
from penstock.config.broker_config import broker_config
from penstock.config.layers import BrokerSettings
from penstock.log.manager import LogManager
from penstock.metadata.broker_control import Registration
from penstock.metadata.delta import MetadataDelta
from penstock.metadata.records import BrokerEndpoint
from penstock.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from penstock.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from unit.broker.rig import running, until
from unit.net.served import run

PARTITION = TopicPartition(METADATA_TOPIC, 0)


class Metadata:
    """A driver and the data folder it lives in."""

    def __init__(self, root: Path) -> None:
        self.logs = LogManager(str(root), lambda topic: METADATA_LOG_CONFIG)
        self.log = self.logs.get_or_create(PARTITION, METADATA_TOPIC_ID)
        settings = BrokerSettings.of(broker_config({}))
        self.driver = ControllerDriver(self.log, settings, 1, SystemClock(), SystemRng())
        self.deltas: list[MetadataDelta] = []
        self.driver.on_committed(self.deltas.append)
        self.driver.start()

    async def begin(self) -> Metadata:
        await self.driver.submit(lambda c: c.bootstrap())
        endpoint = BrokerEndpoint(name="PLAINTEXT", host="127.0.0.1", port=9092)
        registration = Registration(1, b"i" * 16, [endpoint], log_dirs=[b"d" * 16])
        epoch = self.driver.next_offset
        await self.driver.submit(lambda c: c.register_broker(registration, epoch, fenced=False))
        return self

    async def create(self, *names: str) -> Any:
        topics = [CreatableTopic(name=n, num_partitions=2, replication_factor=1) for n in names]
        request = CreateTopicsRequest(topics=topics)
        return await self.driver.submit(lambda c: c.create_topics(request))

    async def delete(self, name: str) -> Any:
        request = DeleteTopicsRequest(topics=[DeleteTopicState(name=name)])
        return await self.driver.submit(lambda c: c.delete_topics(request))

    @property
    def topics(self) -> set[str]:
        return set(self.driver.committed.topics)

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
        self.logs.close()

    def crash(self) -> None:
        """Leaves the folder as a killed process would."""
        self.driver.stop()
        self.log.release()
        os.close(self.logs._lock_fd)


def test_a_change_is_committed_and_told(tmp_path: Path) -> None:
    async def test() -> None:
        metadata = await Metadata(tmp_path).begin()
        before = metadata.driver.committed_offset
        response = await metadata.create("a", "b")
        assert [t.error_code for t in response.topics] == [0, 0]
        assert metadata.topics == {"a", "b"}
        assert {t.name for t in metadata.deltas[-1].created_topics.values()} == {"a", "b"}
        assert metadata.driver.committed_offset == metadata.driver.next_offset > before
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
        await first.driver.submit(lambda c: c.allocate_producer_ids(1, 1))
        expected = first.driver.committed
        assert expected == first.driver._controller.image
        if clean:
            first.stop()
        else:
            first.crash()
        second = Metadata(tmp_path)
        assert second.driver.committed == expected
        assert second.driver._controller.image == expected
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
        image = metadata.driver.committed
        with poisoned(metadata, readable=True):
            for _ in range(2):
                with pytest.raises(ApiError) as caught:
                    await metadata.create("b")
                assert caught.value.code == ErrorCode.KAFKA_STORAGE_ERROR
        assert metadata.log.log_end_offset == end == metadata.driver.next_offset
        assert metadata.topics == {"a"}
        assert "b" not in metadata.driver._controller.image.topics
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
        assert again.driver.committed == image
        again.stop()

    run(test)


def test_a_failed_fsync_stops_changes_until_a_restart(tmp_path: Path) -> None:
    async def test() -> None:
        metadata = await Metadata(tmp_path).begin()
        with metadata.held() as release:
            task = asyncio.create_task(metadata.create("a"))
            await until(lambda: metadata.driver._uncommitted)
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
            epochs.append(metadata.driver._quorum.epoch)
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
        epoch = metadata.driver._quorum.epoch
        metadata.stop()
        (tmp_path / str(PARTITION) / "quorum-state").unlink()
        again = Metadata(tmp_path)
        assert again.driver._quorum.epoch > epoch
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


# -- producer ids ----------------------------------------------------------------------------------


def test_no_producer_id_is_given_twice_over_restarts(tmp_path: Path) -> None:
    async def test() -> None:
        given: list[int] = []
        for round_number in range(3):
            metadata = await Metadata(tmp_path).begin()
            driver = metadata.driver

            async def block(driver: ControllerDriver = driver) -> range:
                got = await driver.submit(lambda c: c.allocate_producer_ids(1, 1))
                return range(got.first, got.first + got.size)

            ids = ProducerIdManager(block)
            # Enough at once to use up a block in one of the rounds, and so many that all wait.
            given += await asyncio.gather(*(ids.next() for _ in range(600 + 600 * round_number)))
            if round_number % 2:
                metadata.stop()
            else:
                metadata.crash()
        assert len(given) == len(set(given)) == 600 + 1200 + 1800
        assert min(given) >= 0

    run(test)


def test_a_block_that_is_not_granted_is_asked_for_again() -> None:
    async def test() -> None:
        answers: list[range | ApiError] = [ApiError(ErrorCode.KAFKA_STORAGE_ERROR), range(5, 7)]

        async def block() -> range:
            await asyncio.sleep(0)
            answer = answers.pop(0)
            if isinstance(answer, ApiError):
                raise answer
            return answer

        ids = ProducerIdManager(block)
        with pytest.raises(ApiError):
            await ids.next()
        assert [await ids.next(), await ids.next()] == [5, 6]

    run(test)


def test_ids_are_given_in_the_node_as_by_the_manager(tmp_path: Path) -> None:
    async def test() -> None:
        seen: set[int] = set()
        for _ in range(2):
            async with running(tmp_path) as rig:
                for _ in range(3):
                    seen.add(await rig.broker.producer_ids.next())
        assert len(seen) == 6

    run(test)
