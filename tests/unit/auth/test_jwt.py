"""Tokens of OAUTHBEARER: which are believed, and every way known to forge one."""

from __future__ import annotations

import base64
import hmac
import json
import warnings
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from joserfc import jws
from joserfc.errors import UnsupportedAlgorithmError

from penstock.auth.jwks import UnknownKey, parse_jwks
from penstock.auth.jwt import (
    _REGISTRY,
    ALGORITHMS,
    ROLES_MAX,
    TOKEN_BYTES_MAX,
    JwtRules,
    JwtValidator,
)
from penstock.auth.oauthbearer import BearerToken, InvalidToken
from unit.auth.tokens import (
    CLAIMS,
    EC,
    NOW_MS,
    NOW_S,
    RSA,
    AnyKey,
    jwks,
    key,
    segment,
    signed,
    without,
)

KEYS = parse_jwks(jwks(RSA, EC))
OTHER = key("RSA", 2048, "other")


def validator(**rules: Any) -> JwtValidator:
    return JwtValidator(JwtRules(**rules), KEYS)


def refused(token: str, at_ms: int = NOW_MS, **rules: Any) -> str:
    with pytest.raises(InvalidToken) as failed:
        validator(**rules).validate(token, at_ms)
    return str(failed.value)


def test_a_valid_token() -> None:
    token = signed({**CLAIMS, "scope": "read write"})
    found = validator().validate(token, NOW_MS)
    assert found == BearerToken("ann", (NOW_S + 300) * 1000, frozenset({"read", "write"}))


