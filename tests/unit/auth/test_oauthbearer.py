"""OAUTHBEARER: its first message, and what follows from a token that is not believed."""

from __future__ import annotations

import pytest

from penstock.auth.jwks import parse_jwks
from penstock.auth.jwt import JwtRules, JwtValidator
from penstock.auth.mechanism import Challenge, Done, Failed, Outcome, Work
from penstock.auth.oauthbearer import (
    EXTENSIONS_MAX,
    INVALID_TOKEN,
    MESSAGE_BYTES_MAX,
    BearerError,
    BearerToken,
    InvalidToken,
    OAuthBearerServer,
    parse_initial_response,
)
from unit.auth.tokens import CLAIMS, NOW_MS, NOW_S, RSA, jwks, key, segment, signed

VALIDATOR = JwtValidator(JwtRules(groups_claim="groups"), parse_jwks(jwks(RSA)))


def message(token: str, header: str = "n,,", more: str = "") -> bytes:
    return f"{header}\x01auth=Bearer {token}\x01{more}\x01".encode()


def login(machine: OAuthBearerServer, given: bytes) -> Outcome:
    outcome = machine.step(given, NOW_MS)
    return machine.resume(outcome.run(), NOW_MS) if isinstance(outcome, Work) else outcome


@pytest.mark.parametrize(
    ("given", "authorization_id"),
    [
        (b"n,,\x01auth=Bearer a.b-c_d~e+f/g==\x01\x01", ""),
        (b"n,,\x01auth=bEARER   a.b-c_d~e+f/g==\x01\x01", ""),
        (b"n,a=ann,\x01auth=Bearer a.b-c_d~e+f/g==\x01\x01", "ann"),
        (b"n,a=a=2Cb=3D,\x01auth=Bearer a.b-c_d~e+f/g==\x01\x01", "a,b="),
        (b"n,,\x01host=x\x01auth=Bearer a.b-c_d~e+f/g==\x01port=1 2\t\x01\x01", ""),
    ],
)
def test_first_messages(given: bytes, authorization_id: str) -> None:
    found = parse_initial_response(given)
    assert (found.authorization_id, found.token) == (authorization_id, "a.b-c_d~e+f/g==")


@pytest.mark.parametrize(
    "given",
    [
        b"",
        b"\x01",
        b"n,,",
        b"n,,\x01\x01",
        b"n,,\x01auth=Bearer abc\x01",
        b"n,,\x01auth=Bearer abc",
        b"n,,auth=Bearer abc\x01\x01",
        b"y,,\x01auth=Bearer abc\x01\x01",
        b"p=x,,\x01auth=Bearer abc\x01\x01",
        b"n,ann,\x01auth=Bearer abc\x01\x01",
        b"n,a=,\x01auth=Bearer abc\x01\x01",
        b"n,a=a=b,\x01auth=Bearer abc\x01\x01",
        b"n,a=a,b,\x01auth=Bearer abc\x01\x01",
        b"n,,x\x01auth=Bearer abc\x01\x01",
        b"n,,\x01auth=Bearer abc\x01\x01more",
        b"n,,\x01auth=Bearer abc\x01\x01\x01",
        b"n,,\x01\x01auth=Bearer abc\x01\x01",
        b"n,,\x01auth=Bearer abc\x01auth=Bearer def\x01\x01",
        b"n,,\x01auth=Bearer abc\x01k=v\x01k=v\x01\x01",
        b"n,,\x01auth=Bearer abc\x01k\x01\x01",
        b"n,,\x01auth=Bearer abc\x01k=\x01\x01",
        b"n,,\x01auth=Bearer abc\x01k1=v\x01\x01",
        b"n,,\x01auth=Bearer abc\x01=v\x01\x01",
        b"n,,\x01auth=Bearer\x01\x01",
        b"n,,\x01auth=Bearer \x01\x01",
        b"n,,\x01auth=Bearerabc\x01\x01",
        b"n,,\x01auth=Basic abc\x01\x01",
        b"n,,\x01auth=Bearer a b\x01\x01",
        b"n,,\x01auth=Bearer a=b\x01\x01",
        b"n,,\x01auth=Bearer a\0b\x01\x01",
        b"n,,\x01auth=Bearer \xff\x01\x01",
        "n,,\x01auth=Bearer ä\x01\x01".encode(),
        b"n,,\x01auth=Bearer abc\x01" + b"".join(b"%c=v\x01" % c for c in b"ab") * 40 + b"\x01",
        b"n,,\x01auth=Bearer " + b"a" * MESSAGE_BYTES_MAX + b"\x01\x01",
    ],
)
def test_what_is_no_first_message(given: bytes) -> None:
    with pytest.raises(BearerError):
        parse_initial_response(given)
    failed = login(OAuthBearerServer(VALIDATOR.validate), given)
    assert isinstance(failed, Failed)
    assert failed.text is None


