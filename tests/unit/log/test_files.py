"""Descriptors behind an LRU, atomic files, checkpoints."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.base.errors import CorruptRecord
from penstock.base.ids import TopicPartition
from penstock.log.checkpoints import (
    read_checkpoint,
    read_meta_properties,
    read_partition_metadata,
    write_checkpoint,
    write_meta_properties,
    write_partition_metadata,
)
from penstock.log.epoch_cache import LeaderEpochFileCache
from penstock.log.files import FileCache, LogFile


def make_files(tmp_path: Path, cache: FileCache, count: int) -> list[LogFile]:
    for i in range(count):
        (tmp_path / str(i)).write_bytes(b"file %d" % i)
    return [LogFile(str(tmp_path / str(i)), cache) for i in range(count)]


def test_the_file_used_longest_ago_is_closed(tmp_path: Path) -> None:
    cache = FileCache(limit=2)
    a, b, c = make_files(tmp_path, cache, 3)
    assert a.pread(10, 0) == b"file 0"
    b.pread(1, 0)
    c.pread(1, 0)
    assert cache.opened == 2
    assert (a.fd, c.fd >= 0) == (-1, True)
    assert a.pread(10, 0) == b"file 0"
    assert cache.opened == 2


def test_a_pinned_file_is_never_closed(tmp_path: Path) -> None:
    cache = FileCache(limit=1)
    files = make_files(tmp_path, cache, 4)
    fds = [f.pin() for f in files]
    assert cache.opened == 4
    assert [os.pread(fd, 10, 0) for fd in fds] == [b"file %d" % i for i in range(4)]
    files[0].close()
    assert os.pread(fds[0], 10, 0) == b"file 0"
    for f in files:
        f.unpin()
    assert files[0].fd == -1
    assert cache.opened == 3
    files[0].pread(1, 0)
    assert cache.opened == 1


def test_a_failed_open_leaves_no_pin(tmp_path: Path) -> None:
    file = LogFile(str(tmp_path / "missing"), FileCache())
    with pytest.raises(FileNotFoundError):
        file.pin()
    assert file.pins == 0


def test_a_renamed_file_is_still_read(tmp_path: Path) -> None:
    cache = FileCache(limit=1)
    a, b = make_files(tmp_path, cache, 2)
    a.pread(1, 0)
    a.rename(str(tmp_path / "renamed"))
    b.pread(1, 0)
    assert a.fd == -1
    assert a.pread(10, 0) == b"file 0"


def test_threads_share_few_descriptors(tmp_path: Path) -> None:
    cache = FileCache(limit=3)
    files = make_files(tmp_path, cache, 8)
    wrong: list[int] = []

    def read_all() -> None:
        for _ in range(300):
            for i, file in enumerate(files):
                if file.pread(10, 0) != b"file %d" % i:
                    wrong.append(i)

    threads = [threading.Thread(target=read_all) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert cache.opened <= 3
    for file in files:
        file.close()
    assert cache.opened == 0


OFFSETS = st.dictionaries(
    st.builds(
        TopicPartition, st.from_regex(r"[a-zA-Z0-9._-]{1,20}", fullmatch=True), st.integers(0, 9)
    ),
    st.integers(0, 2**63 - 1),
)


@settings(max_examples=30, deadline=None)
@given(offsets=OFFSETS)
def test_checkpoints_are_read_as_written(
    tmp_path_factory: pytest.TempPathFactory, offsets: dict[TopicPartition, int]
) -> None:
    path = str(tmp_path_factory.mktemp("c") / "checkpoint")
    write_checkpoint(path, offsets)
    assert read_checkpoint(path) == offsets


def test_checkpoint_format(tmp_path: Path) -> None:
    path = tmp_path / "recovery-point-offset-checkpoint"
    write_checkpoint(str(path), {TopicPartition("a", 0): 5, TopicPartition("b", 12): 7})
    assert path.read_text() == "0\n2\na 0 5\nb 12 7\n"
    assert [p.name for p in tmp_path.iterdir()] == [path.name]


@pytest.mark.parametrize(
    "text", ["", "0\n", "1\n0\n", "0\nx\n", "0\n2\na 0 5\n", "0\n1\na 0\n", "0\n1\na b c\n", "\xff"]
)
def test_damaged_checkpoints_are_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "checkpoint"
    path.write_text(text, encoding="latin-1")
    with pytest.raises(CorruptRecord):
        read_checkpoint(str(path))


def test_a_missing_checkpoint_is_empty(tmp_path: Path) -> None:
    assert read_checkpoint(str(tmp_path / "none")) == {}


def test_topic_ids(tmp_path: Path) -> None:
    assert read_partition_metadata(str(tmp_path)) is None
    write_partition_metadata(str(tmp_path), bytes(range(16)))
    assert read_partition_metadata(str(tmp_path)) == bytes(range(16))
    assert (tmp_path / "partition.metadata").read_text().startswith("version: 0\ntopic_id: AAEC")
    (tmp_path / "partition.metadata").write_text("version: 0\n")
    assert read_partition_metadata(str(tmp_path)) is None
    (tmp_path / "partition.metadata").write_bytes(b"\x8f torn by a loss of power")
    assert read_partition_metadata(str(tmp_path)) is None


def test_meta_properties(tmp_path: Path) -> None:
    assert read_meta_properties(str(tmp_path)) is None
    write_meta_properties(str(tmp_path), {"node.id": "1", "cluster.id": "abc="})
    assert read_meta_properties(str(tmp_path)) == {
        "version": "1",
        "node.id": "1",
        "cluster.id": "abc=",
    }
    (tmp_path / "meta.properties").write_text("#comment\nnode.id=1\n")
    with pytest.raises(CorruptRecord, match="version None, expected 1"):
        read_meta_properties(str(tmp_path))


class TestLeaderEpochs:
    def make(self, tmp_path: Path, *entries: tuple[int, int]) -> LeaderEpochFileCache:
        cache = LeaderEpochFileCache(str(tmp_path))
        for epoch, start in entries:
            cache.assign(epoch, start)
        return cache

    def entries(self, cache: LeaderEpochFileCache) -> list[tuple[int, int]]:
        return [tuple(e) for e in cache.entries]

    def test_file_format_and_reload(self, tmp_path: Path) -> None:
        cache = self.make(tmp_path, (0, 0), (2, 10), (5, 30))
        self.flush(cache)
        assert (tmp_path / "leader-epoch-checkpoint").read_text() == "0\n3\n0 0\n2 10\n5 30\n"
        assert [path.name for path in tmp_path.iterdir()] == ["leader-epoch-checkpoint"]
        again = LeaderEpochFileCache(str(tmp_path))
        again.load()
        assert again.entries == cache.entries
        assert again.latest_epoch == 5

    def flush(self, cache: LeaderEpochFileCache) -> None:
        work = cache.flush_begin()
        assert work is not None
        work()
        assert cache.flush_begin() is None

    def test_nobody_waits_for_the_disk_when_an_epoch_begins(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        syncs: list[int] = []
        monkeypatch.setattr(os, "fsync", syncs.append)
        cache = self.make(tmp_path, (0, 0), (2, 10), (5, 30))
        cache.truncate_from_end(30)
        assert syncs == []
        self.flush(cache)
        assert syncs

    def test_what_was_cut_off_during_a_flush_stays_cut_off(self, tmp_path: Path) -> None:
        path = tmp_path / "leader-epoch-checkpoint"
        cache = self.make(tmp_path, (0, 0), (2, 10), (5, 30))
        late = cache.flush_begin()
        cache.truncate_from_end(30)
        assert late is not None
        late()
        assert path.read_text() == "0\n2\n0 0\n2 10\n"
        assert list(tmp_path.iterdir()) == [path]
        # One that has only begun meanwhile is left to the next flush.
        cache.assign(6, 40)
        late = cache.flush_begin()
        cache.assign(7, 50)
        assert late is not None
        late()
        assert path.read_text() == "0\n3\n0 0\n2 10\n6 40\n"
        self.flush(cache)
        assert path.read_text() == "0\n4\n0 0\n2 10\n6 40\n7 50\n"

    def test_of_two_flushes_at_once_the_later_one_stays(self, tmp_path: Path) -> None:
        cache = self.make(tmp_path, (0, 0), (2, 10))
        early = cache.flush_begin()
        cache.assign(5, 30)
        self.flush(cache)
        assert early is not None
        early()
        path = tmp_path / "leader-epoch-checkpoint"
        assert path.read_text() == "0\n3\n0 0\n2 10\n5 30\n"

    def test_a_conflicting_entry_replaces_later_ones(self, tmp_path: Path) -> None:
        cache = self.make(tmp_path, (0, 0), (2, 10), (5, 30))
        cache.assign(5, 40)
        assert self.entries(cache) == [(0, 0), (2, 10), (5, 30)]
        cache.assign(3, 20)
        assert self.entries(cache) == [(0, 0), (2, 10), (3, 20)]
        cache.assign(7, 20)
        assert self.entries(cache) == [(0, 0), (2, 10), (7, 20)]

    def test_truncation(self, tmp_path: Path) -> None:
        cache = self.make(tmp_path, (0, 0), (2, 10), (5, 30))
        cache.truncate_from_end(30)
        assert self.entries(cache) == [(0, 0), (2, 10)]
        cache.truncate_from_start(15)
        assert self.entries(cache) == [(2, 15)]
        cache.truncate_from_start(12)
        assert self.entries(cache) == [(2, 15)]
        cache.clear()
        assert (cache.entries, cache.latest_epoch) == ([], -1)

    def test_end_offsets(self, tmp_path: Path) -> None:
        cache = self.make(tmp_path, (2, 10), (5, 30))
        answers = {e: cache.end_offset_for(e, 50) for e in range(-1, 7)}
        assert answers == {
            -1: (-1, -1),
            0: (0, 10),
            1: (1, 10),
            2: (2, 30),
            3: (2, 30),
            4: (2, 30),
            5: (5, 50),
            6: (-1, -1),
        }
        assert [cache.epoch_for_offset(o) for o in (9, 10, 29, 30, 99)] == [-1, 2, 2, 5, 5]

    def test_a_damaged_file_is_dropped(self, tmp_path: Path) -> None:
        (tmp_path / "leader-epoch-checkpoint").write_text("0\n5\n0 0\n")
        cache = LeaderEpochFileCache(str(tmp_path))
        cache.load()
        assert cache.entries == []
