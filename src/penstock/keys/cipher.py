"""AES-256-GCM, imported on first use: few nodes need it, and it takes memory."""

from __future__ import annotations

from typing import Any


def aes_gcm(secret: bytes) -> Any:
    """The cipher with that key."""
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    return AESGCM(secret)


def not_authentic() -> type[Exception]:
    """What the cipher raises for what was not encrypted with its key."""
    from cryptography.exceptions import InvalidTag

    return InvalidTag
