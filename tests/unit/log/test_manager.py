"""The logs of a data directory: starts, stops, deletion, checkpoints."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from penstock.base.errors import StorageError
from penstock.base.ids import TopicPartition
from penstock.config.log_config import LogConfig
from penstock.log.checkpoints import read_checkpoint
from penstock.log.environment import LogEnvironment
from penstock.log.files import FileCache, remove_paths
from penstock.log.flush import flush
from penstock.log.log import Batch, Log
from penstock.log.manager import LogManager, parse_log_dir
from penstock.log.producer_snapshot import ProducerStateEntry
from penstock.wire.records import Record, build_batch, parse_header

TOPIC_ID = bytes(range(16))
DATA = build_batch([Record(0, 1_000, b"k", b"v")])
BATCH = Batch(parse_header(DATA), DATA)


def tp(partition: int, topic: str = "some-topic") -> TopicPartition:
    return TopicPartition(topic, partition)


class Home:
    """A data directory whose manager is stopped, started and killed."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.config = replace(LogConfig(), retention_ms=-1)
        self.managers: list[LogManager] = []

    def start(self, **env: Any) -> LogManager:
        manager = LogManager(str(self.path), lambda _topic: self.config, LogEnvironment(**env))
        self.managers.append(manager)
        return manager

    def kill(self) -> LogManager:
        """What the process had open is gone, nothing else happens."""
        copy = self.path.with_name(self.path.name + "x")
        shutil.copytree(self.path, copy)
        self.path = copy
        return self.start()

    def append(self, log: Log, count: int = 1) -> None:
        for _ in range(count):
            log.append([BATCH], 0, 1)


@pytest.fixture
def home(box: Any) -> Iterator[Home]:
    with box.home() as directory:
        home = Home(Path(directory) / "data")
        yield home
        for manager in home.managers:
            for log in manager.opened():
                log.release()


def test_logs_are_found_again_after_a_clean_stop_and_none_is_opened_before_use(home: Home) -> None:
    manager = home.start()
    for i in range(5):
        home.append(manager.get_or_create(tp(i), TOPIC_ID), i)
    manager.close()
    assert (home.path / ".kafka_cleanshutdown").exists()
    manager = home.start()
    assert manager.clean_start
    assert not (home.path / ".kafka_cleanshutdown").exists()
    assert manager.partitions() == {tp(i) for i in range(5)}
    assert not list(manager.opened())
    for i in range(5):
        log = manager.get(tp(i))
        assert log is not None
        assert (log.log_end_offset, log.recovery_point, log.topic_id) == (i, i, TOPIC_ID)
    assert manager.get(tp(9)) is None
    assert manager.recovery_pass(10) == 0


def test_logs_are_checked_after_a_kill(home: Home) -> None:
    manager = home.start()
    for i in range(4):
        home.append(manager.get_or_create(tp(i), TOPIC_ID), 3)
    manager.checkpoint()
    with open(home.path / "some-topic-2" / f"{0:020d}.log", "ab") as f:
        f.write(b"torn")
    manager = home.kill()
    assert not manager.clean_start
    log = manager.get(tp(2))
    assert log is not None
    assert log.log_end_offset == 3
    assert manager.recovery_pass(2) == 1
    manager.close()
    # One log was not looked at: the next start may not take it for clean.
    manager = home.start()
    assert not manager.clean_start
    assert manager.recovery_pass(10) == 0
    manager.close()
    assert home.start().clean_start


def test_recovery_points_and_log_starts_are_kept_also_of_logs_not_opened(home: Home) -> None:
    manager = home.start()
    for i in range(3):
        log = manager.get_or_create(tp(i), TOPIC_ID)
        home.append(log, 4)
        flush(log)
    log.delete_records(2)
    manager.close()
    manager = home.start()
    manager.get(tp(0))
    manager.checkpoint()
    points = read_checkpoint(str(home.path / "recovery-point-offset-checkpoint"))
    assert points == {tp(i): 4 for i in range(3)}
    starts = read_checkpoint(str(home.path / "log-start-offset-checkpoint"))
    assert starts == {tp(2): 2}
    log = manager.get(tp(2))
    assert log is not None
    assert log.log_start_offset == 2


def test_a_damaged_checkpoint_only_costs_time(home: Home) -> None:
    manager = home.start()
    home.append(manager.get_or_create(tp(0), TOPIC_ID), 4)
    manager.close()
    (home.path / "recovery-point-offset-checkpoint").write_text("0\n7\nnonsense\n")
    (home.path / ".kafka_cleanshutdown").unlink()
    log = home.start().get(tp(0))
    assert log is not None
    assert (log.log_end_offset, log.recovery_point) == (4, 0)


def test_two_processes_do_not_share_a_directory(home: Home) -> None:
    manager = home.start()
    with pytest.raises(StorageError, match="in use by another process"):
        home.start()
    manager.close()
    home.start()


def test_ids_are_written_once_and_then_checked(home: Home) -> None:
    manager = home.start()
    meta = manager.ensure_meta(3, "cluster")
    assert manager.ensure_meta(3, "cluster") == meta
    with pytest.raises(StorageError, match=r"belongs to node.id=3, not 4"):
        manager.ensure_meta(4, "cluster")
    with pytest.raises(StorageError, match=r"cluster.id"):
        manager.ensure_meta(3, "other")


def test_a_directory_of_another_topic_id_is_refused(home: Home) -> None:
    manager = home.start()
    manager.get_or_create(tp(0), TOPIC_ID)
    with pytest.raises(StorageError, match="belongs to topic id"):
        manager.get_or_create(tp(0), bytes(16))


