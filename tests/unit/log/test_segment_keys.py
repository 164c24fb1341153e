"""Keys that are lost, wrong, mixed up, or not durable yet: one sentence, and no damage."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from penstock.base.errors import CorruptRecord, StorageError
from penstock.base.ids import TopicPartition
from penstock.keys.data_keys import DataKeys
from penstock.keys.provider import KeyUnavailable
from penstock.log.flush import flush
from penstock.log.log import Batch
from penstock.log.manager import LogManager
from penstock.log.producer_state import AppendOrigin
from penstock.log.retention import delete_old_segments
from penstock.wire.records import Record, build_batch, parse_header
from support.lookups import looked_up


@pytest.fixture
def sealed(new_box: Any) -> Any:
    """Three encrypted segments, flushed, of offsets 0, 1 and 2."""
    box = new_box()
    box.encrypt()
    for value in (b"one", b"two", b"three"):
        box.append(value)
        if value != b"three":
            box.log.roll()
    flush(box.log)
    return box


def content(box: Any) -> dict[str, bytes]:
    return {name: (box.dir / name).read_bytes() for name in sorted(os.listdir(box.dir))}


def refused(box: Any, *, clean: bool, **how: Any) -> str:
    """The log is not opened, and its data and keys stay as they are."""
    box.forget_keys()
    before = content(box)
    with pytest.raises(KeyUnavailable) as error:
        box.load(clean=clean, recovery_point=box.log.recovery_point, **how)
    for name, data in before.items():
        if name.endswith((".log", ".key")):
            assert (box.dir / name).read_bytes() == data
    return str(error.value)


VALUES = {0: b"one", 1: b"two", 2: b"three"}


def test_nothing_plain_is_in_any_file(sealed: Any) -> None:
    sealed.reopen_clean()
    assert sealed.values() == VALUES
    assert not [n for n, data in content(sealed).items() if b"one" in data or b"three" in data]
    assert sealed.names(".key") == [f"{base:020d}.key" for base in range(3)]


@pytest.mark.parametrize("clean", [True, False])
def test_a_lost_key_is_one_sentence_and_no_damage(sealed: Any, clean: bool) -> None:
    kept, sealed.keys.keys = sealed.keys.keys, {"orders": {2: b"2" * 32}}
    sentence = refused(sealed, clean=clean)
    assert "key id 'orders', version 1 is not in memory" in sentence
    assert f"{0:020d}.log cannot be decrypted" in sentence
    sealed.keys.keys = {"orders": {1: b"x" * 32}}
    assert "is not the key that this was encrypted with" in refused(sealed, clean=clean)
    sealed.env.keys = DataKeys()
    with pytest.raises(KeyUnavailable, match=r"penstock\.encryption\.provider"):
        sealed.load(clean=clean)
    sealed.keys.keys = kept
    sealed.forget_keys()
    sealed.crash()
    assert sealed.values() == VALUES


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("base", [0, 1, 2])
def test_a_missing_or_damaged_key_file(sealed: Any, base: int, clean: bool) -> None:
    path = sealed.path(base, ".key")
    kept = path.read_bytes()
    path.unlink()
    assert f"{path} is missing" in refused(sealed, clean=clean)
    path.write_bytes(kept[:-9])
    assert f"{path} is no key file" in refused(sealed, clean=clean)
    path.write_bytes(kept)
    sealed.crash()
    assert sealed.values() == VALUES


@pytest.mark.parametrize("clean", [True, False])
def test_all_key_files_are_lost_and_nobody_remembers_the_setting(sealed: Any, clean: bool) -> None:
    for base in range(3):
        sealed.path(base, ".key").unlink()
    sealed.encrypt("")
    assert f"{2:020d}.log" in refused(sealed, clean=clean)


def test_a_closed_segment_without_its_key_file_is_not_served(sealed: Any) -> None:
    for base in range(3):
        sealed.path(base, ".key").unlink()
    sealed.encrypt("")
    sealed.append(b"plain")  # rolls
    sealed.reopen_clean()
    assert sealed.values(3) == {3: b"plain"}
    with pytest.raises(KeyUnavailable, match="is encrypted and its key file is missing"):
        sealed.values(0)
    with pytest.raises(StorageError, match="is encrypted and its key file is missing"):
        looked_up(sealed.log, 0)


def test_key_files_that_are_mixed_up(sealed: Any, new_box: Any) -> None:
    one, two = sealed.path(0, ".key"), sealed.path(1, ".key")
    kept = one.read_bytes()
    shutil.copy(two, one)
    assert f"{one} is the key file of another segment" in refused(sealed, clean=True)
    one.write_bytes(kept)
    other = new_box()
    other.append(b"plain")
    flush(other.log)
    shutil.copy(one, other.path(0, ".key"))
    assert "is not encrypted" in refused(other, clean=True)


def test_the_key_file_of_another_topic(new_box: Any) -> None:
    box = new_box()
    box.log.topic_id = b"a" * 16
    box.encrypt()
    box.append(b"v")
    flush(box.log)
    box.load(clean=True, topic_id=b"a" * 16)
    assert "of another segment (topic id" in refused(box, clean=True, topic_id=b"b" * 16)


def test_a_key_that_did_not_reach_the_disk(sealed: Any) -> None:
    """The power went before the first flush of a segment: its data may be there, its key not."""
    sealed.log.roll()
    sealed.append(b"four")
    sealed.append(b"five")
    sealed.path(3, ".key").unlink()
    data = sealed.path(3, ".log").read_bytes()
    sealed.crash()
    assert sealed.values() == VALUES
    assert sealed.path(3, ".log.unreadable").read_bytes() == data
    sealed.append(b"again")
    sealed.crash()
    assert sealed.values() == {**VALUES, 3: b"again"}


def test_a_key_without_data(sealed: Any) -> None:
    sealed.log.roll()
    sealed.append(b"four")
    sealed.log.release()
    os.truncate(sealed.path(3, ".log"), 0)
    sealed.crash()
    assert sealed.values() == VALUES
    sealed.encrypt("")
    sealed.append(b"plain")
    sealed.crash()
    assert sealed.values() == {**VALUES, 3: b"plain"}
    assert not sealed.path(3, ".key").exists()


def test_a_torn_tail_is_cut_and_flushed_damage_is_not(sealed: Any) -> None:
    sealed.append(b"four")
    sealed.append(b"five")
    path = sealed.path(2, ".log")
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    sealed.crash()
    assert sealed.values() == {**VALUES, 3: b"four"}
    data = bytearray(path.read_bytes())
    data[80] ^= 1
    path.write_bytes(data)
    sealed.crash(recovery_point=4)
    assert sealed.log.log_end_offset == 4
    with pytest.raises(CorruptRecord, match="damaged or changed"):
        sealed.values(2)


def test_a_damaged_bit_is_not_served(sealed: Any) -> None:
    path = sealed.path(0, ".log")
    good = path.read_bytes()
    for at in (61, 75, len(good) - 1):
        data = bytearray(good)
        data[at] ^= 4
        path.write_bytes(data)
        with pytest.raises(CorruptRecord, match=r"\.log at position 0: .* damaged or changed"):
            sealed.log.read(0, 1 << 20, up_to_offset=1).read()
    path.write_bytes(good)
    assert sealed.values() == VALUES


def test_switched_on_and_off_again(new_box: Any) -> None:
    box = new_box()
    box.append(b"plain")
    box.encrypt()
    box.append(b"secret")
    box.append(b"secret too")
    box.encrypt("")
    box.append(b"open")
    expected = {0: b"plain", 1: b"secret", 2: b"secret too", 3: b"open"}
    assert box.values() == expected
    assert [s.key_id for s in box.log.segments] == ["", "orders", ""]
    box.reopen_clean()
    assert box.values() == expected
    box.crash(recovery_point=0)
    assert box.values() == expected
    assert [name for name, data in content(box).items() if b"secret" in data] == []


def test_a_provider_that_is_away_refuses_writes_and_nothing_else(new_box: Any) -> None:
    box = new_box()
    box.encrypt()
    box.append(b"one")
    kept, box.keys.keys = box.keys.keys, {}
    box.append(b"two")  # the segment has its key
    box.log.roll()
    with pytest.raises(StorageError, match="there is no key 'orders' in memory"):
        box.append(b"three")
    assert box.log.failure is not None
    assert box.values() == {0: b"one", 1: b"two"}
    box.keys.keys = kept
    box.clock.ms += 1_001
    box.append(b"three")
    assert box.log.failure is None
    assert box.values() == {0: b"one", 1: b"two", 2: b"three"}


def test_producers_are_known_again(new_box: Any) -> None:
    box = new_box()
    box.encrypt()
    box.send(7, 0, 3, transactional=True)
    box.end_txn(7, commit=False)
    box.send(8, 0)
    box.crash(recovery_point=0)
    assert box.send(8, 0).duplicate
    assert [t.producer_id for t in box.log.aborted_transactions(0, 5)] == [7]
    box.log.truncate_to(3)
    assert box.log.producers.first_unstable_offset == 0
    box.end_txn(7, commit=True)


def test_a_key_file_is_durable_with_the_first_flush(new_box: Any, monkeypatch: Any) -> None:
    box = new_box()
    box.encrypt()
    box.append(b"v")
    synced: list[str] = []
    monkeypatch.setattr("penstock.log.flush.fsync_path", synced.append)
    monkeypatch.setattr("penstock.log.flush.fsync_dir", synced.append)
    flush(box.log)
    assert str(box.path(0, ".key")) in synced
    assert synced.index(str(box.path(0, ".key"))) < synced.index(str(box.dir))


def test_a_deleted_segment_takes_its_key_along(sealed: Any) -> None:
    sealed.log.delete_records(2)
    assert delete_old_segments(sealed.log, sealed.clock.ms) == 2
    sealed.remove_deleted(sealed.clock.ms + 10**9)
    assert sealed.names(".key") == [f"{2:020d}.key"]
    assert sealed.values() == {2: b"three"}


def test_a_manager_moves_and_opens_encrypted_logs(sealed: Any, tmp_path: Path) -> None:
    manager = LogManager(str(tmp_path / "data"), lambda _: sealed.config, sealed.env)
    tp = TopicPartition("t", 0)
    log = manager.get_or_create(tp, b"t" * 16)
    data = build_batch([Record(0, 1, None, b"x")])
    log.append([Batch(parse_header(data), data)], 0, 1, AppendOrigin.CLIENT)
    manager.delete(tp)
    [gone] = [name for name in os.listdir(tmp_path / "data") if name.endswith("-delete")]
    assert f"{0:020d}.key" in os.listdir(tmp_path / "data" / gone)
    assert manager.due_deletions(10**15) == [str(tmp_path / "data" / gone)]
    manager.close()
