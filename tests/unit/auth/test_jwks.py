"""Sets of keys: what is taken of a JWKS, and its limits."""

from __future__ import annotations

import json
import warnings
from typing import Any

import pytest

from penstock.auth.jwks import JWKS_BYTES_MAX, KEYS_MAX, KeySetError, parse_jwks
from unit.auth.tokens import EC, RSA, jwks, key

PUBLIC = RSA.as_dict(private=False)


def text(*keys: Any) -> bytes:
    return json.dumps({"keys": list(keys)}).encode()


def test_keys_of_every_type() -> None:
    found = parse_jwks(jwks(RSA, EC, key("OKP", "Ed25519", "ed")))
    assert len(found) == 3
    assert found.find("RS256", "rsa").as_dict(private=False)["n"] == PUBLIC["n"]


def test_the_private_part_is_not_kept() -> None:
    found = parse_jwks(jwks(RSA, EC, private=True))
    for algorithm, kid in (("RS256", "rsa"), ("ES256", "ec")):
        kept = found.find(algorithm, kid)
        assert not kept.is_private
        assert "d" not in kept.dict_value


@pytest.mark.parametrize(
    "useless",
    [
        {"kty": "oct", "k": "c2VjcmV0", "kid": "rsa"},
        {"kty": "ML-DSA", "pub": "AAAA"},
        {"kid": "rsa"},
        {**PUBLIC, "use": "enc"},
        {**PUBLIC, "key_ops": ["encrypt"]},
        {**PUBLIC, "key_ops": "verify"},
        {**PUBLIC, "alg": "HS256"},
        {**PUBLIC, "alg": "none"},
        {**PUBLIC, "alg": "ES256"},
        {**PUBLIC, "alg": ["RS256"]},
        {**PUBLIC, "kid": 7},
        {**PUBLIC, "kid": "k" * 300},
        {**PUBLIC, "n": 7},
        {**PUBLIC, "n": ""},
        {**PUBLIC, "n": "*"},
        {**PUBLIC, "e": "A" * 100},
        {**PUBLIC, "e": ""},
        {**PUBLIC, "n": "_" * 1400},
        {"kty": "RSA", "kid": "rsa"},
        {**PUBLIC, "kty": ["RSA"]},
        {**EC.as_dict(private=False), "crv": "secp256k1"},
        {**EC.as_dict(private=False), "crv": "P-384"},
        {**EC.as_dict(private=False), "x": "AAAA"},
        key("EC", "secp256k1", "k").as_dict(private=False),
        key("OKP", "X25519", "x").as_dict(private=False),
        key("RSA", 1024, "short").as_dict(private=False),
        None,
        7,
        "RSA",
        [],
    ],
)
def test_a_key_of_no_use_is_left_out(useless: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(KeySetError, match="no key"):
            parse_jwks(text(useless))
        assert len(parse_jwks(text(useless, EC.as_dict(private=False)))) == 1


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (b"", "JSON"),
        (b"nonsense", "JSON"),
        (b"\xff", "JSON"),
        (b"[" * 100_000, "JSON"),
        (b"[]", "keys"),
        (b"{}", "keys"),
        (b'{"keys": {}}', "keys"),
        (b'{"keys": []}', "no key"),
        (b" " * (JWKS_BYTES_MAX + 1), "bytes"),
        (text(*[7] * (KEYS_MAX + 1)), f"{KEYS_MAX} keys"),
    ],
)
def test_what_is_no_set_of_keys(given: bytes, why: str) -> None:
    with pytest.raises(KeySetError, match=why):
        parse_jwks(given)
