"""The key file of a segment, `BASE_OFFSET.key`: its data key, wrapped, and what it is for.

One line of JSON. It lies beside the segment from before its first batch on, is renamed and removed
with it, and made durable by the flush that makes its first batches durable. It says where the
segment belongs, so that files that were mixed up are found out; batches are authenticated with the
same. Nothing in it says where a key is to be had: only the node's settings do.
"""

from __future__ import annotations

import base64
import json
import os
from struct import Struct
from typing import Any, Final, NamedTuple

from penstock.base.errors import CorruptRecord, StorageError
from penstock.base.ids import TopicPartition, Uuid, parse_uuid, uuid_text
from penstock.keys.data_keys import DataKey
from penstock.keys.provider import KeyUnavailable, WrappedKey, check_key_id
from penstock.log.files import write_atomically
from penstock.log.sealing import Seal

VERSION: Final = 1
NO_TOPIC_ID: Final = Uuid(bytes(16))
KEY_FILE_BYTES_MAX: Final = 64 * 1024
_PARTITION: Final = Struct(">i")


class KeyFile(NamedTuple):
    topic_id: Uuid
    partition: int
    base_offset: int
    wrapped: WrappedKey

    def seal(self, secret: bytes) -> Seal:
        """What encrypts and decrypts the segment's batches, by its data key."""
        return context_seal(secret, self.topic_id, self.partition)

    def text(self) -> bytes:
        key_id, version, wrapped = self.wrapped
        fields = {
            "version": VERSION,
            "topic_id": uuid_text(self.topic_id),
            "partition": self.partition,
            "base_offset": self.base_offset,
            "key_id": key_id,
            "key_version": version,
            "data_key": base64.b64encode(wrapped).decode(),
        }
        return json.dumps(fields).encode() + b"\n"


def context_seal(secret: bytes, topic_id: Uuid, partition: int) -> Seal:
    return Seal(secret, bytes(topic_id) + _PARTITION.pack(partition))


def new_key_file(
    key: DataKey, topic_id: Uuid | None, topic_partition: TopicPartition, base_offset: int
) -> KeyFile:
    return KeyFile(topic_id or NO_TOPIC_ID, topic_partition.partition, base_offset, key.wrapped)


def parse_key_file(text: bytes, where: str) -> KeyFile:
    """`CorruptRecord` if it is no key file of this version."""
    try:
        fields: dict[str, Any] = json.loads(text)
        if not text.endswith(b"\n") or fields["version"] != VERSION:
            raise ValueError
        return KeyFile(
            parse_uuid(fields["topic_id"]),
            int(fields["partition"]),
            int(fields["base_offset"]),
            WrappedKey(
                check_key_id(str(fields["key_id"])),
                int(fields["key_version"]),
                base64.b64decode(fields["data_key"], validate=True),
            ),
        )
    except (ValueError, KeyError, TypeError, KeyUnavailable) as e:
        raise CorruptRecord(f"{where} is no key file of version {VERSION}") from e


def read_key_file(path: str) -> KeyFile | None:
    """None if there is none; `CorruptRecord` if it is damaged."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except OSError as e:
        raise StorageError(f"cannot open {path}: {e}") from e
    try:
        return parse_key_file(os.pread(fd, KEY_FILE_BYTES_MAX, 0), path)
    except OSError as e:
        raise StorageError(f"cannot read {path}: {e}") from e
    finally:
        os.close(fd)


def write_key_file(path: str, key_file: KeyFile) -> None:
    """Not synced: the flush of the segment's first batches does that."""
    write_atomically(path, key_file.text(), sync=False)
