"""Our SASL against Kafka's own classes: our server with its client and the other way round, and the
same verdict about messages and tokens.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.auth.jwks import parse_jwks
from penstock.auth.jwt import JwtRules, JwtValidator
from penstock.auth.mechanism import Challenge, Done, Failed, Work
from penstock.auth.oauthbearer import BearerError, InvalidToken, parse_initial_response
from penstock.auth.scram import HASHES, ScramError, parse_client_first
from penstock.auth.scram_server import MadeUpCredentials, ScramServer
from penstock.kafka.sasl import Refused, scram
from support.credentials import SECRET, Store
from support.reference import java_command
from unit.auth.tokens import EC, RSA, AnyKey, jwks, key, segment, signed, without

pytestmark = [pytest.mark.java, pytest.mark.xdist_group("auth-java")]

PROGRAM = Path(__file__).parent / "java" / "Sasl.java"
NAMES = [("ann", "pencil"), ("a,b=c", "p,=q"), ("=2C", "ü\U0001f511"), ("a b", " p ")]


class Java:
    """Kafka's classes, behind one process."""

    def __init__(self, keys: Path) -> None:
        self.keys = keys
        self._process = subprocess.Popen(
            java_command(str(PROGRAM), keys.as_uri()),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            encoding="utf-8",
        )

    def ask(self, *words: str) -> list[str] | None:
        """The fields of the answer; None for an error."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("\t".join(words) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline().rstrip("\n").split("\t")
        assert answer != [""], "Java is gone"
        self.said = "\t".join(answer)
        return None if answer[0] == "error" else answer

    def step(self, message: bytes) -> tuple[str, bytes] | None:
        answer = self.ask("step", message.hex())
        return None if answer is None else (answer[0], bytes.fromhex(answer[1]))

    def stop(self) -> None:
        self._process.communicate(timeout=30)


@pytest.fixture(scope="module")
def java(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Java]:
    keys = tmp_path_factory.mktemp("java-sasl") / "keys.json"
    keys.write_bytes(jwks(RSA, EC))
    process = Java(keys)
    yield process
    process.stop()


def our_server(store: Store, mechanism: str) -> ScramServer:
    return ScramServer(mechanism, "nonce-of-the-server", store, MadeUpCredentials(SECRET))


def hex_of(*texts: str) -> list[str]:
    return [text.encode().hex() for text in texts]


@pytest.mark.parametrize("mechanism", HASHES)
@pytest.mark.parametrize(("user", "password"), NAMES)
def test_kafkas_client_and_our_server(java: Java, mechanism: str, user: str, password: str) -> None:
    for given, right in ((password, True), (password + "x", False)):
        machine = our_server(Store(**{user: password}), mechanism)
        java.ask("client", mechanism, *hex_of(user, given), "-")
        first = java.step(b"")
        assert first is not None
        asked = machine.step(first[1], 0)
        assert isinstance(asked, Challenge)
        final = java.step(asked.data)
        assert final is not None, java.said
        outcome = machine.step(final[1], 0)
        if not right:
            assert isinstance(outcome, Failed)
            continue
        assert isinstance(outcome, Done)
        assert outcome.name == user
        assert java.step(outcome.data) == ("done", b"")


def test_kafkas_client_with_a_delegation_token(java: Java) -> None:
    store = Store()
    store.add_token("token-id", "aG1hYw==", "ann", 1000)
    machine = our_server(store, "SCRAM-SHA-512")
    java.ask("client", "SCRAM-SHA-512", *hex_of("token-id", "aG1hYw=="), "token")
    first = java.step(b"")
    assert first is not None
    assert b",tokenauth=true" in first[1]
    work = machine.step(first[1], 0)
    assert isinstance(work, Work)
    asked = machine.resume(work.run(), 0)
    assert isinstance(asked, Challenge)
    final = java.step(asked.data)
    assert final is not None
    done = machine.step(final[1], 0)
    assert isinstance(done, Done)
    assert (done.name, done.expires_at_ms, done.token_authenticated) == ("ann", 1000, True)
    assert java.step(done.data) == ("done", b"")


def test_kafkas_client_finds_out_a_server_that_does_not_know_the_password(java: Java) -> None:
    machine = our_server(Store(ann="pencil"), "SCRAM-SHA-256")
    java.ask("client", "SCRAM-SHA-256", *hex_of("ann", "pencil"), "-")
    first = java.step(b"")
    assert first is not None
    asked = machine.step(first[1], 0)
    assert isinstance(asked, Challenge)
    final = java.step(asked.data)
    assert final is not None
    assert isinstance(machine.step(final[1], 0), Done)
    assert java.step(b"v=" + b"A" * 43 + b"=") is None


@pytest.mark.parametrize("mechanism", HASHES)
@pytest.mark.parametrize(("user", "password"), NAMES)
def test_our_client_and_kafkas_server(java: Java, mechanism: str, user: str, password: str) -> None:
    for given, right in ((password, True), (password + "x", False)):
        java.ask("server", mechanism, *hex_of(user, password), "8192", "")
        exchange = scram(HASHES[mechanism], user, given, "nonce-of-the-client")
        asked = java.step(next(exchange))
        assert asked is not None, java.said
        shown = java.step(exchange.send(asked[1]))
        if not right:
            assert shown is None
            continue
        assert shown is not None
        assert shown[0] == "done"
        with pytest.raises(StopIteration):
            exchange.send(shown[1])
    java.ask("server", mechanism, *hex_of(user, password), "4096", "")
    exchange = scram(HASHES[mechanism], user, password, "nonce-of-the-client")
    asked = java.step(next(exchange))
    assert asked is not None
    with pytest.raises(Refused):
        exchange.send(asked[1].replace(b"i=4096", b"i=1"))


FIRST = [
    b"n,,n=user,r=abc",
    b"n,a=user,n=user,r=abc",
    b"n,a=a=2Cb=3D,n=a=2Cb=3D,r=abc",
    b"n,,n=user,r=abc,tokenauth=true",
    b"n,,n=user,r=abc,tokenauth=TRUE,other=1",
    b"n,,n=user,r=abc,tokenauth=yes",
    b"",
    b"n,,n=,r=abc",
    b"n,,n=user,r=",
    b"n,,n=user",
    b"n,,r=abc,n=user",
    b"y,,n=user,r=abc",
    b"p=tls-unique,,n=user,r=abc",
    b"n,user,n=user,r=abc",
    b"n,a=,n=user,r=abc",
    b"n,,n=us=er,r=abc",
    b"n,,n=us=2cer,r=abc",
    b"n,,n=user,r=a c",
    b"n,,n=user,r=a\x7fc",
    b"n,,n=us\0er,r=abc",
    b"n,,n=user,r=abc,",
    b"n,,n=user,r=abc,1=2",
    b"n,,n=user,r=abc,x=",
]


@pytest.mark.parametrize("message", FIRST)
def test_the_same_first_messages_of_scram(java: Java, message: bytes) -> None:
    try:
        found = parse_client_first(message)
    except ScramError:
        ours = None
    else:
        token = "true" if found.token else "false"
        # Kafka does not decode the authorization id.
        theirs_id = found.authorization_id.replace("=", "=3D").replace(",", "=2C")
        ours = [*hex_of(found.name, found.nonce, theirs_id), token]
    assert java.ask("first", message.hex()) == ours


@pytest.mark.parametrize(
    ("message", "why"),
    [
        (b"n,,m=x,n=user,r=abc", "a mandatory extension must be known"),
        (b"n,,n=user,r=abc,tokenauth=true,tokenauth=false", "two answers to one question"),
    ],
)
def test_where_we_are_stricter(java: Java, message: bytes, why: str) -> None:
    assert java.ask("first", message.hex()) is not None
    with pytest.raises(ScramError):
        parse_client_first(message)


def test_where_we_take_more(java: Java) -> None:
    """Names beyond ASCII, as the RFC has it."""
    message = "n,,n=änn,r=abc".encode()
    assert java.ask("first", message.hex()) is None
    assert parse_client_first(message).name == "änn"


BEARER = [
    b"n,,\x01auth=Bearer a.b-c_d~e+f/g==\x01\x01",
    b"n,,\x01auth=bEARER   abc\x01\x01",
    b"n,a=ann,\x01auth=Bearer abc\x01\x01",
    b"n,,\x01host=x\x01auth=Bearer abc\x01port=1 2\t\x01\x01",
    b"n,,\x01\x01",
    b"n,,\x01auth=Bearer abc\x01",
    b"y,,\x01auth=Bearer abc\x01\x01",
    b"n,ann,\x01auth=Bearer abc\x01\x01",
    b"n,a=,\x01auth=Bearer abc\x01\x01",
    b"n,,\x01auth=Bearer abc\x01\x01more",
    b"n,,\x01auth=Bearer abc\x01k\x01\x01",
    b"n,,\x01auth=Bearer abc\x01k=\x01\x01",
    b"n,,\x01auth=Bearer abc\x01k1=v\x01\x01",
    b"n,,\x01auth=Bearer\x01\x01",
    b"n,,\x01auth=Bearerabc\x01\x01",
    b"n,,\x01auth=Basic abc\x01\x01",
    b"n,,\x01auth=Bearer a b\x01\x01",
    b"n,,\x01auth=Bearer a=b\x01\x01",
    b"\x01",
    b"",
]


@pytest.mark.parametrize("message", BEARER)
def test_the_same_first_messages_of_oauthbearer(java: Java, message: bytes) -> None:
    try:
        found = parse_initial_response(message)
    except BearerError:
        ours = None
    else:
        ours = hex_of(found.token, found.authorization_id)
    assert java.ask("bearer", message.hex()) == ours


NOW_S = int(time.time())
CLAIMS: dict[str, Any] = {"sub": "ann", "iat": NOW_S - 100, "exp": NOW_S + 3600}
OTHER = key("RSA", 2048, "other")
TOKENS: dict[str, tuple[object, dict[str, Any]]] = {
    "valid": (CLAIMS, {}),
    "elliptic": (CLAIMS, {"by": EC, "algorithm": "ES256"}),
    "pss": (CLAIMS, {"algorithm": "PS384"}),
    "without kid": (CLAIMS, {"kid": None}),
    "other key": (CLAIMS, {"by": OTHER}),
    "other key of that name": (CLAIMS, {"by": OTHER, "kid": "rsa"}),
    "other type of header": (CLAIMS, {"typ": "at+jwt", "x": 1}),
    "key in the header": (CLAIMS, {"by": OTHER, "jwk": OTHER.as_dict(private=False)}),
    "critical": (CLAIMS, {"crit": ["x"], "x": 1}),
    "no exp": (without(CLAIMS, "exp"), {}),
    "no iat": (without(CLAIMS, "iat"), {}),
    "no sub": (without(CLAIMS, "sub"), {}),
    "expired within the skew": ({**CLAIMS, "exp": NOW_S - 10}, {}),
    "expired": ({**CLAIMS, "exp": NOW_S - 40}, {}),
    "not yet": ({**CLAIMS, "nbf": NOW_S + 600}, {}),
    "not yet within the skew": ({**CLAIMS, "nbf": NOW_S + 10}, {}),
    "exp is text": ({**CLAIMS, "exp": str(NOW_S + 3600)}, {}),
    "exp is a fraction": ({**CLAIMS, "exp": NOW_S + 3600.9}, {}),
    "exp before iat": ({**CLAIMS, "iat": NOW_S + 7200}, {}),
    "exp before nbf": ({**CLAIMS, "exp": NOW_S + 5, "nbf": NOW_S + 10}, {}),
    "iat in the future": ({**CLAIMS, "iat": NOW_S + 600}, {}),
    "negative iat": ({**CLAIMS, "iat": -5}, {}),
    "blank sub": ({**CLAIMS, "sub": " "}, {}),
    "sub with blanks": ({**CLAIMS, "sub": " ann\t"}, {}),
    "sub is a number": ({**CLAIMS, "sub": 7}, {}),
    "scope": ({**CLAIMS, "scope": "read"}, {}),
    "scopes": ({**CLAIMS, "scope": ["read", "write"]}, {}),
    "scope twice": ({**CLAIMS, "scope": ["read", "read"]}, {}),
    "blank scope": ({**CLAIMS, "scope": ""}, {}),
    "audience": ({**CLAIMS, "aud": "kafka"}, {}),
    "audiences": ({**CLAIMS, "aud": ["x", "kafka"]}, {}),
    "other audience": ({**CLAIMS, "aud": "other"}, {}),
    "issuer": ({**CLAIMS, "iss": "https://idp"}, {}),
    "other issuer": ({**CLAIMS, "iss": "https://other"}, {}),
    "claims are a list": ([], {}),
    "a claim twice": (b'{"sub":"ann","sub":"bob","iat":%d,"exp":%d}' % (NOW_S, NOW_S + 3600), {}),
}
RULES: dict[str, tuple[JwtRules, list[str]]] = {
    "plain": (JwtRules(), []),
    "audience": (
        JwtRules(audiences=frozenset({"kafka", "broker"})),
        ["sasl.oauthbearer.expected.audience=kafka,broker"],
    ),
    "issuer": (
        JwtRules(issuer="https://idp"),
        ["sasl.oauthbearer.expected.issuer=https://idp"],
    ),
}


@pytest.mark.parametrize("rules", RULES)
def test_the_same_verdict_about_tokens(java: Java, rules: str) -> None:
    ours, settings = RULES[rules]
    validator = JwtValidator(ours, parse_jwks(java.keys.read_bytes()))
    place = f"sasl.oauthbearer.jwks.endpoint.url={java.keys.as_uri()}"
    assert java.ask("rules", place, *settings) == ["ok"], java.said
    different = {}
    believed = 0
    for name, (claims, more) in TOKENS.items():
        token = signed(claims, **more)
        mine, theirs = judged(validator, token), java.ask("judge", token.encode().hex())
        believed += theirs is not None
        if mine != theirs:
            different[name] = (mine, java.said)
    assert different == {}
    assert believed >= 1


def judged(validator: JwtValidator, token: str) -> list[str] | None:
    try:
        found = validator.validate(token, int(time.time() * 1000))
    except InvalidToken:
        return None
    scopes = " ".join(sorted(found.scopes))
    return [*hex_of(found.principal), str(found.expires_at_ms), *hex_of(scopes)]


@pytest.mark.parametrize("by", [RSA, None], ids=["with a signature", "without"])
def test_neither_believes_a_token_without_an_algorithm(java: Java, by: AnyKey | None) -> None:
    place = f"sasl.oauthbearer.jwks.endpoint.url={java.keys.as_uri()}"
    assert java.ask("rules", place) == ["ok"], java.said
    assert java.ask("judge", signed(CLAIMS).encode().hex()) is not None, java.said
    signature = "" if by is None else signed(CLAIMS, by).rpartition(".")[2]
    token = f"{segment({'alg': 'none'})}.{segment(CLAIMS)}.{signature}"
    assert java.ask("judge", token.encode().hex()) is None
    assert judged(JwtValidator(JwtRules(), parse_jwks(jwks(RSA))), token) is None
