"""Writes that another thread does: what is in the log, and when, is as if the log had done them."""

from __future__ import annotations

import os
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.base.errors import ApiError, ErrorCode, StorageError
from penstock.log.background_write import BackgroundWrite
from penstock.log.flush import flush
from penstock.log.limits import BACKGROUND_WRITE_BYTES_MIN, WRITE_RETRY_PAUSE_MS
from penstock.log.log import Batch, Log
from penstock.wire.records import Record, build_batch, parse_header
from unit.log.conftest import LogBox

LARGE = b"x" * BACKGROUND_WRITE_BYTES_MIN


def stage(box: Any, value: bytes = LARGE, sequence: int = -1) -> Any:
    more = {} if sequence < 0 else {"producer_id": 7, "producer_epoch": 0}
    data = build_batch([Record(0, 1_000, None, value)], base_sequence=sequence, **more)
    return box.log.stage([Batch(parse_header(data), data)], 0, box.clock.ms)


def begin(box: Any, value: bytes = LARGE, sequence: int = -1) -> BackgroundWrite:
    stage(box, value, sequence)
    write = box.log.begin_write()
    assert write is not None
    return write


def run_in_thread(write: BackgroundWrite) -> None:
    thread = Thread(target=write.run)
    thread.start()
    thread.join()


class Disk:
    """Refuses large writes that begin in a stretch of the file."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.bad = range(0)
        real = os.pwritev

        def write(fd: int, buffers: Any, position: int) -> int:
            if position in self.bad:
                raise OSError(28, "No space left on device")
            return real(fd, buffers, position)

        monkeypatch.setattr(os, "pwritev", write)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    return Disk(monkeypatch)


def test_nothing_is_in_the_log_before_its_write_has_ended(box: Any) -> None:
    box.append(b"first")
    write = begin(box)
    run_in_thread(write)
    assert (box.log.log_end_offset, box.values()) == (1, {0: b"first"})
    box.log.end_write(write)
    assert (box.log.log_end_offset, box.values()) == (2, {0: b"first", 1: LARGE})
    assert box.log.writes.size == 0
    box.log = box.reopen_clean()
    assert box.values() == {0: b"first", 1: LARGE}


def test_writes_end_in_order_in_whichever_they_were_done(box: Any) -> None:
    writes = [begin(box, LARGE + bytes([i])) for i in range(3)]
    for write in reversed(writes):
        run_in_thread(write)
    box.log.end_write(writes[1])
    assert [write.ended for write in writes] == [True, True, False]
    assert box.log.log_end_offset == 2
    stage(box, b"behind")
    box.log.write_staged()  # and so the one before it
    assert box.values() == {**{i: LARGE + bytes([i]) for i in range(3)}, 3: b"behind"}
    box.log.end_write(writes[2])
    assert box.log.segments.active.file.pins == 0


def test_who_ends_it_waits_for_it(box: Any) -> None:
    write = begin(box)
    thread = Thread(target=write.run)
    thread.start()
    box.log.end_write(write)
    thread.join()
    assert box.values() == {0: LARGE}


def test_what_is_small_or_has_no_room_is_not_begun(new_box: Any) -> None:
    box = new_box(segment_bytes=3 * len(LARGE))
    assert box.log.begin_write() is None
    stage(box, b"small")
    assert box.log.begin_write() is None
    box.log.write_staged()
    writes = [begin(box), begin(box)]
    stage(box)
    assert box.log.begin_write() is None  # with those before it there is no room
    for write in writes:
        write.run()
    box.log.write_staged()
    assert [segment.base_offset for segment in box.log.segments] == [0, 3]
    assert box.values() == {0: b"small", 1: LARGE, 2: LARGE, 3: LARGE}


def test_a_log_is_changed_otherwise_when_the_write_has_ended(box: Any) -> None:
    for number, change in enumerate((Log.roll, flush), 1):
        write = begin(box)
        run_in_thread(write)
        change(box.log)
        assert write.ended
        assert box.log.log_end_offset == number
    box.log.truncate_to(0)
    assert box.values() == {}


def test_what_fails_takes_along_all_behind_it_and_nothing_before_it(box: Any, disk: Disk) -> None:
    box.append(b"first")
    size = box.log.size_bytes
    writes = [begin(box, LARGE, sequence) for sequence in range(3)]
    stage(box, LARGE, 3)
    one = (box.log.writes.size) // 3
    disk.bad = range(size + one, size + 2 * one)
    for write in reversed(writes):
        run_in_thread(write)
    box.log.end_write(writes[0])
    for write in writes[1:]:
        with pytest.raises(StorageError, match="No space left"):
            box.log.end_write(write)
    assert box.values() == {0: b"first", 1: LARGE}
    assert os.path.getsize(box.path(0, ".log")) == size + one
    assert (box.log.segments.active.file.pins, box.log.writes.size) == (0, 0)
    disk.bad = range(0)
    box.clock.ms += WRITE_RETRY_PAUSE_MS
    with pytest.raises(ApiError) as refused:
        stage(box, LARGE, 2)  # the second is missing
    assert refused.value.code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    again = begin(box, LARGE, 1)
    again.run()
    box.log.end_write(again)
    assert box.log.failure is None
    assert box.values() == {0: b"first", 1: LARGE, 2: LARGE}


def test_what_has_ended_takes_nothing_along_of_what_is_staged_behind_it(
    box: Any, disk: Disk
) -> None:
    """The producers' state goes back to what the writes that ended have left."""
    writes = [begin(box, LARGE, sequence) for sequence in range(2)]
    disk.bad = range(box.log.writes.size, box.log.writes.size + 1)
    writes.append(begin(box, LARGE, 2))
    for write in writes:
        write.run()
    for write in writes[:2]:
        box.log.end_write(write)
    with pytest.raises(StorageError):
        box.log.end_write(writes[2])
    disk.bad = range(0)
    box.clock.ms += WRITE_RETRY_PAUSE_MS
    assert stage(box, LARGE, 1).duplicate
    assert not stage(box, LARGE, 2).duplicate
    box.log.write_staged()
    assert len(box.values()) == 3


