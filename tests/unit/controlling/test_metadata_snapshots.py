"""Snapshots of the metadata: written in steps, whole or not at all, read back as they were."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from penstock.base.errors import CorruptRecord
from penstock.controlling import metadata_snapshots as snapshots
from penstock.controlling.metadata_snapshots import Encryption, SnapshotDownload, SnapshotWriter
from penstock.keys.data_keys import DataKeys
from penstock.keys.provider import KeyUnavailable
from penstock.metadata.records import (
    METADATA_VERSION_MAX,
    ConfigRecord,
    MetadataRecord,
    TopicRecord,
    decode_batch,
)
from penstock.raft import control_records
from penstock.raft.types import Endpoint, OffsetAndEpoch, ReplicaKey
from penstock.raft.voters import VoterNode, VoterSet
from support.keys import KEY_ID, memory_keys

VOTERS = VoterSet(
    [VoterNode(ReplicaKey(1, b"d" * 16), (Endpoint("PLAINTEXT", "127.0.0.1", 9092),))]
)
NOW_MS = 1_700_000_000_000
FIRST = [
    control_records.snapshot_header(NOW_MS, NOW_MS),
    control_records.kraft_version(1, NOW_MS),
    control_records.voters_record(VOTERS, NOW_MS),
]


def records(count: int) -> list[MetadataRecord]:
    return [TopicRecord(name=f"t{i}", topic_id=i.to_bytes(16, "big")) for i in range(count)]


KEYS = memory_keys()
PLAIN = Encryption(KEYS, "")
BOTH = pytest.mark.parametrize("how", [PLAIN, Encryption(KEYS, KEY_ID)], ids=["plain", "encrypted"])


def write(
    folder: Path, id_: OffsetAndEpoch, contents: list[MetadataRecord], how: Encryption = PLAIN
) -> int:
    """Writes a snapshot; the number of steps it took."""
    writer = SnapshotWriter(
        str(folder),
        id_,
        first=FIRST,
        last_timestamp_ms=NOW_MS,
        records=iter(contents),
        metadata_version=METADATA_VERSION_MAX,
        encryption=how,
    )
    steps = 1
    while not writer.step():
        steps += 1
    writer.finish()
    return steps


def read(folder: Path) -> list[MetadataRecord]:
    found = snapshots.newest_snapshot(str(folder), KEYS)
    assert found is not None
    return [record for batch in found.batches for record in decode_batch(batch)]


@BOTH
@pytest.mark.parametrize("count", [0, 1, 63, 64, 65, 1000])
def test_what_is_written_is_read_back(tmp_path: Path, count: int, how: Encryption) -> None:
    contents = records(count)
    steps = write(tmp_path, OffsetAndEpoch(1234, 5), contents, how)
    assert steps == count // snapshots.RECORDS_PER_STEP + 1
    assert os.listdir(tmp_path) == ["00000000000000001234-0000000005.checkpoint"]
    found = snapshots.newest_snapshot(str(tmp_path), KEYS)
    assert found is not None
    assert found.id == (1234, 5)
    assert found.kraft_version == 1
    assert found.voters == VOTERS
    assert found.last_timestamp_ms == NOW_MS
    assert read(tmp_path) == contents


@BOTH
def test_the_newest_whole_one_counts(tmp_path: Path, how: Encryption) -> None:
    old = [ConfigRecord(resource_type=2, resource_name="t", name="a", value=str(i)) for i in (1, 2)]
    for offset, contents in ((10, records(3)), (20, old), (30, records(5))):
        write(tmp_path, OffsetAndEpoch(offset, 1), contents, how)
    assert read(tmp_path) == records(5)
    newest = tmp_path / "00000000000000000030-0000000001.checkpoint"
    newest.write_bytes(newest.read_bytes()[:-10])
    assert read(tmp_path) == old


@pytest.mark.parametrize("damage", ["no footer", "no header", "a flipped bit", "empty"])
def test_a_damaged_one_is_left_out(tmp_path: Path, damage: str) -> None:
    write(tmp_path, OffsetAndEpoch(10, 1), records(100))
    [path] = tmp_path.iterdir()
    data = bytearray(path.read_bytes())
    size = int.from_bytes(data[8:12], "big") + 12
    if damage == "no footer":
        found = snapshots.newest_snapshot(str(tmp_path), KEYS)
        assert found is not None
        data = data[: size + sum(map(len, found.batches))]
    elif damage == "no header":
        data = data[size:]
    elif damage == "a flipped bit":
        data[len(data) // 2] ^= 1
    else:
        data.clear()
    path.write_bytes(data)
    assert snapshots.newest_snapshot(str(tmp_path), KEYS) is None
    with pytest.raises(CorruptRecord, match=path.name):
        snapshots.read_snapshot(str(tmp_path), OffsetAndEpoch(10, 1), KEYS)


def test_older_ones_and_leftovers_go(tmp_path: Path) -> None:
    for offset in (10, 20, 30):
        write(tmp_path, OffsetAndEpoch(offset, 1), records(1))
    (tmp_path / "00000000000000000040-0000000001.checkpoint.part").write_bytes(b"x")
    snapshots.remove_parts(str(tmp_path))
    snapshots.remove_older(str(tmp_path))
    assert snapshots.stored_snapshots(str(tmp_path)) == [(20, 1), (30, 1)]
    assert len(os.listdir(tmp_path)) == 2


def test_one_that_is_given_up_leaves_nothing(tmp_path: Path) -> None:
    writer = SnapshotWriter(
        str(tmp_path),
        OffsetAndEpoch(10, 1),
        first=FIRST,
        last_timestamp_ms=NOW_MS,
        records=iter(records(200)),
        metadata_version=METADATA_VERSION_MAX,
        encryption=PLAIN,
    )
    writer.step()
    writer.abandon()
    assert os.listdir(tmp_path) == []


def test_one_that_cannot_be_decrypted_is_not_left_out(tmp_path: Path) -> None:
    """It may be whole, and an older one, or none, would be taken for the truth."""
    write(tmp_path, OffsetAndEpoch(10, 1), records(3))
    write(tmp_path, OffsetAndEpoch(20, 1), records(5), Encryption(KEYS, KEY_ID))
    [_, path] = sorted(tmp_path.iterdir())
    assert b"t4" not in path.read_bytes()
    with pytest.raises(KeyUnavailable, match=f"{path.name} cannot be decrypted"):
        snapshots.newest_snapshot(str(tmp_path), DataKeys())
    assert read(tmp_path) == records(5)


@BOTH
@pytest.mark.parametrize("piece_bytes", [100, 1000, 1_000_000])
def test_a_snapshot_travels_in_pieces(tmp_path: Path, piece_bytes: int, how: Encryption) -> None:
    there, here = tmp_path / "there", tmp_path / "here"
    there.mkdir()
    here.mkdir()
    id_ = OffsetAndEpoch(500, 3)
    write(there, id_, records(300), how)
    download = SnapshotDownload(str(here), id_, how)
    size = -1
    while download.size != size:
        found = snapshots.read_piece(str(there), id_, download.size, piece_bytes, KEYS)
        assert found is not None
        size, piece = found
        download.take(download.size, piece)
    assert download.check(KEYS).voters == VOTERS
    assert snapshots.stored_snapshots(str(here)) == []  # not before it is on disk
    download.finish()
    assert read(here) == records(300)


def test_a_piece_out_of_place_is_refused(tmp_path: Path) -> None:
    download = SnapshotDownload(str(tmp_path), OffsetAndEpoch(500, 3), PLAIN)
    download.take(0, b"abc")
    with pytest.raises(CorruptRecord, match="begins at 2, not 3"):
        download.take(2, b"abc")
    with pytest.raises(CorruptRecord):
        download.check(KEYS)
    download.abandon()


def test_a_piece_of_a_missing_snapshot(tmp_path: Path) -> None:
    assert snapshots.read_piece(str(tmp_path), OffsetAndEpoch(1, 1), 0, 100, KEYS) is None