def test_the_number_of_extensions_is_bounded() -> None:
    names = [chr(97 + i // 26) + chr(97 + i % 26) for i in range(EXTENSIONS_MAX + 1)]
    pairs = [f"{name}=v\x01" for name in names]
    assert parse_initial_response(message("abc", more="".join(pairs[:-1])))
    with pytest.raises(BearerError):
        parse_initial_response(message("abc", more="".join(pairs)))


def test_a_valid_token() -> None:
    token = signed({**CLAIMS, "groups": ["ops"]})
    done = Done("ann", b"", (NOW_S + 300) * 1000, roles=frozenset({"ops"}))
    for header in ("n,,", "n,a=ann,"):
        given = message(token, header, "traceId=1\x01")
        assert login(OAuthBearerServer(VALIDATOR.validate), given) == done


def test_nobody_poses_as_another() -> None:
    failed = login(OAuthBearerServer(VALIDATOR.validate), message(signed(CLAIMS), "n,a=admin,"))
    assert isinstance(failed, Failed)


@pytest.mark.parametrize(
    "token",
    [
        "abc",
        f"{segment({'alg': 'none'})}.{segment(CLAIMS)}.",
        signed({**CLAIMS, "exp": NOW_S - 100}),
        signed(CLAIMS, key("RSA", 2048, "other")),
    ],
    ids=["nonsense", "unsigned", "expired", "by another key"],
)
@pytest.mark.parametrize(
    "then",
    [b"\x01", b"", b"\x01\x01", message(signed(CLAIMS)), message("abc")],
    ids=["as it should", "empty", "twice", "a valid token", "nonsense"],
)
def test_a_token_that_is_not_believed(token: str, then: bytes) -> None:
    """An error in JSON, and then the end, whatever the client has to say."""
    machine = OAuthBearerServer(VALIDATOR.validate)
    assert login(machine, message(token)) == Challenge(b'{"status":"invalid_token"}')
    failed = machine.step(then, NOW_MS)
    assert isinstance(failed, Failed)
    assert failed.text == INVALID_TOKEN
    assert failed.reason.startswith("the token is invalid: ")
    assert token not in failed.reason


def test_the_answer_to_an_error_that_was_not_sent() -> None:
    machine = OAuthBearerServer(VALIDATOR.validate)
    assert isinstance(machine.step(b"\x01", NOW_MS), Failed)


@pytest.mark.parametrize("result", [None, True, "ann", {"principal": "ann"}, InvalidToken("x")])
def test_only_a_verdict_is_believed(result: object) -> None:
    machine = OAuthBearerServer(VALIDATOR.validate)
    assert isinstance(machine.step(message(signed(CLAIMS)), NOW_MS), Work)
    assert isinstance(machine.resume(result, NOW_MS), Challenge)
    fresh = OAuthBearerServer(VALIDATOR.validate)
    assert not isinstance(fresh.resume(BearerToken("ann", 1), NOW_MS), Done)


def test_without_keys_every_login_fails() -> None:
    """CVE-2026-110985."""
    machine = OAuthBearerServer(JwtValidator(JwtRules()).validate)
    assert login(machine, message(signed(CLAIMS))) == Challenge(INVALID_TOKEN.encode())
    failed = machine.step(b"\x01", NOW_MS)
    assert isinstance(failed, Failed)
    assert "no keys" in failed.reason
