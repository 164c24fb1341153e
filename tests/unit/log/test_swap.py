"""The swap of compacted segments: crashes, cuts, deletions and failing disks at every step."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock.base.errors import StorageError
from penstock.log import replacement
from penstock.log.flush import flush
from penstock.wire.records import Record, build_batch
from support.swaps import swap_in


def cleaned_copy(box: Any, base: int, values: dict[int, bytes], suffix: str) -> None:
    """A compacted segment as the cleaner leaves it: data and indexes under `suffix`."""
    data = b"".join(build_batch([Record(0, 1, None, v)], base_offset=o) for o, v in values.items())
    for kind, content in ((".log", data), (".index", b""), (".timeindex", b"")):
        Path(f"{box.path(base, kind)}{suffix}").write_bytes(content)


def two_segments(new_box: Any) -> Any:
    box = new_box()
    for i in range(3):
        box.append(b"%d" % i)
    box.log.roll()
    for i in range(3, 6):
        box.append(b"%d" % i)
    box.log.roll()
    box.append(b"active")
    return box


KEPT = {1: b"1", 5: b"5"}
COMPACTED = {**KEPT, 6: b"active"}
ORIGINAL = {0: b"0", 1: b"1", 2: b"2", 3: b"3", 4: b"4", 5: b"5", 6: b"active"}


def test_compacted_segments_are_swapped_in(new_box: Any) -> None:
    box = two_segments(new_box)
    piece = box.log.read(0, 1 << 20, up_to_offset=7)
    cleaned_copy(box, 0, KEPT, ".cleaned")
    swap_in(box.log, 0, [0, 3])
    assert box.values() == COMPACTED
    assert len(piece.read()) > 0
    assert box.names(".log") == [f"{0:020d}.log", f"{6:020d}.log"]
    assert box.names(".log.deleted") == [f"{0:020d}.log.deleted", f"{3:020d}.log.deleted"]
    box.remove_deleted(box.clock.ms + 60_000)
    assert not box.names(".deleted")
    for start in (box.reopen_clean, box.crash):
        start()
        assert box.values() == COMPACTED


def test_the_active_segment_is_not_swapped(new_box: Any) -> None:
    box = two_segments(new_box)
    with pytest.raises(Exception, match="active segment"):
        box.log.swap_begin(6, [6])


def test_a_crash_before_the_swap_keeps_the_old_segments(new_box: Any) -> None:
    box = two_segments(new_box)
    cleaned_copy(box, 0, KEPT, ".cleaned")
    box.crash()
    assert box.values() == ORIGINAL
    assert not box.names(".cleaned")


@pytest.mark.parametrize("retired", [0, 1, 2])
def test_a_crash_in_the_middle_of_the_swap_completes_it(new_box: Any, retired: int) -> None:
    box = two_segments(new_box)
    cleaned_copy(box, 0, KEPT, ".swap")
    for base in (0, 3)[:retired]:
        for kind in (".log", ".index", ".timeindex"):
            os.rename(box.path(base, kind), f"{box.path(base, kind)}.deleted")
    box.crash()
    assert box.values() == COMPACTED
    assert not box.names(".swap") + box.names(".deleted")


def test_swap_files_beside_unfinished_ones_are_undone(new_box: Any) -> None:
    box = two_segments(new_box)
    cleaned_copy(box, 0, {1: b"1"}, ".cleaned")
    cleaned_copy(box, 3, {5: b"5"}, ".swap")
    box.crash()
    assert box.values() == ORIGINAL


def test_what_is_undone_is_gone_from_the_disk_before_what_says_so(
    new_box: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A `.swap` alone would be carried out by the next start."""
    synced: list[set[str]] = []
    monkeypatch.setattr(replacement, "fsync_dir", lambda path: synced.append(set(os.listdir(path))))
    box = two_segments(new_box)
    cleaned_copy(box, 0, {1: b"1"}, ".cleaned")
    cleaned_copy(box, 3, {5: b"5"}, ".swap")
    box.crash()
    [names] = synced
    assert f"{0:020d}.log.cleaned" in names
    assert not [name for name in names if name.endswith(".swap")]


