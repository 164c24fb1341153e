"""Ids that all rooms use.

A uuid is its 16 bytes: that is how it travels, it hashes and compares quickly, and it is turned
into text (Kafka's form: URL-safe base64 without padding) only for people.
"""

from __future__ import annotations

import binascii
from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import NamedTuple, TypeAlias

Uuid: TypeAlias = bytes
TopicKey: TypeAlias = str | Uuid
"""A topic's name, or its id."""

ZERO_UUID: Uuid = bytes(16)
METADATA_TOPIC = "__cluster_metadata"
METADATA_TOPIC_ID: Uuid = bytes(15) + b"\x01"

NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1
PRODUCER_EPOCH_MAX = 2**15 - 1
NO_SEQUENCE = -1
NO_LEADER_EPOCH = -1
NO_TIMESTAMP = -1


class TopicPartition(NamedTuple):
    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


def uuid_text(uuid: Uuid) -> str:
    """`uuid` as Kafka writes it."""
    return urlsafe_b64encode(uuid).rstrip(b"=").decode("ascii")


def parse_uuid(text: str) -> Uuid:
    """The 16 bytes behind Kafka's 22-character form."""
    try:
        uuid = urlsafe_b64decode(text + "==")
    except (ValueError, binascii.Error) as e:
        raise ValueError(f"{text!r} is not a uuid in Kafka's form (22 characters of base64)") from e
    if len(uuid) != 16:
        raise ValueError(f"{text!r} is not a uuid in Kafka's form (22 characters of base64)")
    return uuid
