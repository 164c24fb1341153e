"""The small text files of a data directory, in Kafka's formats.

Offset checkpoints of a data directory (`recovery-point-offset-checkpoint`,
`log-start-offset-checkpoint`, `replication-offset-checkpoint`, `cleaner-offset-checkpoint`): a
version line, a count line, then one `topic partition offset` line per partition.
`leader-epoch-checkpoint` of a partition has the same head and `epoch offset` lines.
`partition.metadata` holds the topic id, `meta.properties` the ids of the node.

Every file is replaced as a whole: temporary file, fsync, rename, fsync of the directory.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping

from penstock.base.errors import CorruptRecord, StorageError
from penstock.base.ids import TopicPartition, Uuid, parse_uuid, uuid_text
from penstock.log.files import write_atomically

RECOVERY_POINT_CHECKPOINT = "recovery-point-offset-checkpoint"
LOG_START_OFFSET_CHECKPOINT = "log-start-offset-checkpoint"
CLEANER_OFFSET_CHECKPOINT = "cleaner-offset-checkpoint"
LEADER_EPOCH_CHECKPOINT = "leader-epoch-checkpoint"
PARTITION_METADATA = "partition.metadata"
META_PROPERTIES = "meta.properties"

_VERSION = 0


def write_lines(path: str, lines: Iterable[str], *, sync: bool = True) -> None:
    """Write a checkpoint file of any kind."""
    body = list(lines)
    text = "\n".join([str(_VERSION), str(len(body)), *body]) + "\n"
    write_atomically(path, text.encode(), sync=sync)


def read_lines(path: str) -> list[str]:
    """The entry lines of a checkpoint file; empty when there is no such file."""
    try:
        with open(path, encoding="utf-8") as f:
            lines = f.read().splitlines()
    except FileNotFoundError:
        return []
    except UnicodeDecodeError as e:
        raise CorruptRecord(f"{path} is not text: {e}") from e
    if len(lines) < 2 or lines[0] != str(_VERSION) or not lines[1].isdecimal():
        raise CorruptRecord(f"{path} does not start with version {_VERSION} and a count")
    if len(lines) - 2 != int(lines[1]):
        raise CorruptRecord(f"{path} promises {lines[1]} entries and holds {len(lines) - 2}")
    return lines[2:]


def read_checkpoint(path: str) -> dict[TopicPartition, int]:
    """The offsets of an offset checkpoint; empty when there is no such file."""
    offsets: dict[TopicPartition, int] = {}
    for line in read_lines(path):
        fields = line.split(" ")
        try:
            topic, partition, offset = fields
            offsets[TopicPartition(topic, int(partition))] = int(offset)
        except ValueError as e:
            raise CorruptRecord(f"{path}: {line!r} is not `topic partition offset`") from e
    return offsets


def write_checkpoint(path: str, offsets: Mapping[TopicPartition, int]) -> None:
    """Replace an offset checkpoint."""
    write_lines(path, (f"{tp.topic} {tp.partition} {offset}" for tp, offset in offsets.items()))


def read_partition_metadata(log_dir: str) -> Uuid | None:
    """The topic id of a partition directory, or None when it was never written.

    The file is not synced when it is written, so that what a loss of power left of it may be
    anything: what cannot be read counts as not written.
    """
    path = os.path.join(log_dir, PARTITION_METADATA)
    try:
        with open(path, "rb") as f:
            lines = f.read().decode().splitlines()
        return parse_uuid(dict(line.split(": ", 1) for line in lines if line)["topic_id"])
    except (FileNotFoundError, ValueError, KeyError):
        return None
    except OSError as e:
        raise StorageError(f"cannot read {path}: {e}") from e


def write_partition_metadata(log_dir: str, topic_id: Uuid) -> None:
    # Not synced: a directory whose topic id is lost is filled in again from the cluster metadata.
    text = f"version: {_VERSION}\ntopic_id: {uuid_text(topic_id)}"
    write_atomically(os.path.join(log_dir, PARTITION_METADATA), text.encode(), sync=False)


def read_meta_properties(data_dir: str) -> dict[str, str] | None:
    """The entries of meta.properties, or None for a data directory that has none yet."""
    path = os.path.join(data_dir, META_PROPERTIES)
    try:
        with open(path, encoding="utf-8") as f:
            lines = [line.strip() for line in f]
    except FileNotFoundError:
        return None
    entries = dict(line.split("=", 1) for line in lines if "=" in line and line[0] not in "#!")
    if entries.get("version") != "1":
        raise CorruptRecord(
            f"{path} has version {entries.get('version')}, expected 1: "
            "this directory was not formatted by a compatible node"
        )
    return entries


def write_meta_properties(data_dir: str, entries: Mapping[str, str]) -> None:
    lines = ["#", *(f"{k}={v}" for k, v in {"version": "1", **entries}.items())]
    path = os.path.join(data_dir, META_PROPERTIES)
    write_atomically(path, ("\n".join(lines) + "\n").encode())
