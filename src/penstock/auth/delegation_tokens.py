"""What a delegation token is worth: the secret that belongs to its id (KIP-48)."""

from __future__ import annotations

import hmac


def token_hmac(secret_key: bytes, token_id: str) -> bytes:
    """Who has it, in base64 the password of the token, is the token's owner; `secret_key` is
    `delegation.token.secret.key`, the same on every node.
    """
    return hmac.digest(secret_key, token_id.encode(), "sha512")
