"""A recovery point that falls is on the disk before the log grows again.

Otherwise a recovery would begin behind what was written since: it would find no leader epoch there,
and nothing that is torn.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.base.errors import StorageError
from penstock.log.checkpoints import read_checkpoint
from penstock.log.flush import flush
from penstock.log.log import Log
from penstock.log.manager import LogManager
from unit.log.test_manager import BATCH, TOPIC_ID, Home, tp

POINTS = "recovery-point-offset-checkpoint"


@pytest.fixture
def home(box: Any) -> Iterator[Home]:
    with box.home() as directory:
        home = Home(Path(directory) / "data")
        yield home
        for manager in home.managers:
            for log in manager.opened():
                log.release()


def grown(manager: LogManager, *epochs: int) -> Log:
    """The log with two batches of each epoch."""
    log = manager.get_or_create(tp(0), TOPIC_ID)
    for epoch in epochs:
        for _ in range(2):
            log.append([BATCH], epoch, 1)
    return log


def stated(home: Home) -> int | None:
    return read_checkpoint(str(home.path / POINTS)).get(tp(0))


def deleted_and_made_anew(manager: LogManager, log: Log) -> None:
    manager.delete(log.topic_partition)


def truncated(manager: LogManager, log: Log) -> None:
    log.truncate_to(2)


def begun_anew(manager: LogManager, log: Log) -> None:
    log.truncate_fully_and_start_at(0)


@pytest.mark.parametrize(
    ("lower", "grows", "epochs"),
    [
        (deleted_and_made_anew, (0, 1, 2, 3, 4), [(0, 0), (1, 2), (2, 4), (3, 6), (4, 8)]),
        (truncated, (3, 4, 5, 6), [(0, 0), (3, 2), (4, 4), (5, 6), (6, 8)]),
        (begun_anew, (2, 3, 4, 5, 6), [(2, 0), (3, 2), (4, 4), (5, 6), (6, 8)]),
    ],
)
def test_after_a_kill_all_leader_epochs_are_found_again(
    home: Home,
    lower: Callable[[LogManager, Log], None],
    grows: tuple[int, ...],
    epochs: list[tuple[int, int]],
) -> None:
    manager = home.start()
    log = grown(manager, 0, 1, 2)
    flush(log)
    manager.checkpoint()
    assert stated(home) == 6
    lower(manager, log)
    assert grown(manager, *grows).log_end_offset == 10
    assert (stated(home) or 0) <= 2
    found = home.kill().get(tp(0))
    assert found is not None
    assert [tuple(entry) for entry in found.epochs.entries] == epochs


def test_who_waits_for_the_driver_makes_no_append_write_it(home: Home) -> None:
    manager = home.start()
    asked: list[str] = []
    log = grown(manager, 0, 1)
    flush(log)
    manager.checkpoint()
    manager.checkpoints.on_lowered = lambda: asked.append("checkpoint")
    log.truncate_to(2)
    assert asked == ["checkpoint"]
    assert log.waits_for_checkpoint
    manager.checkpoint_task()()
    assert not log.waits_for_checkpoint
    assert stated(home) == 2
    log.append([BATCH], 2, 1)
    assert not log.grows_after


def test_a_write_that_began_before_does_not_count(home: Home) -> None:
    manager = home.start()
    log = grown(manager, 0, 1)
    flush(log)
    early = manager.checkpoint_task()
    log.truncate_to(2)
    early()
    assert stated(home) == 4
    assert log.waits_for_checkpoint
    log.append([BATCH], 2, 1)
    assert stated(home) == 2


def test_what_is_cut_above_the_recovery_point_waits_for_nothing(home: Home) -> None:
    manager = home.start()
    log = grown(manager, 0)
    flush(log)
    manager.checkpoint()
    grown(manager, 1)
    log.truncate_to(3)
    assert not log.grows_after
    assert not log.waits_for_checkpoint


def test_while_the_disk_refuses_the_log_does_not_grow(home: Home) -> None:
    manager = home.start()
    log = grown(manager, 0, 1)
    flush(log)
    manager.checkpoint()
    log.truncate_to(2)
    obstacle = home.path / (POINTS + ".tmp")
    obstacle.mkdir()
    with pytest.raises(StorageError):
        log.append([BATCH], 2, 1)
    assert log.log_end_offset == 2
    obstacle.rmdir()
    log.append([BATCH], 2, 1)
    assert (log.log_end_offset, stated(home)) == (3, 2)
