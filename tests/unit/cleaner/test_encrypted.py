"""Compaction of encrypted logs: in the child process, with keys of its own for each new segment."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock.base.errors import CorruptRecord
from penstock.log.cleaner_client import Cleaner
from penstock.log.cleaner_worker import clean
from penstock.log.rewrapping import key_files

SECRET = "a value that is secret"


def filled(make_log: Callable[..., Any], key_id: str) -> Any:
    log = make_log()
    log.encrypt(key_id)
    for round_ in range(3):
        for key in "abc":
            log.put((key, f"{SECRET} {round_}"))
        log.log.roll()
    return log


def files_with_secret(log: Any) -> list[str]:
    """In the files of segments that are part of the log."""
    found = [name for name, data in log.files().items() if SECRET.encode() in data]
    return [name for name in found if not name.endswith(".deleted")]


LATEST = [(6, "a", f"{SECRET} 2"), (7, "b", f"{SECRET} 2"), (8, "c", f"{SECRET} 2")]


def test_the_child_process_is_given_the_keys(make_log: Callable[..., Any]) -> None:
    log = filled(make_log, "orders")

    async def cleaned() -> None:
        cleaner = Cleaner()
        result = await cleaner.clean(log.job())
        log.swap(result)
        await cleaner.stop()

    before = {found.key_file.wrapped for found in key_files([str(log.dir)])}
    asyncio.run(cleaned())
    assert log.pairs() == LATEST
    assert files_with_secret(log) == []
    log.reload()
    assert log.pairs() == LATEST
    after = [found.key_file for found in key_files([str(log.dir)])]
    assert not {key_file.wrapped for key_file in after} & before
    assert [key_file.base_offset for key_file in after] == [0]


@pytest.mark.parametrize("key_id", ["", "orders"])
def test_compaction_changes_over_to_what_is_set_now(
    make_log: Callable[..., Any], key_id: str
) -> None:
    log = filled(make_log, "" if key_id else "orders")
    log.encrypt(key_id)
    log.clean()
    assert log.pairs() == LATEST
    assert bool(files_with_secret(log)) == (not key_id)
    assert [s.key_id for s in log.log.segments if s.size] == [key_id]
    log.reload()
    assert log.pairs() == LATEST
    names = [name for name in os.listdir(log.dir) if name.endswith(".key")]
    assert len(names) == (1 if key_id else 0)


def test_damage_is_reported_and_nothing_is_left(make_log: Callable[..., Any]) -> None:
    log = filled(make_log, "orders")
    path = Path(log.log.segments[1].file.path)
    data = bytearray(path.read_bytes())
    data[-3] ^= 1
    path.write_bytes(data)
    with pytest.raises(CorruptRecord, match="damaged or changed"):
        clean(log.job(), lambda _: None)
    assert not [name for name in os.listdir(log.dir) if name.endswith(".cleaned")]


def test_keys_are_not_shown(make_log: Callable[..., Any]) -> None:
    log = filled(make_log, "orders")
    job = log.job()
    assert job.keys is not None
    assert "<SegmentKeys>" in repr(job)
    for _, secret in job.keys.old.values():
        assert secret not in repr(job)