def test_deletion_gives_the_disk_back_after_the_delay(home: Home) -> None:
    manager = home.start()
    log = manager.get_or_create(tp(0), TOPIC_ID)
    home.append(log)
    piece = log.read(0, 1000, up_to_offset=1)
    assert piece is not None
    manager.delete(tp(0))
    assert manager.get(tp(0)) is None
    assert len(piece.read()) == len(DATA)
    (left,) = [n for n in os.listdir(home.path) if n.startswith("some-topic-0")]
    assert left.endswith("-delete")
    now = manager.env.clock.now_ms()
    assert manager.due_deletions(now) == []
    # A topic of the same name may be made at once.
    fresh = manager.get_or_create(tp(0), bytes(16))
    assert fresh.log_end_offset == 0
    remove_paths(manager.due_deletions(now + 61_000))
    assert left not in os.listdir(home.path)
    manager.close()
    assert home.start().partitions() == {tp(0)}


def test_a_deletion_that_a_crash_interrupted_goes_on(home: Home) -> None:
    manager = home.start()
    manager.get_or_create(tp(0), TOPIC_ID)
    manager.get_or_create(tp(1), TOPIC_ID)
    manager.delete(tp(0))
    manager = home.kill()
    assert manager.partitions() == {tp(1)}
    remove_paths(manager.due_deletions(manager.env.clock.now_ms() + 1))
    assert not [n for n in os.listdir(home.path) if n.endswith("-delete")]


def test_deleting_an_unopened_log(home: Home) -> None:
    manager = home.start()
    manager.get_or_create(tp(0), TOPIC_ID)
    manager.close()
    manager = home.start()
    manager.delete(tp(0))
    assert manager.partitions() == set()
    manager.delete(tp(0))


def test_retention_reaches_logs_that_nobody_uses_and_closes_them_again(home: Home) -> None:
    manager = home.start()
    for i in range(2):
        home.append(manager.get_or_create(tp(i), TOPIC_ID), 3)
    manager.close()
    home.config = replace(LogConfig(), retention_ms=1)
    manager = home.start()
    assert sum(manager.retention_steps(100_000)) == 2
    log = manager.get(tp(0))
    assert log is not None
    assert (log.log_start_offset, log.log_end_offset) == (3, 3)
    home.config = LogConfig(retention_ms=-1)
    manager.close()
    manager = home.start()
    assert sum(manager.retention_steps(100_000)) == 0
    assert not list(manager.opened())


def test_idle_producers_are_forgotten_by_the_setting_of_now(home: Home) -> None:
    manager = home.start()
    log = manager.get_or_create(tp(0), TOPIC_ID)
    home.append(log, 1)
    idle = ProducerStateEntry(7, last_timestamp=1_000)
    log.producers.producers[7] = idle
    list(manager.producer_steps(2_000))
    assert 7 in log.producers.producers
    manager.env.producer_id_expiration_ms = 1_000
    list(manager.producer_steps(1_999))
    assert 7 in log.producers.producers
    list(manager.producer_steps(2_000))
    assert 7 not in log.producers.producers


def test_one_bad_log_leaves_the_others_alone(home: Home) -> None:
    manager = home.start()
    for i in range(3):
        home.append(manager.get_or_create(tp(i), TOPIC_ID))
    manager.close()
    bad = home.path / "some-topic-1"
    shutil.rmtree(bad)
    bad.mkdir()
    (bad / f"{0:020d}.log").mkdir()
    manager = home.start()
    with pytest.raises(StorageError):
        manager.get(tp(1))
    for i in (0, 2):
        log = manager.get(tp(i))
        assert log is not None
        home.append(log)
    assert sum(manager.retention_steps(1)) == 0


def test_sizes_need_no_open_log(home: Home) -> None:
    manager = home.start()
    home.append(manager.get_or_create(tp(0), TOPIC_ID), 3)
    assert manager.size_of(tp(0)) == 3 * len(DATA)
    manager.close()
    manager = home.start()
    assert manager.size_of(tp(0)) == 3 * len(DATA)
    assert not list(manager.opened())
    total, usable = manager.disk_space()
    assert total >= usable > 0


def test_few_descriptors_serve_many_logs(home: Home) -> None:
    manager = home.start(files=FileCache(limit=5))
    logs = [manager.get_or_create(tp(i), TOPIC_ID) for i in range(40)]
    for _ in range(3):
        for log in logs:
            home.append(log)
    assert manager.env.files.opened <= 5
    for log in logs:
        piece = log.read(0, 1 << 20, up_to_offset=3)
        assert piece is not None
        assert len(piece.read()) == 3 * len(DATA)
    manager.close()
    assert manager.env.files.opened == 0


def test_what_is_not_a_partition_is_left_alone(home: Home) -> None:
    for name in ("lost+found", "-3", "topic-", "topic-x", "backup"):
        (home.path / name).mkdir(parents=True)
    assert home.start().partitions() == set()


@pytest.mark.parametrize(
    ("name", "expected"),
    [("a-0", tp(0, "a")), ("a-b-12", tp(12, "a-b")), ("a.b_c-1", tp(1, "a.b_c")), ("a", None)],
)
def test_directory_names(name: str, expected: TopicPartition | None) -> None:
    assert parse_log_dir(name) == expected


def test_flushes_that_are_due(home: Home) -> None:
    home.config = replace(home.config, flush_messages=2)
    manager = home.start()
    one, two = (manager.get_or_create(tp(i), TOPIC_ID) for i in range(2))
    home.append(one)
    home.append(two, 2)
    assert manager.flush_due(0) == [two]