def test_nothing_is_synced_for_what_is_only_removed(
    new_box: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []
    monkeypatch.setattr(replacement, "fsync_dir", synced.append)
    box = two_segments(new_box)
    cleaned_copy(box, 0, {1: b"1"}, ".cleaned")
    cleaned_copy(box, 3, {5: b"5"}, ".deleted")
    box.crash()
    assert box.values() == ORIGINAL
    assert not synced
    assert not [n for n in os.listdir(box.log.dir) if n.endswith((".cleaned", ".deleted"))]


STEPS = ("prepare", "install", "sync", "settle", "sync", "end")


def begun(new_box: Any, steps: int) -> tuple[Any, Any]:
    """A log whose first two segments are being swapped, after so many steps."""
    box = two_segments(new_box)
    box.log.update_high_watermark(7)
    cleaned_copy(box, 0, KEPT, ".cleaned")
    swap = box.log.swap_begin(0, [0, 3])
    for step in STEPS[:steps]:
        getattr(swap, step)()
    return box, swap


@pytest.mark.parametrize("steps", range(len(STEPS) + 1))
def test_a_crash_between_any_two_steps_loses_nothing(new_box: Any, steps: int) -> None:
    box, _ = begun(new_box, steps)
    assert box.values() == (COMPACTED if steps > 1 else ORIGINAL)
    box.crash()
    assert box.values() == (COMPACTED if steps > 0 else ORIGINAL)
    assert not [name for name in box.names("") if name.endswith((".cleaned", ".swap", ".deleted"))]
    box.crash()
    assert box.values() == (COMPACTED if steps > 0 else ORIGINAL)


@pytest.mark.parametrize("steps", range(len(STEPS) + 1))
def test_what_is_cut_off_meanwhile_stays_cut_off(new_box: Any, steps: int) -> None:
    box, swap = begun(new_box, steps)
    box.log.truncate_to(4)
    box.append(b"other")
    kept = {1: b"1"} if steps > 1 else {i: b"%d" % i for i in range(4)}
    end = box.log.log_end_offset
    expected = {**kept, end - 1: b"other"}
    assert box.values() == expected
    if steps <= 1:
        swap.prepare()
        assert not swap.install()
    else:
        for step in STEPS[steps:]:
            getattr(swap, step)()
    assert box.values() == expected
    box.crash()
    assert box.values() == expected


@pytest.mark.parametrize("steps", range(len(STEPS)))
def test_a_partition_that_is_deleted_meanwhile_is_left_alone(new_box: Any, steps: int) -> None:
    box, swap = begun(new_box, steps)
    gone = box.dir.with_name("topic-0.gone-delete")
    box.log.move_to(str(gone))
    assert box.values() == (COMPACTED if steps > 1 else ORIGINAL)
    names = sorted(os.listdir(gone))
    for step in STEPS[steps:]:
        assert not getattr(swap, step)()
        if step == "install":
            break
    assert sorted(os.listdir(gone)) == names
    assert box.log.failure is None


def test_a_log_that_is_abandoned_meanwhile_keeps_its_files(new_box: Any) -> None:
    box, swap = begun(new_box, 1)
    box.log.abandon("an invariant is broken")
    assert not swap.install()
    box.crash()
    assert box.values() == ORIGINAL


def refuse(what: Callable[[str], bool]) -> Callable[[str], None]:
    def sync(path: str) -> None:
        if what(path):
            raise OSError(5, "the disk fails")

    return sync


def test_a_copy_that_cannot_be_synced_is_not_swapped_in(
    new_box: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replacement, "fsync_path", refuse(lambda path: True))
    box, swap = begun(new_box, 1)
    with pytest.raises(StorageError, match="the disk fails"):
        swap.install()
    assert (box.values(), box.log.failure, box.log.swap) == (ORIGINAL, None, None)
    box.crash()
    assert box.values() == ORIGINAL


def test_names_that_cannot_be_synced_before_the_swap_leave_the_log_as_it_was(
    new_box: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(replacement, "fsync_dir", refuse(lambda path: True))
        box, swap = begun(new_box, 1)
        with pytest.raises(StorageError, match="the disk fails"):
            swap.install()
    assert (box.values(), box.log.failure) == (ORIGINAL, None)
    box.crash()
    assert box.values() == ORIGINAL


@pytest.mark.parametrize("steps", [2, 4])
def test_names_that_cannot_be_synced_afterwards_fail_the_log(
    new_box: Any, monkeypatch: pytest.MonkeyPatch, steps: int
) -> None:
    box, swap = begun(new_box, steps)
    monkeypatch.setattr(replacement, "fsync_dir", refuse(lambda path: True))
    swap.sync()
    with pytest.raises(StorageError, match="the disk fails"):
        getattr(swap, STEPS[steps + 1])()
    assert box.values() == COMPACTED
    assert box.log.failure is not None


def test_old_names_are_gone_from_the_disk_before_the_new_one_is_final(
    new_box: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[set[str]] = []
    monkeypatch.setattr(replacement, "fsync_dir", lambda path: synced.append(set(os.listdir(path))))
    box, _ = begun(new_box, len(STEPS))
    first, third = f"{0:020d}.log", f"{3:020d}.log"
    prepared, retired, settled = synced
    assert {first, third, f"{first}.swap"} <= prepared
    assert {f"{first}.swap", f"{first}.deleted", f"{third}.deleted"} <= retired
    assert not {first, third} & retired
    assert first in settled
    assert f"{first}.swap" not in settled
    assert box.values() == COMPACTED


def test_a_swap_that_a_start_carries_out_leaves_no_old_list_of_aborted_transactions(
    new_box: Any,
) -> None:
    box = new_box()
    box.send(7, 0, transactional=True)
    box.end_txn(7, commit=False)
    box.log.roll()
    box.append(b"active")
    assert box.log.aborted_transactions(0, 3)
    cleaned_copy(box, 0, {}, ".swap")
    box.crash()
    assert box.log.aborted_transactions(0, 3) == []


def test_a_swap_keeps_the_list_of_aborted_transactions_that_it_had_begun_to_rename(
    new_box: Any,
) -> None:
    box = new_box()
    box.send(7, 0, transactional=True)
    box.end_txn(7, commit=False)
    box.log.roll()
    box.append(b"active")
    aborted = box.log.aborted_transactions(0, 3)
    # All but the data has its name.
    os.rename(box.path(0, ".log"), f"{box.path(0, '.log')}.swap")
    box.crash()
    assert box.log.aborted_transactions(0, 3) == aborted


def test_a_flush_after_a_cut_makes_the_names_durable(
    new_box: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    box = two_segments(new_box)
    flush(box.log)
    box.log.truncate_to(4)
    box.append(b"other")
    synced: list[str] = []
    monkeypatch.setattr("penstock.log.flush.fsync_dir", synced.append)
    flush(box.log)
    assert str(box.dir) in synced
