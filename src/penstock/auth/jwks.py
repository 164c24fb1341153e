"""Keys that the tokens of OAUTHBEARER are verified with: the text of a JWKS (RFC 7517) to a set.

Invariants: a set has at least one key; keys are public and asymmetric, so that whoever reads them
can sign nothing. A key is used for the algorithms of its type and curve only, and if it names one
for that alone. Of what a text holds only the known members are read: no address, no certificate.

Limits: `JWKS_BYTES_MAX`, `KEYS_MAX`, `KID_CHARS_MAX`, `RSA_BITS_MIN` to `RSA_BITS_MAX`. Who fetches
the text, and when, is a driver.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple, TypeAlias

from joserfc.errors import JoseError
from joserfc.jwk import ECKey, OKPKey, RSAKey

from penstock.auth.oauthbearer import InvalidToken

Key: TypeAlias = RSAKey | ECKey | OKPKey
JWKS_BYTES_MAX: Final = 1_048_576
KEYS_MAX: Final = 256
KID_CHARS_MAX: Final = 256
RSA_BITS_MIN: Final = 2048
RSA_BITS_MAX: Final = 8192
EXPONENT_CHARS_MAX: Final = 8
"""In base64: six bytes."""
FOR_RSA: Final = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")
FOR_CURVE: Final = {
    "P-256": ("ES256",),
    "P-384": ("ES384",),
    "P-521": ("ES512",),
    "Ed25519": ("EdDSA", "Ed25519"),
    "Ed448": ("EdDSA", "Ed448"),
}
_PUBLIC_MEMBERS: Final = frozenset({"kty", "n", "e", "crv", "x", "y"})
_TYPES: Final[Mapping[str, type[Key]]] = {"RSA": RSAKey, "EC": ECKey, "OKP": OKPKey}


class KeySetError(Exception):
    """A text that is no JWKS, or one that has no key to verify with."""


class UnknownKey(InvalidToken):
    """No key of the set, or more than one, can have signed a token: time for a newer set."""

    def __init__(self, algorithm: str, kid: str | None, fitting: int) -> None:
        super().__init__(f"{fitting} keys fit its algorithm {algorithm} and its kid {kid!r}")
        self.kid = kid


class VerificationKey(NamedTuple):
    kid: str | None
    algorithms: tuple[str, ...]
    key: Key


class KeySet:
    """Public keys; there is at least one."""

    def __init__(self, keys: Iterable[VerificationKey]) -> None:
        self._keys = tuple(keys)
        if not self._keys:
            raise KeySetError("it has no key that a signature can be verified with")

    def __len__(self) -> int:
        return len(self._keys)

    def find(self, algorithm: str, kid: str | None) -> Key:
        """The one key that fits; a token that fits several is not tried on all."""
        fitting = [
            key.key
            for key in self._keys
            if algorithm in key.algorithms and (kid is None or key.kid == kid)
        ]
        if len(fitting) != 1:
            raise UnknownKey(algorithm, kid, len(fitting))
        return fitting[0]


def parse_jwks(text: bytes) -> KeySet:
    """Keys that are of no use here are left out: shared secrets, for encryption, of unknown types,
    too short. What is private in one is not read.
    """
    if len(text) > JWKS_BYTES_MAX:
        raise KeySetError(f"it has more than {JWKS_BYTES_MAX} bytes")
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        raise KeySetError("it is not in JSON") from None
    keys = found.get("keys") if isinstance(found, dict) else None
    if not isinstance(keys, list):
        raise KeySetError('it has no list "keys"')
    if len(keys) > KEYS_MAX:
        raise KeySetError(f"it has more than {KEYS_MAX} keys")
    return KeySet(filter(None, map(_verification_key, keys)))


def _verification_key(members: object) -> VerificationKey | None:
    if not isinstance(members, dict) or not _is_for_verifying(members):
        return None
    kind, kid, algorithm = (members.get(name) for name in ("kty", "kid", "alg"))
    if not isinstance(kind, str) or kind not in _TYPES:
        return None
    if kid is not None and (not isinstance(kid, str) or len(kid) > KID_CHARS_MAX):
        return None
    public = {name: members[name] for name in _PUBLIC_MEMBERS & members.keys()}
    key = _imported(_TYPES[kind], public)
    if key is None:
        return None
    algorithms = FOR_RSA if isinstance(key, RSAKey) else FOR_CURVE.get(public["crv"], ())
    if algorithm is not None:
        algorithms = tuple(name for name in algorithms if name == algorithm)
    return VerificationKey(kid, algorithms, key) if algorithms else None


def _is_for_verifying(members: Mapping[str, object]) -> bool:
    operations = members.get("key_ops", ["verify"])
    return (
        members.get("use", "sig") == "sig"
        and isinstance(operations, list)
        and "verify" in operations
    )


def _imported(kind: type[Key], public: dict[str, Any]) -> Key | None:
    """None if it is no such key, or one of a size that is not taken."""
    if not all(isinstance(value, str) for value in public.values()):
        return None
    try:
        if kind is RSAKey and not (
            RSA_BITS_MIN <= _modulus_bits(public["n"]) <= RSA_BITS_MAX
            and len(public["e"]) <= EXPONENT_CHARS_MAX
        ):
            return None
        return kind.import_key(public)
    except (JoseError, ValueError, TypeError, KeyError):
        return None


def _modulus_bits(text: str) -> int:
    """Asked before joserfc sees the key: that takes short ones, with a warning."""
    padded = text + "=" * (-len(text) % 4)
    return int.from_bytes(base64.urlsafe_b64decode(padded)).bit_length()