def test_transactions_begin_and_end_with_the_write_that_holds_them(box: Any) -> None:
    def of(producer: int) -> BackgroundWrite:
        data = build_batch(
            [Record(0, 1_000, None, LARGE)],
            producer_id=producer,
            producer_epoch=0,
            base_sequence=0,
            transactional=True,
        )
        box.log.stage([Batch(parse_header(data), data)], 0, box.clock.ms)
        write = box.log.begin_write()
        assert write is not None
        write.run()
        return write

    writes = [of(7), of(8)]
    assert box.log.producers.ongoing == {}
    box.log.end_write(writes[0])
    assert box.log.producers.ongoing == {0: 7}
    box.log.end_write(writes[1])
    assert box.log.producers.ongoing == {0: 7, 1: 8}
    box.end_txn(7, commit=True)
    assert box.log.producers.ongoing == {1: 8}


def test_who_writes_behind_a_write_that_failed_is_told(box: Any, disk: Disk) -> None:
    disk.bad = range(1)
    write = begin(box)
    write.run()
    stage(box, b"behind")
    with pytest.raises(StorageError):
        box.log.write_staged()
    with pytest.raises(StorageError):
        box.log.end_write(write)
    assert (box.log.log_end_offset, box.values()) == (0, {})


def test_what_cannot_be_cut_back_at_once_is_cut_before_the_next_write(
    box: Any, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk.bad = range(1)
    writes = [begin(box), begin(box)]
    for write in writes:
        write.run()

    def refuses(fd: int, size: int) -> None:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as broken:
        broken.setattr(os, "ftruncate", refuses)
        with pytest.raises(StorageError):
            box.log.end_write(writes[1])
    assert os.path.getsize(box.path(0, ".log")) > 0
    disk.bad = range(0)
    box.clock.ms += WRITE_RETRY_PAUSE_MS
    again = begin(box, LARGE + b"y")
    assert os.path.getsize(box.path(0, ".log")) == 0
    again.run()
    box.log.end_write(again)
    assert box.values() == {0: LARGE + b"y"}


@pytest.mark.parametrize("done", [(), (0,), (1,), (0, 1)])
def test_after_a_crash_there_is_nothing_behind_what_was_not_done(
    box: Any, done: tuple[int, ...]
) -> None:
    box.append(b"first")
    writes = [begin(box, LARGE + b"a"), begin(box, LARGE + b"b")]
    for i in done:
        writes[i].run()
    box.crash()
    # What was written and not acknowledged may be there or not.
    whole = {(): 0, (0,): 1, (1,): 0, (0, 1): 2}[done]
    values = [b"first", LARGE + b"a", LARGE + b"b"][: 1 + whole]
    assert box.values() == dict(enumerate(values))


steps = st.lists(
    st.sampled_from(["stage", "small", "begin", "run", "run last", "end", "write", "break"]),
    min_size=1,
    max_size=40,
)


@settings(max_examples=150, deadline=None)
@given(steps=steps)
def test_any_order_of_steps_leaves_what_was_not_refused(steps: list[str]) -> None:
    """Against a model: what has ended well is in the log, in order, and nothing else."""
    with LogBox.home() as home, pytest.MonkeyPatch.context() as patch:
        box, disk = LogBox(Path(home)), Disk(patch)
        kept: list[bytes] = []
        begun: list[tuple[BackgroundWrite, list[bytes]]] = []
        staged: list[bytes] = []
        not_run: list[BackgroundWrite] = []
        number = 0

        def ended(up_to: int, error: bool) -> None:
            for write, values in begun[:up_to]:
                if write.failure is None and write.ended:
                    kept.extend(values)
            if error:
                begun.clear(), staged.clear(), not_run.clear()
            else:
                del begun[:up_to]

        for step in steps:
            if step in ("stage", "small"):
                number += 1
                value = (LARGE if step == "stage" else b"") + str(number).encode()
                stage(box, value, len(kept) + sum(len(v) for _, v in begun) + len(staged))
                staged.append(value)
            elif step == "begin":
                write = box.log.begin_write()
                if write is not None:
                    begun.append((write, list(staged)))
                    not_run.append(write)
                    staged.clear()
            elif step in ("run", "run last") and not_run:
                not_run.pop(0 if step == "run" else -1).run()
            elif step == "break":
                end = box.log.size_bytes + box.log.writes.size
                disk.bad = range(end, end + 1) if not disk.bad else range(0)
            elif step in ("end", "write"):
                for write in not_run:
                    write.run()
                not_run.clear()
                try:
                    if step == "write":
                        box.log.write_staged()
                        ended(len(begun), False)
                        kept.extend(staged)
                        staged.clear()
                    elif begun:
                        box.log.end_write(begun[0][0])
                        ended(1, False)
                except StorageError:
                    ended(len(begun), True)
                    disk.bad = range(0)
                    box.clock.ms += WRITE_RETRY_PAUSE_MS
            assert box.values() == dict(enumerate(kept))
        for write in not_run:
            write.run()
        try:
            box.log.write_staged()
            kept += [value for _, values in begun for value in values] + staged
        except StorageError:
            ended(len(begun), True)
        assert box.values() == dict(enumerate(kept))
        assert box.log.segments.active.file.pins == 0
        box.crash()
        assert box.values() == dict(enumerate(kept))
