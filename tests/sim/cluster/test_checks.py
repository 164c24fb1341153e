"""Histories that the checks refuse, of partitions that need not keep everything."""

from __future__ import annotations

import pytest

from penstock.wire.records import Record, build_batch

from .checks import CompactedHistory, History, RetainedHistory, Violation, keyed

WHO = "c"


def batch(offset: int, *records: tuple[bytes, bytes | None]) -> bytes:
    said = [Record(i, 0, key, value) for i, (key, value) in enumerate(records)]
    return build_batch(said, base_offset=offset)


def history(kind: type[CompactedHistory | RetainedHistory]) -> History:
    made = History()
    made.kinds["t"] = kind
    return made


def over(made: History, *batches: bytes) -> None:
    """All is read anew, and judged."""
    made.of("t", 0).is_over = True
    made.read("t", 0, b"".join(batches), WHO)
    made.check_complete()


def test_compaction_may_take_what_came_before() -> None:
    made = history(CompactedHistory)
    made.acknowledge("t", 0, 0, [keyed(b"k", b"old"), keyed(b"k", b"new")], WHO)
    over(made, batch(1, (b"k", b"new")))


def test_compaction_may_not_take_the_last() -> None:
    made = history(CompactedHistory)
    made.acknowledge("t", 0, 0, [keyed(b"k", b"old"), keyed(b"k", b"new")], WHO)
    with pytest.raises(Violation, match="the last of its key"):
        over(made, batch(0, (b"k", b"old")))


def test_a_deletion_may_go_with_what_it_deletes() -> None:
    made = history(CompactedHistory)
    made.acknowledge("t", 0, 0, [keyed(b"k", b"old"), keyed(b"k", None)], WHO)
    over(made)


def test_what_was_deleted_may_not_come_back() -> None:
    made = history(CompactedHistory)
    made.acknowledge("t", 0, 0, [keyed(b"k", b"old"), keyed(b"k", None)], WHO)
    with pytest.raises(Violation, match="is back"):
        over(made, batch(0, (b"k", b"old")))


def test_a_compacted_record_does_not_change() -> None:
    made = history(CompactedHistory)
    made.read("t", 0, batch(3, (b"k", b"one")), WHO)
    with pytest.raises(Violation, match="others"):
        made.read("t", 0, batch(3, (b"k", b"other")), WHO)


def test_retention_may_take_what_lies_below_the_log_start() -> None:
    made = history(RetainedHistory)
    made.acknowledge("t", 0, 0, [b"p/0 ", b"p/1 ", b"p/2 "], WHO)
    made.of("t", 0).is_over = True
    made.told_log_start("t", 0, epoch=1, start=1, before=0, high_watermark=3)
    over(made, batch(1, (b"k", b"p/1 "), (b"k", b"p/2 ")))


def test_retention_may_take_nothing_else() -> None:
    made = history(RetainedHistory)
    made.acknowledge("t", 0, 0, [b"p/0 ", b"p/1 ", b"p/2 "], WHO)
    made.of("t", 0).is_over = True
    made.told_log_start("t", 0, epoch=1, start=1, before=0, high_watermark=3)
    with pytest.raises(Violation, match="is lost"):
        over(made, batch(2, (b"k", b"p/2 ")))


@pytest.mark.parametrize(
    ("start", "before", "why"), [(1, 2, "after 2"), (4, 0, "above its high watermark")]
)
def test_a_log_start_is_refused(start: int, before: int, why: str) -> None:
    made = history(RetainedHistory)
    with pytest.raises(Violation, match=why):
        made.told_log_start("t", 0, 1, start, before, high_watermark=3)


def test_where_all_is_kept_the_log_start_stays() -> None:
    with pytest.raises(Violation, match="all is kept"):
        History().told_log_start("t", 0, 1, start=1, before=0, high_watermark=3)


def test_what_was_read_once_may_not_vanish() -> None:
    made = History()
    made.read("t", 0, batch(0, (b"k", b"p/0 ")), WHO)
    with pytest.raises(Violation, match="is lost"):
        over(made)
