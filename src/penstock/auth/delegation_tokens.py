"""What a delegation token is worth: the secret that belongs to its id (KIP-48), and how one logs in
with it.

Pure. A token's secret is kept nowhere: it is made from the id, on every node the same.
"""

from __future__ import annotations

import base64
import hmac

from penstock.auth.scram import HASHES, ScramCredential, credential_of


def token_hmac(secret_key: bytes, token_id: str) -> bytes:
    """Who has it, in base64 the password of the token, is the token's owner; `secret_key` is
    `delegation.token.secret.key`, the same on every node.
    """
    return hmac.digest(secret_key, token_id.encode(), "sha512")


def token_credential(secret_key: bytes, mechanism: str, token_id: str) -> ScramCredential:
    """By which the token's secret is verified in a login by SCRAM; it takes milliseconds."""
    hash_name = HASHES[mechanism]
    password = base64.b64encode(token_hmac(secret_key, token_id))
    salt = hmac.digest(secret_key, f"salt {mechanism} {token_id}".encode(), hash_name)
    return credential_of(hash_name, password, salt)
