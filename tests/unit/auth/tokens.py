"""Keys and signed tokens for the tests of OAUTHBEARER."""

from __future__ import annotations

import base64
import json
import warnings
from functools import cache
from typing import Any

from joserfc import jws
from joserfc.jwk import ECKey, OctKey, OKPKey, RSAKey

NOW_S = 1_700_000_000
NOW_MS = NOW_S * 1000
CLAIMS: dict[str, Any] = {"sub": "ann", "iat": NOW_S - 10, "exp": NOW_S + 300}
AnyKey = RSAKey | ECKey | OKPKey | OctKey


@cache
def key(kind: str, size: str | int, kid: str | None = None) -> AnyKey:
    """The same one for the same arguments."""
    parameters = {} if kid is None else {"kid": kid}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of short keys
        made = {"RSA": RSAKey, "EC": ECKey, "OKP": OKPKey, "oct": OctKey}[kind]
        return made.generate_key(size, parameters)  # type: ignore[arg-type,return-value]


RSA = key("RSA", 2048, "rsa")
EC = key("EC", "P-256", "ec")


def jwks(*keys: AnyKey, private: bool = False, **more: Any) -> bytes:
    found = [{**one.as_dict(private=private), **more} for one in keys]
    return json.dumps({"keys": found}).encode()


def segment(value: object) -> str:
    text = value if isinstance(value, bytes) else json.dumps(value).encode()
    return base64.urlsafe_b64encode(text).decode().rstrip("=")


def signed(
    claims: object,
    by: AnyKey = RSA,
    algorithm: str = "RS256",
    **header: Any,
) -> str:
    """Any claims and any header, signed as it should be."""
    head = {"alg": algorithm, "kid": by.kid, **header}
    payload = claims if isinstance(claims, bytes) else json.dumps(claims).encode()
    message = f"{segment({k: v for k, v in head.items() if v is not None})}.{segment(payload)}"
    signature = jws.JWSRegistry.algorithms[algorithm].sign(message.encode(), by)
    return f"{message}.{segment(signature)}"


def without(claims: dict[str, Any], name: str) -> dict[str, Any]:
    return {key: value for key, value in claims.items() if key != name}
