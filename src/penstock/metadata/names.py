"""What a topic may be called: Kafka's rules."""

from __future__ import annotations

import re
from typing import Final

from penstock.base.errors import ApiError, ErrorCode
from penstock.base.ids import METADATA_TOPIC

TOPIC_NAME_LENGTH_MAX: Final = 249
"""A partition's folder is the name, a dash and a number, and file systems allow 255 bytes."""

OFFSETS_TOPIC: Final = "__consumer_offsets"
TRANSACTIONS_TOPIC: Final = "__transaction_state"
SHARE_STATE_TOPIC: Final = "__share_group_state"
AUDIT_TOPIC: Final = "__audit"
INTERNAL_TOPICS: Final = frozenset(
    {OFFSETS_TOPIC, TRANSACTIONS_TOPIC, SHARE_STATE_TOPIC, AUDIT_TOPIC}
)
_LEGAL: Final = re.compile(r"[a-zA-Z0-9._-]+", re.ASCII)


def check_topic_name(name: str) -> None:
    """Raises `ApiError` unless a topic may be called `name`."""
    if not name:
        why = "it is empty"
    elif name in (".", ".."):
        why = f"{name!r} is a folder's own name"
    elif len(name) > TOPIC_NAME_LENGTH_MAX:
        why = f"it has {len(name)} characters, more than {TOPIC_NAME_LENGTH_MAX}"
    elif _LEGAL.fullmatch(name) is None:
        why = f"{name!r} has characters other than ASCII letters, digits, '.', '_' and '-'"
    else:
        return
    raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"the topic name is invalid: {why}")


def check_new_topic_name(name: str) -> None:
    """Raises `ApiError` unless a client may create a topic called `name`."""
    check_topic_name(name)
    if name == METADATA_TOPIC:
        raise ApiError(
            ErrorCode.INVALID_REQUEST, f"{name} is the metadata log itself: choose another name"
        )
