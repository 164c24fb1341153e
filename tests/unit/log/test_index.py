"""The three indexes as files and as searches, against plain lists."""

from __future__ import annotations

from bisect import bisect_right
from pathlib import Path
from struct import pack

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.base.errors import CorruptRecord
from penstock.log.index import AbortedTxn, IndexCache, OffsetIndex, TimeIndex, TransactionIndex

BASE = 1_000

RISING = st.lists(st.integers(1, 1_000), min_size=0, max_size=40)


def rise(steps: list[int]) -> list[int]:
    total, out = 0, []
    for step in steps:
        total += step
        out.append(total)
    return out


def offset_index(home: Path, cache: IndexCache | None = None) -> OffsetIndex:
    return OffsetIndex(str(home / "0.index"), BASE, cache or IndexCache())


@settings(max_examples=60, deadline=None)
@given(steps=RISING, flush_after=st.integers(0, 40), cut=st.integers(0, 45_000))
def test_offset_index_against_a_list(
    tmp_path_factory: pytest.TempPathFactory, steps: list[int], flush_after: int, cut: int
) -> None:
    home = tmp_path_factory.mktemp("i")
    index = offset_index(home)
    index.reset()
    offsets = [BASE + o for o in rise(steps)]
    for i, offset in enumerate(offsets):
        if i == flush_after:
            index.flush()
        index.append(offset, 10 * (i + 1))
    index.flush()
    expected = b"".join(pack(">II", o - BASE, 10 * (i + 1)) for i, o in enumerate(offsets))
    assert (home / "0.index").read_bytes() == expected
    for again in (index, offset_index(home)):
        for wanted in (0, BASE, BASE + 500, BASE + cut, *offsets):
            at = bisect_right(offsets, wanted)
            assert again.lookup(wanted) == (10 * at)
    again.truncate_to(BASE + cut)
    kept = [o for o in offsets if o < BASE + cut]
    assert again.entries == len(kept)
    assert (home / "0.index").stat().st_size == 8 * len(kept)


@settings(max_examples=60, deadline=None)
@given(steps=RISING, cut=st.integers(0, 45_000))
def test_time_index_against_a_list(
    tmp_path_factory: pytest.TempPathFactory, steps: list[int], cut: int
) -> None:
    home = tmp_path_factory.mktemp("t")
    index = TimeIndex(str(home / "0.timeindex"), BASE, IndexCache())
    index.reset()
    times = rise(steps)
    for i, time in enumerate(times):
        index.maybe_append(time, BASE + i)
        index.maybe_append(time, BASE + i)
    index.flush()
    assert (home / "0.timeindex").stat().st_size == 12 * len(times)
    again = TimeIndex(str(home / "0.timeindex"), BASE, IndexCache())
    last = (times[-1], BASE + len(times) - 1) if times else (-1, BASE)
    assert again.peek_last() == last
    for wanted in (0, cut, *times):
        below = [(t, BASE + i) for i, t in enumerate(times) if t < wanted]
        assert again.lookup(wanted) == (below[-1] if below else (-1, BASE))
    keep = min(cut, len(times))
    again.truncate_to(BASE + keep)
    assert again.peek_last() == ((times[keep - 1], BASE + keep - 1) if keep else (-1, BASE))


def test_entries_are_dropped_from_memory_and_read_again(tmp_path: Path) -> None:
    cache = IndexCache(limit=100)
    indexes = []
    for i in range(4):
        (tmp_path / str(i)).mkdir()
        index = offset_index(tmp_path / str(i), cache)
        index.reset()
        for n in range(10):
            index.append(BASE + n, n + i)
        index.flush()
        indexes.append(index)
    for _ in range(2):
        for i, index in enumerate(indexes):
            assert index.lookup(BASE + 9) == 9 + i
            assert cache.size_bytes <= 160
    unwritten = offset_index(tmp_path, cache)
    unwritten.reset()
    unwritten.append(BASE, 5)
    unwritten.lookup(BASE)
    for index in indexes:
        index.lookup(BASE)
    assert unwritten.lookup(BASE) == 5


def test_index_files_of_odd_length_are_refused(tmp_path: Path) -> None:
    (tmp_path / "0.index").write_bytes(b"12345")
    with pytest.raises(CorruptRecord, match="not a multiple of 8"):
        offset_index(tmp_path).lookup(BASE)
    (tmp_path / "0.timeindex").write_bytes(b"12345")
    with pytest.raises(CorruptRecord):
        TimeIndex(str(tmp_path / "0.timeindex"), BASE, IndexCache()).peek_last()


def test_an_entry_beyond_the_segment_is_refused(tmp_path: Path) -> None:
    index = offset_index(tmp_path)
    index.reset()
    index.append(BASE + 1, 50)
    index.sanity_check(51)
    with pytest.raises(CorruptRecord, match="does not fit a segment of 50 bytes"):
        index.sanity_check(50)


def test_transaction_index(tmp_path: Path) -> None:
    path = tmp_path / "0.txnindex"
    index = TransactionIndex(str(path), BASE)
    assert index.all() == []
    assert not path.exists()
    txns = [AbortedTxn(i, BASE + 10 * i, BASE + 10 * i + 15, BASE + 10 * i + 16) for i in range(4)]
    for txn in txns:
        index.append(txn)
    assert path.read_bytes() == b"".join(pack(">hqqqq", 0, *t) for t in txns)
    again = TransactionIndex(str(path), BASE)
    assert again.all() == txns
    assert again.collect(BASE, BASE + 10) == (txns[:1], True)
    assert again.collect(BASE + 20, BASE + 100) == (txns[1:], False)
    again.truncate_to(BASE + 35)
    assert TransactionIndex(str(path), BASE).all() == txns[:2]
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(CorruptRecord):
        TransactionIndex(str(path), BASE).all()
