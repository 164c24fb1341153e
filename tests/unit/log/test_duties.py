"""The duties of a data directory go over what has changed, and miss none of it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from penstock.base.ids import TopicPartition
from penstock.config.log_config import LogConfig
from penstock.log import limits
from penstock.log.checkpoints import read_checkpoint
from penstock.log.closing import close_logs
from penstock.log.environment import LogEnvironment
from penstock.log.flush import flush
from penstock.log.log import Batch, Log
from penstock.log.manager import LogManager
from penstock.wire.records import Record, build_batch, parse_header
from support.loop_syncs import syncs_in_this_thread

TOPIC_ID = bytes(range(16))
WRITTEN_MS = 1_000
DATA = build_batch([Record(0, WRITTEN_MS, b"k", b"v")])
BATCH = Batch(parse_header(DATA), DATA)


def tp(partition: int) -> TopicPartition:
    return TopicPartition("some-topic", partition)


class Duties:
    """A data directory, its manager, and the settings of its only topic."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.config = replace(LogConfig(), retention_ms=-1)
        self.manager = self.start()

    def start(self) -> LogManager:
        self.manager = LogManager(str(self.path), lambda _topic: self.config, LogEnvironment())
        return self.manager

    def log(self, partition: int = 0, messages: int = 0) -> Log:
        log = self.manager.get_or_create(tp(partition), TOPIC_ID)
        for _ in range(messages):
            log.append([BATCH], 0, 1)
        return log

    def stored(self, name: str) -> dict[TopicPartition, int]:
        return read_checkpoint(str(self.path / name))


@pytest.fixture
def duties(box: Any) -> Iterator[Duties]:
    with box.home() as directory:
        duties = Duties(Path(directory) / "data")
        yield duties
        for log in duties.manager.opened():
            log.release()


def test_a_log_is_looked_at_again_when_it_was_written_to(duties: Duties) -> None:
    duties.config = replace(duties.config, segment_bytes=2 * len(DATA))
    log = duties.log(messages=1)
    assert duties.manager.flush_due(0) == []
    assert not duties.manager.env.changes.flushing, "nothing but a write can make it due"
    duties.log(messages=2)
    assert duties.manager.flush_due(0) == [log], "a segment was closed"
    assert duties.manager.flush_due(0) == [log], "until it is flushed"
    flush(log)
    assert duties.manager.flush_due(0) == []


def test_time_alone_can_make_a_flush_due(duties: Duties) -> None:
    duties.config = replace(duties.config, flush_ms=100)
    log = duties.log(messages=1)
    written = log.last_flush_ms
    assert duties.manager.flush_due(written) == []
    assert duties.manager.flush_due(written + 100) == [log]


def test_settings_that_change_are_seen(duties: Duties) -> None:
    log = duties.log(messages=3)
    assert duties.manager.flush_due(0) == []
    log.config = replace(duties.config, flush_messages=2)
    assert duties.manager.flush_due(0) == [log]


def test_a_deleted_log_is_not_flushed(duties: Duties) -> None:
    duties.config = replace(duties.config, flush_messages=1)
    duties.log(messages=1)
    duties.manager.delete(tp(0))
    assert duties.manager.flush_due(0) == []


def test_offsets_that_moved_are_written_down_at_the_next_checkpoint(duties: Duties) -> None:
    one, two = duties.log(0, 3), duties.log(1, 3)
    duties.manager.checkpoint()
    flush(one)
    two.delete_records(2)
    duties.manager.checkpoint()
    assert duties.stored("recovery-point-offset-checkpoint") == {tp(0): 3, tp(1): 0}
    assert duties.stored("log-start-offset-checkpoint") == {tp(1): 2}
    one.truncate_to(1)
    duties.manager.delete(tp(1))
    duties.manager.checkpoint()
    assert duties.stored("recovery-point-offset-checkpoint") == {tp(0): 1}
    assert duties.stored("log-start-offset-checkpoint") == {}


