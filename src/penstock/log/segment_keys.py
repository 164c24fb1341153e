"""The keys of a log's segments when it is opened: which are encrypted, and by what.

A segment that holds data and has a key file is encrypted. What is found:

| data | key file | what is done |
|---|---|---|
| none | any | nothing: the first batch brings a key file with it |
| plain | none | nothing |
| encrypted | whole, its key can be had | it is opened |
| encrypted | whole, its key cannot be had, or it is another segment's | the log is not opened |
| encrypted, flushed | missing or damaged | the log is not opened |
| encrypted, never flushed | missing or damaged | after an unclean stop: set aside |

A log that is not opened stays as it is: nothing of it is cut or removed. The key file and the first
batches become durable together; where the power went before that, the data is set aside: it keeps
its bytes under another name, and the log ends before it, as where any write did not reach the disk.

Runs where logs are opened, on the loop: keys come from memory or from a provider that never waits.
"""

from __future__ import annotations

import logging
import os
from struct import Struct

from penstock.base.errors import CorruptRecord
from penstock.base.ids import TopicPartition, Uuid, uuid_text
from penstock.keys.data_keys import DataKeys
from penstock.keys.provider import KeyUnavailable
from penstock.log.key_file import NO_TOPIC_ID, KeyFile, read_key_file
from penstock.log.sealing import SEALED_MAGIC
from penstock.log.segment import LogSegment
from penstock.log.segment_files import UNREADABLE_SUFFIX
from penstock.wire.records import MAGIC

logger = logging.getLogger("penstock.log")

_HEAD = Struct(">qi4xb")
_OFFSET_SPAN = 2**31


def attach_key(
    segment: LogSegment,
    keys: DataKeys,
    topic_partition: TopicPartition,
    topic_id: Uuid | None,
) -> None:
    """Open the key file of a segment that holds data; `KeyUnavailable` if it cannot be done,
    `CorruptRecord` if the file is damaged or missing.
    """
    key_file = read_key_file(segment.key_path)
    if key_file is None:
        if _magic(segment) == SEALED_MAGIC:
            raise CorruptRecord(f"{segment.key_path} is missing, and {segment.file.path} needs it")
        return
    if _magic(segment) == MAGIC:
        raise CorruptRecord(
            f"{segment.key_path} lies beside {segment.file.path}, which is not encrypted"
        )
    _check_place(key_file, segment, topic_partition, topic_id)
    try:
        secret = keys.secret_of(key_file.wrapped)
    except KeyUnavailable as e:
        raise KeyUnavailable(f"{segment.file.path} cannot be decrypted: {e}") from e
    segment.unlock(key_file, secret)


def _check_place(
    key_file: KeyFile, segment: LogSegment, topic_partition: TopicPartition, topic_id: Uuid | None
) -> None:
    right = (
        key_file.base_offset == segment.base_offset
        and key_file.partition == topic_partition.partition
        and (topic_id is None or key_file.topic_id in (topic_id, NO_TOPIC_ID))
    )
    if not right:
        raise KeyUnavailable(
            f"{segment.key_path} is the key file of another segment (topic id "
            f"{uuid_text(key_file.topic_id)}, partition {key_file.partition}, offset "
            f"{key_file.base_offset}): put the right one back; nothing was changed or removed"
        )


def _magic(segment: LogSegment) -> int:
    """The magic of the first batch; -1 if none begins there."""
    head = segment.file.pread(_HEAD.size, 0)
    if len(head) < _HEAD.size:
        return -1
    base_offset, length, magic = _HEAD.unpack(head)
    span = base_offset - segment.base_offset
    return int(magic) if 0 <= span < _OFFSET_SPAN and length > 0 else -1


def find_magic(segment: LogSegment) -> None:
    """Let the headers of a segment be read, whose key is not needed for that."""
    if _magic(segment) == SEALED_MAGIC:
        segment.file.magic = SEALED_MAGIC


def attach_or_set_aside(
    segment: LogSegment,
    keys: DataKeys,
    topic_partition: TopicPartition,
    topic_id: Uuid | None,
    *,
    may_be_lost: bool,
) -> None:
    """As `attach_key`, for a segment that is opened. `may_be_lost`: nothing of it was ever
    flushed, and the last stop was unclean.
    """
    try:
        attach_key(segment, keys, topic_partition, topic_id)
    except KeyUnavailable:
        raise
    except CorruptRecord as damage:
        if not may_be_lost:
            raise KeyUnavailable(
                f"{damage}: put the key file back, from a copy of the data; nothing was changed or "
                "removed"
            ) from damage
        _set_aside(segment, str(damage))


def _set_aside(segment: LogSegment, why: str) -> None:
    """Leave the segment empty; its data stays beside it."""
    path = segment.file.path
    aside = f"{path}{UNREADABLE_SUFFIX}"
    logger.error(
        "%s was never flushed and its key did not reach the disk (%s): what it held is kept as %s",
        path,
        why,
        aside,
    )
    segment.close()
    os.replace(path, aside)
    if os.path.exists(segment.key_path):
        os.replace(segment.key_path, f"{segment.key_path}{UNREADABLE_SUFFIX}")
    os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644))
    segment.size = 0
    segment.reset_indexes()
