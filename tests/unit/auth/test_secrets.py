"""No secret is in a `repr` or in the text of an error, of anything that holds one."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Callable, Iterator

import pytest

import penstock.auth
from penstock.auth import jaas, mechanism, oauthbearer, plain, sasl, scram, scram_server
from penstock.auth.plain import PlainLogin
from support.credentials import SECRET, Store, credential

HUSH = "hush-hush"
RAW = HUSH.encode()
LOGIN = PlainLogin("ann", RAW)
CREDENTIAL = scram.ScramCredential(RAW, RAW, RAW, 4096)
STORE = Store(ann=HUSH)
MADE_UP = scram_server.MadeUpCredentials(RAW * 2)
CACHE = plain.PasswordCache(RAW * 2)
CONFIGURED = plain.ConfiguredPasswords(RAW * 2, {"ann": HUSH})
CHECKER = plain.PasswordChecker(STORE, MADE_UP, CACHE, CONFIGURED)
CHECK = CHECKER.begin(LOGIN, 0)


HOLDERS: dict[type, Callable[[], object]] = {
    scram.ScramCredential: lambda: CREDENTIAL,
    scram.Keys: lambda: scram.Keys(RAW, RAW),
    scram.ClientFinal: lambda: scram.ClientFinal(b"", HUSH, RAW, HUSH),
    scram_server.MadeUpCredentials: lambda: MADE_UP,
    scram_server.ScramServer: lambda: scram_server.ScramServer(
        "SCRAM-SHA-256", HUSH, STORE, MADE_UP
    ),
    mechanism.TokenCredential: lambda: mechanism.TokenCredential(CREDENTIAL, "ann", 0),
    mechanism.Challenge: lambda: mechanism.Challenge(RAW),
    mechanism.Done: lambda: mechanism.Done("ann", RAW),
    mechanism.Work: lambda: mechanism.Work(HUSH.encode),
    plain.PlainLogin: lambda: LOGIN,
    plain.PlainServer: lambda: plain.PlainServer(CHECKER),
    plain.PasswordCache: lambda: CACHE,
    plain.ConfiguredPasswords: lambda: CONFIGURED,
    plain.PasswordChecker: lambda: CHECKER,
    plain.PasswordCheck: lambda: CHECK,
    plain._Candidate: lambda: plain._Candidate("sha256", CREDENTIAL, None),
    plain._Entry: lambda: plain._Entry(RAW, 0),
    plain._Keyed: lambda: plain._Keyed(RAW * 2),
    oauthbearer.InitialResponse: lambda: oauthbearer.InitialResponse("", HUSH),
    oauthbearer.OAuthBearerServer: lambda: oauthbearer.OAuthBearerServer(lambda t, n: None),  # type: ignore[arg-type,return-value]
    jaas.Login: lambda: jaas.Login("m", {"password": HUSH}),
    sasl.Authenticate: lambda: sasl.Authenticate(RAW),
    sasl.Token: lambda: sasl.Token(RAW),
    sasl.WorkResult: lambda: sasl.WorkResult(RAW),
    sasl.Answer: lambda: sasl.Answer(data=RAW),
}
HARMLESS = {
    # Names, numbers, public keys, and texts that are made to be shown
    "ApiVersions", "BearerToken", "ClientFirst", "Close", "Failed", "Handshake", "JwtRules",
    "JwtValidator", "KeySet", "Moment", "SaslConnection", "SaslSettings", "Serve", "State",
    "VerificationKey", "_Login", "_Registry",
}  # fmt: skip
OUR_MODULES = (
    "scram",
    "scram_server",
    "mechanism",
    "plain",
    "oauthbearer",
    "jwt",
    "jwks",
    "jaas",
    "sasl",
)


def classes() -> Iterator[type]:
    for found in pkgutil.iter_modules(penstock.auth.__path__):
        if found.name not in OUR_MODULES:
            continue
        module = importlib.import_module(f"penstock.auth.{found.name}")
        for _, kind in inspect.getmembers(module, inspect.isclass):
            if kind.__module__ == module.__name__:
                yield kind


def test_every_class_is_looked_at() -> None:
    """A new one has to be put into one of the two lists."""
    seen = set(classes())
    assert len(seen) > 30
    unknown = {
        kind.__name__
        for kind in seen
        if kind not in HOLDERS
        and kind.__name__ not in HARMLESS
        and not issubclass(kind, Exception)
        and not getattr(kind, "_is_protocol", False)
    }
    assert unknown == set()


@pytest.mark.parametrize("kind", HOLDERS, ids=lambda kind: kind.__name__)
def test_what_holds_a_secret_does_not_show_it(kind: type) -> None:
    held = HOLDERS[kind]()
    assert type(held) is kind
    for shown in (repr(held), str(held), f"{held}", repr([held]), repr({"a": held})):
        assert HUSH not in shown


def test_the_errors_of_all_parsers_show_nothing() -> None:
    messages = [
        RAW,
        b"n,," + RAW,
        b"n,,n=" + RAW + b",x",
        b"n,,n=a,r=\xff" + RAW,
        b"c=" + RAW + b",r=" + RAW + b",p=" + RAW,
        RAW + b"\0" + RAW + b"\0" + RAW,
        b"\0\0" + RAW,
        b"\0" + RAW + b"\0\xff",
        b"n,a=" + RAW + b",\x01" + RAW + b"\x01\x01",
        b"n,,\x01auth=Basic " + RAW + b"\x01\x01",
        b'm required password="' + RAW,
        b'm required password="' + RAW + b'" x;',
    ]
    parsers: list[Callable[[bytes], object]] = [
        scram.parse_client_first,
        scram.parse_client_final,
        plain.parse_plain,
        oauthbearer.parse_initial_response,
        lambda message: jaas.plain_users(message.decode(errors="replace")),
    ]
    errors = [e for parse in parsers for m in messages if (e := _error(parse, m)) is not None]
    assert len(errors) > 40
    assert [e for e in errors if HUSH in f"{e!r} {e}" or e.__cause__ is not None] == []


def _error(parse: Callable[[bytes], object], message: bytes) -> Exception | None:
    try:
        parse(message)
    except Exception as e:
        return e
    return None


def test_the_credential_of_a_store_shows_nothing() -> None:
    made = credential("SCRAM-SHA-256", HUSH)
    assert repr(made) == "ScramCredential(iterations=4096)"
    assert SECRET not in repr(MADE_UP).encode()