def test_a_checkpoint_that_was_never_written_is_written_at_the_stop(duties: Duties) -> None:
    flush(duties.log(messages=3))
    duties.manager.checkpoint()
    duties.log().delete_records(2)
    duties.manager.checkpoint_task()  # whoever was to write it has been cancelled
    duties.manager.close()
    assert duties.stored("log-start-offset-checkpoint") == {tp(0): 2}


def test_a_checkpoint_without_changes_is_left_alone(duties: Duties) -> None:
    duties.log(messages=1)
    duties.manager.checkpoint()
    path = duties.path / "recovery-point-offset-checkpoint"
    path.unlink()
    duties.log(messages=1)  # written to, but nothing was flushed
    duties.manager.checkpoint()
    assert not path.exists()


def test_retention_does_not_open_a_log_again_in_which_it_has_nothing_to_do(duties: Duties) -> None:
    duties.log(messages=2)
    duties.manager.close()
    duties.config = replace(duties.config, retention_ms=1_000)
    manager = duties.start()
    due_ms = WRITTEN_MS + 1_000
    assert sum(manager.retention_steps(due_ms)) == 0
    index = duties.path / "some-topic-0" / f"{0:020d}.timeindex"
    hidden = index.with_suffix(".hidden")
    index.rename(hidden)  # whoever opens the log makes it anew
    assert sum(manager.retention_steps(due_ms)) == 0
    assert not index.exists()
    hidden.rename(index)
    assert sum(manager.retention_steps(due_ms + 1)) == 1, "its time has come"


def test_retention_opens_a_quiet_log_when_the_settings_ask_for_it(duties: Duties) -> None:
    duties.log(messages=2)
    duties.manager.close()
    manager = duties.start()
    assert sum(manager.retention_steps(WRITTEN_MS + 10)) == 0
    duties.config = replace(duties.config, retention_ms=1)
    assert sum(manager.retention_steps(WRITTEN_MS + 10)) == 1


def test_retention_after_an_unclean_stop_does_not_wait_for_the_disk(duties: Duties) -> None:
    duties.log(messages=2)
    for log in duties.manager.opened():
        log.release()
    os.close(duties.manager._lock_fd)  # the process has died
    manager = duties.start()
    with syncs_in_this_thread() as found:
        assert sum(manager.retention_steps(WRITTEN_MS)) == 0
    assert not found
    assert [log.unflushed_messages for log in manager.opened()] == [2]


def test_a_checkpoint_that_was_begun_earlier_does_not_replace_a_later_one(duties: Duties) -> None:
    log = duties.log(messages=1)
    flush(log)
    early = duties.manager.checkpoint_task()
    flush(duties.log(messages=1))
    duties.manager.checkpoint()
    early()
    assert duties.stored("recovery-point-offset-checkpoint") == {tp(0): 2}


def test_files_of_segments_that_went_are_due_after_the_delay(duties: Duties) -> None:
    duties.config = replace(duties.config, file_delete_delay_ms=100, retention_ms=1)
    duties.log(messages=1)
    assert sum(duties.manager.retention_steps(5_000)) == 1
    assert duties.manager.due_deletions(5_000) == []
    due = duties.manager.due_deletions(5_100)
    assert due
    assert all(path.endswith(".deleted") for path in due)
    assert not duties.manager.env.changes.removing


def test_many_logs_are_closed_in_several_goes(
    duties: Duties, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.log.closing.CLOSED_AT_ONCE", 4)
    for partition in range(10):
        duties.log(partition, 1)
    duties.manager.close()
    assert (duties.path / ".kafka_cleanshutdown").exists()
    assert set(duties.stored("recovery-point-offset-checkpoint").values()) == {1}
    assert limits.CLOSED_AT_ONCE > limits.SYNC_THREADS, "else threads have nothing to do"


def test_one_log_that_cannot_be_closed_leaves_the_others_alone(duties: Duties) -> None:
    logs = [duties.log(partition, 1) for partition in range(3)]
    logs[1].health.fail_for_good("a disk that is gone")
    assert not close_logs(logs)
    assert [log.recovery_point for log in logs] == [1, 0, 1]