@pytest.mark.parametrize(
    ("kind", "size", "algorithm"),
    [
        *(("RSA", 2048, name) for name in ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")),
        ("EC", "P-256", "ES256"),
        ("EC", "P-384", "ES384"),
        ("EC", "P-521", "ES512"),
        ("OKP", "Ed25519", "EdDSA"),
        ("OKP", "Ed25519", "Ed25519"),
        ("OKP", "Ed448", "EdDSA"),
        ("OKP", "Ed448", "Ed448"),
    ],
)
def test_every_algorithm_that_is_taken(kind: str, size: str | int, algorithm: str) -> None:
    made = key(kind, size, "k")
    found = JwtValidator(JwtRules(), parse_jwks(jwks(made)))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert found.validate(signed(CLAIMS, made, algorithm), NOW_MS).principal == "ann"
    assert algorithm in ALGORITHMS


def test_no_algorithm_with_a_shared_secret_or_none_is_taken() -> None:
    assert not {name for name in ALGORITHMS if name.lower() == "none" or name.startswith("HS")}
    for name in ("none", "HS256", "ES256K"):
        assert name in jws.JWSRegistry.algorithms, "joserfc has it"
        with pytest.raises(UnsupportedAlgorithmError):
            _REGISTRY.get_alg(name)


# How tokens are forged


@pytest.mark.parametrize("name", ["none", "None", "NONE", "nOnE"])
@pytest.mark.parametrize("signature", ["", "AAAA"])
def test_a_token_without_a_signature(name: str, signature: str) -> None:
    """CVE-2026-33557."""
    for header in ({"alg": name}, {"alg": name, "kid": "rsa"}):
        assert "algorithm" in refused(f"{segment(header)}.{segment(CLAIMS)}.{signature}")


def test_without_keys_nothing_is_believed() -> None:
    """CVE-2026-110985."""
    found = JwtValidator(JwtRules())
    for token in (signed(CLAIMS), f"{segment({'alg': 'none'})}.{segment(CLAIMS)}."):
        with pytest.raises(InvalidToken, match="no keys"):
            found.validate(token, NOW_MS)
    found.keys = KEYS
    assert found.validate(signed(CLAIMS), NOW_MS)


def test_a_public_key_as_a_shared_secret() -> None:
    """The algorithm is the forger's choice in libraries that ask the token for it."""
    for secret in (RSA.as_bytes(private=False), jwks(RSA), str(RSA["n"]).encode()):  # type: ignore[union-attr]
        for name, digest in (("HS256", "sha256"), ("HS384", "sha384"), ("HS512", "sha512")):
            message = f"{segment({'alg': name, 'kid': 'rsa'})}.{segment(CLAIMS)}"
            forged = hmac.digest(secret, message.encode(), digest)
            assert "algorithm" in refused(f"{message}.{segment(forged)}")


@pytest.mark.parametrize("name", ["jwk", "x5c", "jku", "x5u"])
def test_a_key_that_the_token_brings_along(name: str) -> None:
    brought: dict[str, Any] = {
        "jwk": OTHER.as_dict(private=False),
        "x5c": [base64.b64encode(OTHER.as_bytes("DER", private=False)).decode()],  # type: ignore[union-attr]
        "jku": "https://127.0.0.1:1/keys",
        "x5u": "https://127.0.0.1:1/chain",
    }
    more = {name: brought[name]}
    assert "signature" in refused(signed(CLAIMS, OTHER, kid="rsa", **more))
    assert "0 keys" in refused(signed(CLAIMS, OTHER, **more))
    assert validator().validate(signed(CLAIMS, **more), NOW_MS), "ours is used, theirs is not"


def test_a_key_for_another_algorithm() -> None:
    for name, kid in (("ES256", "rsa"), ("RS256", "ec"), ("PS256", "ec"), ("Ed25519", "ec")):
        header = segment({"alg": name, "kid": kid})
        assert "0 keys" in refused(f"{header}.{segment(CLAIMS)}.AAAA")
    one = JwtValidator(JwtRules(), parse_jwks(jwks(RSA, alg="RS256")))
    with pytest.raises(UnknownKey):
        one.validate(signed(CLAIMS, algorithm="PS256"), NOW_MS)
    assert one.validate(signed(CLAIMS), NOW_MS)


def test_signatures_that_are_none() -> None:
    head, body, _ = signed(CLAIMS, EC, "ES256").split(".")
    for forged in (b"", b"\0" * 64, b"\0" * 63, b"\xff" * 64, b"\0" * 4096):
        assert refused(f"{head}.{body}.{segment(forged)}")


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_a_token_that_is_changed_anywhere(data: st.DataObject) -> None:
    token = signed(CLAIMS)
    at = data.draw(st.integers(0, len(token) - 1))
    letter = data.draw(st.sampled_from("ABCDabcd0189-_.+/= \n%"))
    changed = token[:at] + letter + token[at + 1 :]
    if changed != token:
        refused(changed)
    refused(token[:at])
    refused(token[:at] + letter + token[at:])


def test_what_the_header_calls_critical() -> None:
    for more in ({"crit": ["exp"]}, {"crit": []}, {"crit": ["b64"], "b64": False}, {"b64": False}):
        assert "header" in refused(signed(CLAIMS, **more)).lower()


def test_other_words_in_the_header_do_not_matter() -> None:
    more = {"typ": "at+jwt", "x5t": "abc", "nonce": "n", "cty": "x"}
    assert validator().validate(signed(CLAIMS, **more), NOW_MS)


@pytest.mark.parametrize(
    "token",
    [
        "",
        ".",
        "..",
        "a.b",
        "a.b.c",
        "....",
        "a.b.c.d.e",
        "ä.b.c",
        f"{segment([])}.{segment(CLAIMS)}.AAAA",
        f"{segment('alg')}.{segment(CLAIMS)}.AAAA",
        f"{segment({})}.{segment(CLAIMS)}.AAAA",
        f"{segment({'alg': None})}.{segment(CLAIMS)}.AAAA",
        f"{segment({'alg': ['RS256']})}.{segment(CLAIMS)}.AAAA",
        f"{segment({'alg': {}})}.{segment(CLAIMS)}.AAAA",
        f"{segment({'alg': 'RS256', 'kid': 5})}.{segment(CLAIMS)}.AAAA",
        f"{segment({'alg': 'RS256', 'kid': 'k' * 300})}.{segment(CLAIMS)}.AAAA",
        f"{segment(b'{' * 5000)}.{segment(CLAIMS)}.AAAA",
        f"{segment(b'[' * 5000)}.{segment(CLAIMS)}.AAAA",
        f"{segment({'alg': 'RS256', 'x': 'x' * 10_000})}.{segment(CLAIMS)}.AAAA",
        "a" * (TOKEN_BYTES_MAX + 1),
    ],
)
def test_what_is_no_token(token: str) -> None:
    refused(token)


@pytest.mark.parametrize(
    "claims",
    [
        b"",
        b"nonsense",
        b"[]",
        b'"text"',
        b"[" * 20_000,
        b'{"a":' * 8_000 + b"1" + b"}" * 8_000,
        b'{"exp":' + b"9" * 5000 + b"}",
        b'{"sub":"ann","sub":"admin","iat":1699999990,"exp":1700000300}',
        b'\xff{"sub":"ann","iat":1699999990,"exp":1700000300}',
    ],
)
def test_claims_that_are_none_although_they_are_signed(claims: bytes) -> None:
    refused(signed(claims))


# Which key


def test_a_key_that_is_not_there_asks_for_a_newer_set() -> None:
    with pytest.raises(UnknownKey) as failed:
        validator().validate(signed(CLAIMS, OTHER), NOW_MS)
    assert failed.value.kid == "other"


def test_a_token_that_names_no_key() -> None:
    assert validator().validate(signed(CLAIMS, kid=None), NOW_MS), "one key is for RS256"
    two = JwtValidator(JwtRules(), parse_jwks(jwks(RSA, OTHER)))
    with pytest.raises(UnknownKey, match="2 keys"):
        two.validate(signed(CLAIMS, kid=None), NOW_MS)


def test_two_keys_of_one_name_for_two_algorithms() -> None:
    members = [
        {**RSA.as_dict(private=False), "alg": "RS256"},
        {**OTHER.as_dict(private=False), "alg": "PS256", "kid": "rsa"},
    ]
    both = JwtValidator(JwtRules(), parse_jwks(json.dumps({"keys": members}).encode()))
    assert both.validate(signed(CLAIMS), NOW_MS)
    assert both.validate(signed(CLAIMS, OTHER, "PS256", kid="rsa"), NOW_MS)


# What it says


@pytest.mark.parametrize(
    ("claims", "why"),
    [
        (without(CLAIMS, "exp"), "expires"),
        (without(CLAIMS, "iat"), "issued"),
        (without(CLAIMS, "sub"), "sub"),
        ({**CLAIMS, "exp": None}, "expires"),
        ({**CLAIMS, "exp": "1800000000"}, "exp"),
        ({**CLAIMS, "exp": True}, "exp"),
        ({**CLAIMS, "exp": [NOW_S + 300]}, "exp"),
        ({**CLAIMS, "exp": float("inf")}, "exp"),
        ({**CLAIMS, "exp": float("nan")}, "exp"),
        ({**CLAIMS, "exp": 1e300}, "exp"),
        ({**CLAIMS, "exp": 10**30}, "exp"),
        ({**CLAIMS, "exp": -1}, "1970"),
        ({**CLAIMS, "iat": -1}, "1970"),
        ({**CLAIMS, "iat": "now"}, "iat"),
        ({**CLAIMS, "iat": NOW_S + 301}, "before"),
        ({**CLAIMS, "nbf": NOW_S + 301}, "before"),
        ({**CLAIMS, "nbf": "now"}, "nbf"),
        ({**CLAIMS, "sub": ""}, "sub"),
        ({**CLAIMS, "sub": " \t\n"}, "sub"),
        ({**CLAIMS, "sub": None}, "sub"),
        ({**CLAIMS, "sub": 7}, "sub"),
        ({**CLAIMS, "sub": ["ann"]}, "sub"),
        ({**CLAIMS, "sub": "a" * 2000}, "sub"),
        ({**CLAIMS, "sub": "\ud800"}, "sub"),
        ({**CLAIMS, "scope": ""}, "scope"),
        ({**CLAIMS, "scope": ["a", "a"]}, "twice"),
        ({**CLAIMS, "scope": ["a", 1]}, "scope"),
        ({**CLAIMS, "scope": {}}, "scope"),
    ],
)
def test_claims_that_are_refused(claims: dict[str, Any], why: str) -> None:
    assert why in refused(signed(claims))


def test_times_to_the_second() -> None:
    def valid(claims: dict[str, Any], at_s: int, skew_s: int) -> bool:
        try:
            validator(clock_skew_s=skew_s).validate(signed(claims), at_s * 1000)
        except InvalidToken:
            return False
        return True

    begins = {**CLAIMS, "nbf": NOW_S}
    for skew_s in (0, 30):
        assert valid(CLAIMS, NOW_S + 300 + skew_s - 1, skew_s)
        assert not valid(CLAIMS, NOW_S + 300 + skew_s, skew_s)
        assert valid(begins, NOW_S - skew_s, skew_s)
        assert not valid(begins, NOW_S - skew_s - 1, skew_s)
    assert valid({**CLAIMS, "iat": NOW_S + 100}, NOW_S, 0), "as Kafka: it only has to be there"


def test_who_issued_it() -> None:
    ours = {**CLAIMS, "iss": "https://idp"}
    assert validator(issuer="https://idp").validate(signed(ours), NOW_MS)
    for claims in (CLAIMS, {**CLAIMS, "iss": "https://idp/"}, {**CLAIMS, "iss": ["https://idp"]}):
        assert "issuer" in refused(signed(claims), issuer="https://idp")


def test_whom_it_is_for() -> None:
    both = {"audiences": frozenset({"kafka", "broker"})}
    for audience in ("kafka", ["x", "broker"]):
        assert validator(**both).validate(signed({**CLAIMS, "aud": audience}), NOW_MS)
        assert "expected.audience" in refused(signed({**CLAIMS, "aud": audience}))
    for audience in ("other", [], ["x"], "Kafka", "kafk", [["kafka"]], 7, None):
        assert "aud" in refused(signed({**CLAIMS, "aud": audience}), **both)
    assert "aud" in refused(signed(CLAIMS), **both)


def test_other_claims_by_settings() -> None:
    claims = {**CLAIMS, "email": " a@b ", "scp": ["x", "y"]}
    found = validator(subject_claim="email", scope_claim="scp").validate(signed(claims), NOW_MS)
    assert (found.principal, found.scopes) == ("a@b", frozenset({"x", "y"}))
    assert "upn" in refused(signed(claims), subject_claim="upn")


def test_groups_become_roles() -> None:
    claims = {**CLAIMS, "groups": ["ops", "dev"]}
    assert validator().validate(signed(claims), NOW_MS).roles == frozenset()
    found = validator(groups_claim="groups")
    assert found.validate(signed(claims), NOW_MS).roles == {"ops", "dev"}
    assert found.validate(signed({**CLAIMS, "groups": "ops"}), NOW_MS).roles == {"ops"}
    assert found.validate(signed(CLAIMS), NOW_MS).roles == frozenset()


@pytest.mark.parametrize("groups", [7, {}, [1], ["a", None], [""], [f"g{i}" for i in range(1025)]])
def test_groups_that_cannot_be_read_are_not_left_out(groups: object) -> None:
    """One of them may be denied something."""
    assert ROLES_MAX == 1024
    assert "groups" in refused(signed({**CLAIMS, "groups": groups}), groups_claim="groups")


@pytest.mark.parametrize("by", [RSA, OTHER])
def test_no_error_shows_the_token(by: AnyKey) -> None:
    token = signed({**CLAIMS, "secret-claim": "hush", "exp": 1}, by)
    said = refused(token)
    assert not any(part in said for part in (*token.split("."), "hush", "ann"))
