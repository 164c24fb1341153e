"""What a provider of key-encryption keys (KEKs) is: who wraps data keys and unwraps them.

A key id names a KEK at the provider; it has versions, counted from 1. What is new is wrapped by the
latest one, what exists is unwrapped by the version that it was wrapped by. A provider never gives a
KEK away; a data key leaves this process only wrapped.

A further provider (a cloud's KMS) is a class with these methods, found as an entry point of the
group `penstock.key_providers`: docs/security.md has an example.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, NamedTuple, Protocol, TypeAlias

from penstock.base.errors import StorageError
from penstock.config.log_config import KEY_ID_PATTERN

SECRET_BYTES: Final = 32
"""Of a data key and of a KEK: AES-256."""

_KEY_ID: Final = re.compile(KEY_ID_PATTERN)


class KeyUnavailable(StorageError):
    """A key cannot be had: data cannot be read, or written, until it can."""


class WrappedKey(NamedTuple):
    """A data key as it is stored."""

    key_id: str
    version: int
    wrapped: bytes

    def __str__(self) -> str:
        return f"key id {self.key_id!r}, version {self.version}"


Unwrapped: TypeAlias = "bytes | KeyUnavailable"


class KeyProvider(Protocol):
    """Any thread may call these methods, several at a time. Each failure is a `KeyUnavailable`
    whose sentence says what to do, without key material.
    """

    name: str
    is_local: bool
    """Whether its calls never wait, so that the event loop may make them."""

    def latest_version(self, key_id: str) -> int:
        """The version that `wrap` uses."""

    def wrap(self, key_id: str, secrets: Sequence[bytes]) -> list[WrappedKey]:
        """Each of them wrapped by the latest version."""

    def unwrap(self, keys: Sequence[WrappedKey]) -> list[Unwrapped]:
        """Each of them, or why it cannot be had. What is wrong must never look like a key."""

    def new_version(self, key_id: str) -> int:
        """Make another version of the key, or its first one."""


def check_key_id(key_id: str) -> str:
    """`KeyUnavailable` unless it can be the id of a key, which never means anything in an URL."""
    if _KEY_ID.fullmatch(key_id) is None:
        raise KeyUnavailable(
            f"{key_id[:128]!r} cannot be the id of a key: letters, digits, `.`, `_` and `-`, not "
            "beginning with a dot"
        )
    return key_id
