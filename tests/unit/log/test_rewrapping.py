"""Rotation: only key files change, each as a whole, and never one that was replaced meanwhile."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from penstock.base.errors import CorruptRecord
from penstock.base.ids import METADATA_TOPIC_ID
from penstock.keys.data_keys import DataKeys
from penstock.keys.provider import KeyUnavailable
from penstock.log.flush import flush
from penstock.log.key_file import KeyFile
from penstock.log.rewrapping import key_files, outdated, prepare, put, sync
from penstock.log.sealed_file import CHUNK_BYTES, SealedReader, SealedWriter, read_head
from support.keys import MemoryKeys


@pytest.fixture
def sealed(new_box: Any) -> Any:
    box = new_box()
    box.encrypt()
    for value in (b"one", b"two", b"three"):
        box.append(value)
        box.log.roll()
    flush(box.log)
    return box


def rewrapped(box: Any) -> int:
    prepared = prepare(outdated([str(box.dir)], box.env.keys), box.env.keys)
    replaced = [each for each in prepared if put(each)]
    sync(replaced)
    return len(replaced)


def test_only_key_files_change(sealed: Any) -> None:
    assert rewrapped(sealed) == 0
    before = {n: (sealed.dir / n).read_bytes() for n in os.listdir(sealed.dir)}
    assert sealed.keys.new_version("orders") == 2
    assert rewrapped(sealed) == 3
    after = {n: (sealed.dir / n).read_bytes() for n in os.listdir(sealed.dir)}
    assert after.keys() == before.keys()
    assert {n for n in after if after[n] != before[n]} == set(sealed.names(".key"))
    del sealed.keys.keys["orders"][1]
    sealed.forget_keys()
    sealed.reopen_clean()
    assert sealed.values() == {0: b"one", 1: b"two", 2: b"three"}
    sealed.append(b"four")
    versions = {found.key_file.wrapped.version for found in key_files([str(sealed.dir)])}
    assert versions == {2}


def test_what_was_replaced_or_removed_meanwhile_stays_so(sealed: Any) -> None:
    sealed.keys.new_version("orders")
    prepared = prepare(outdated([str(sealed.dir)], sealed.env.keys), sealed.env.keys)
    sealed.path(0, ".key").unlink()
    other = sealed.path(2, ".key").read_bytes()
    sealed.path(1, ".key").write_bytes(other)
    assert [put(each) for each in prepared] == [False, False, True]
    assert not sealed.path(0, ".key").exists()
    assert sealed.path(1, ".key").read_bytes() == other
    assert not [name for name in os.listdir(sealed.dir) if "rewrapped" in name]


def test_a_key_that_is_lost_changes_nothing(sealed: Any) -> None:
    before = {n: (sealed.dir / n).read_bytes() for n in os.listdir(sealed.dir)}
    sealed.keys.keys = {"orders": {2: b"2" * 32}}
    sealed.forget_keys()
    with pytest.raises(KeyUnavailable, match=r"version 1 is not in memory"):
        rewrapped(sealed)
    assert {n: (sealed.dir / n).read_bytes() for n in os.listdir(sealed.dir)} == before


# -- files that are encrypted as a whole -------------------------------------------------------


def written(path: Path, keys: DataKeys, data: bytes, name: str = "a") -> None:
    key = keys.take("orders")
    writer = SealedWriter(key, KeyFile(METADATA_TOPIC_ID, 0, 7, key.wrapped), name)
    stored = writer.head
    for at in range(0, len(data), 50_000):
        stored += writer.add(data[at : at + 50_000])
    path.write_bytes(stored + writer.end())


def read(path: Path, keys: DataKeys, position: int, size: int) -> bytes:
    fd = os.open(path, os.O_RDONLY)
    try:
        head = read_head(fd, str(path))
        assert head is not None
        return SealedReader(fd, str(path), "a", head, keys).read(position, size)
    finally:
        os.close(fd)


@pytest.mark.parametrize("size", [0, 1, CHUNK_BYTES - 1, CHUNK_BYTES, CHUNK_BYTES + 1, 200_000])
def test_any_part_of_a_file_can_be_read(tmp_path: Path, size: int) -> None:
    keys, path, data = DataKeys(MemoryKeys()), tmp_path / "a.checkpoint", os.urandom(size)
    written(path, keys, data)
    for position in (0, 1, CHUNK_BYTES - 1, CHUNK_BYTES, size - 1, size, size + 1):
        for count in (1, CHUNK_BYTES, size + 10):
            if position >= 0:
                expected = data[position : position + count]
                assert read(path, keys, position, count) == expected
    keys.provider.new_version("orders")  # type: ignore[union-attr]
    prepared = prepare(outdated([str(tmp_path)], keys), keys)
    assert [put(each) for each in prepared] == [True]
    assert read(path, keys, 0, size) == data


def test_nothing_can_be_moved_or_cut_off(tmp_path: Path) -> None:
    keys, path = DataKeys(MemoryKeys()), tmp_path / "a"
    written(path, keys, os.urandom(3 * CHUNK_BYTES))
    good = path.read_bytes()
    start = len(good) - 3 * (CHUNK_BYTES + 28)
    chunks = [good[start + i * (CHUNK_BYTES + 28) :][: CHUNK_BYTES + 28] for i in range(3)]
    for bad in (
        good[: -CHUNK_BYTES - 28],
        good[:-1],
        good[:start] + chunks[1] + chunks[0] + chunks[2],
        good[:-1] + bytes([good[-1] ^ 1]),
    ):
        path.write_bytes(bad)
        with pytest.raises(CorruptRecord, match="damaged or changed"):
            read(path, keys, 0, 10 * CHUNK_BYTES)
    written(path, keys, b"data", name="b")
    with pytest.raises(CorruptRecord, match="damaged or changed"):
        read(path, keys, 0, 10)
