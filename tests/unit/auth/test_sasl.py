"""SASL on a connection: which requests are legal when, sessions, and how logins fail."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from penstock.auth.mechanism import Challenge, Done, Failed, Mechanism, Outcome, Work
from penstock.auth.oauthbearer import OAUTHBEARER, BearerToken, OAuthBearerServer
from penstock.auth.plain import PLAIN, PasswordCache, PasswordChecker, PlainServer
from penstock.auth.principal import Principal
from penstock.auth.sasl import (
    API_VERSIONS_REFUSED_MAX,
    MESSAGE_BYTES_MAX,
    Answer,
    ApiVersions,
    Authenticate,
    Close,
    Handshake,
    Input,
    Moment,
    SaslConnection,
    SaslSettings,
    Serve,
    State,
    Token,
    Verdict,
    WorkResult,
)
from penstock.auth.scram_server import MadeUpCredentials, ScramServer
from penstock.base.errors import ErrorCode
from penstock.kafka.sasl import scram
from penstock.wire.apis import ApiKey
from support.credentials import SECRET, Store

HOST = "10.0.0.1"
AT = Moment(1_700_000_000_000, 50.0)
SCRAM = "SCRAM-SHA-256"
ANN = Principal("User", "ann", HOST)


class Script:
    """A mechanism that says what a test has written down."""

    def __init__(self, *outcomes: Outcome | Work) -> None:
        self.outcomes = list(outcomes)
        self.claimed = ""

    def step(self, message: bytes, now_ms: int) -> Outcome | Work:
        return self.outcomes.pop(0)

    def resume(self, result: object, now_ms: int) -> Outcome:
        assert isinstance(result, Challenge | Done | Failed)
        return result


def scripted(
    *outcomes: Outcome | Work, max_reauth_ms: int = 0, others: tuple[str, ...] = ("Y",)
) -> SaslConnection:
    """One whose mechanism X takes the outcomes in turn, over all logins."""
    script = Script(*outcomes)
    made: dict[str, Callable[[], Mechanism]] = {"X": lambda: script}
    made.update({name: lambda: script for name in others})
    return SaslConnection(made, HOST, SaslSettings({"X": max_reauth_ms}))


def real(store: Store | None = None) -> SaslConnection:
    store = store or Store(ann="pencil")
    made_up = MadeUpCredentials(SECRET)
    cache = PasswordCache(SECRET)
    return SaslConnection(
        {
            PLAIN: lambda: PlainServer(PasswordChecker(store, made_up, cache)),
            SCRAM: lambda: ScramServer(SCRAM, "server-nonce", store, made_up),
            OAUTHBEARER: lambda: OAuthBearerServer(
                lambda token, now_ms: BearerToken(token, now_ms + 60_000)
            ),
        },
        HOST,
    )


def later(seconds: float) -> Moment:
    return Moment(AT.wall_ms + round(seconds * 1000), AT.monotonic_s + seconds)


def run(connection: SaslConnection, given: Input, at: Moment = AT) -> Verdict:
    """With the work done that it hands out."""
    verdict = connection.take(given, at)
    return connection.take(WorkResult(verdict.run()), at) if isinstance(verdict, Work) else verdict


def logged_in(connection: SaslConnection, at: Moment = AT, mechanism: str = "X") -> Answer:
    assert isinstance(connection.take(Handshake(1, mechanism), at), Answer)
    answer = run(connection, Authenticate(b"x"), at)
    assert isinstance(answer, Answer)
    return answer


def failed(verdict: Verdict) -> str:
    """What the client is told."""
    assert isinstance(verdict, Answer)
    assert verdict.code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert verdict.close
    assert verdict.delay_ms == 100
    assert (verdict.data, verdict.lifetime_ms) == (b"", 0)
    assert verdict.reason
    assert verdict.text
    return verdict.text


# The way in


def test_plain_by_version_1() -> None:
    connection = real()
    assert connection.take(ApiVersions(True), AT) == Serve()
    names = (PLAIN, SCRAM, OAUTHBEARER)
    assert connection.take(Handshake(1, PLAIN), AT) == Answer(mechanisms=names)
    assert connection.principal is None
    work = connection.take(Authenticate(b"\0ann\0pencil"), AT)
    assert isinstance(work, Work)
    assert connection.state is State.WORKING
    assert connection.principal is None
    assert connection.take(WorkResult(work.run()), AT) == Answer()
    assert connection.principal == ANN


def test_scram_by_version_0() -> None:
    """Messages without a header, in both directions."""
    connection = real()
    assert connection.take(Handshake(0, SCRAM), AT) == Answer(
        mechanisms=(PLAIN, SCRAM, OAUTHBEARER)
    )
    assert connection.raw
    exchange = scram("sha256", "ann", "pencil", "client-nonce")
    asked = connection.take(Token(next(exchange)), AT)
    assert isinstance(asked, Answer)
    assert asked.raw
    shown = connection.take(Token(exchange.send(asked.data)), AT)
    assert isinstance(shown, Answer)
    assert shown.raw
    with pytest.raises(StopIteration):
        exchange.send(shown.data)
    assert connection.principal == ANN
    assert not connection.raw


def test_a_bearer_token_ends_the_session() -> None:
    connection = real()
    connection.take(Handshake(1, OAUTHBEARER), AT)
    answer = run(connection, Authenticate(b"n,,\x01auth=Bearer ann\x01\x01"))
    assert answer == Answer(lifetime_ms=60_000)
    assert connection.principal == ANN


def test_versions_are_asked_for_once() -> None:
    connection = real()
    assert connection.take(ApiVersions(False), AT) == Serve()
    assert connection.state is State.INITIAL
    assert connection.take(ApiVersions(True), AT) == Serve()
    assert connection.state is State.HANDSHAKE
    assert not connection.legal(ApiKey.API_VERSIONS)
    assert isinstance(connection.take(ApiVersions(True), AT), Close)
    assert connection.state is State.FAILED


def test_versions_that_are_not_served_are_asked_for_a_few_times() -> None:
    connection = real()
    for _ in range(API_VERSIONS_REFUSED_MAX):
        assert connection.take(ApiVersions(False), AT) == Serve()
    assert isinstance(connection.take(ApiVersions(False), AT), Close)


@pytest.mark.parametrize("version", [0, 1])
@pytest.mark.parametrize("name", ["GSSAPI", "", "plain", "PLAIN ", "X" * 1000])
def test_a_mechanism_that_is_not_there(name: str, version: int) -> None:
    connection = real()
    answer = connection.take(Handshake(version, name), AT)
    assert isinstance(answer, Answer)
    assert answer.code == ErrorCode.UNSUPPORTED_SASL_MECHANISM
    assert answer.mechanisms == (PLAIN, SCRAM, OAUTHBEARER)
    assert answer.close
    assert answer.delay_ms == 100
    assert not answer.raw
    assert isinstance(connection.take(Handshake(version, PLAIN), AT), Close)


def test_without_mechanisms_there_is_no_listener() -> None:
    with pytest.raises(ValueError, match="no SASL mechanism"):
        SaslConnection({}, HOST)


# What is legal when

GIVEN: dict[str, Input] = {
    "versions": ApiVersions(True),
    "handshake": Handshake(1, "X"),
    "authenticate": Authenticate(b"x"),
    "token": Token(b"x"),
    "result": WorkResult(Done("ann")),
}
KEYS = {
    "versions": ApiKey.API_VERSIONS,
    "handshake": ApiKey.SASL_HANDSHAKE,
    "authenticate": ApiKey.SASL_AUTHENTICATE,
}
LEGAL = {
    State.INITIAL: {"versions", "handshake"},
    State.HANDSHAKE: {"handshake"},
    State.AUTHENTICATE: {"authenticate"},
    State.TOKENS: {"token"},
    State.WORKING: {"result"},
    State.OTHER_MECHANISM: set(),
    State.COMPLETE: {"versions"},
    State.FAILED: set(),
}


def in_state(state: State) -> SaslConnection:
    work = Work(lambda: Done("ann"))
    connection = scripted(Challenge(b"c") if state is not State.WORKING else work)
    ways: dict[State, list[Input]] = {
        State.INITIAL: [],
        State.HANDSHAKE: [ApiVersions(True)],
        State.AUTHENTICATE: [Handshake(1, "X")],
        State.TOKENS: [Handshake(0, "X")],
        State.WORKING: [Handshake(1, "X"), Authenticate(b"x")],
        State.FAILED: [Handshake(1, "Z")],
    }
    if state in (State.COMPLETE, State.OTHER_MECHANISM):
        connection = scripted(Done("ann"), Done("ann"), max_reauth_ms=60_000)
        logged_in(connection)
        if state is State.OTHER_MECHANISM:
            connection.take(Handshake(1, "Y"), AT)
    for given in ways.get(state, []):
        connection.take(given, AT)
    assert connection.state is state
    return connection


@pytest.mark.parametrize("state", State)
@pytest.mark.parametrize("name", GIVEN)
def test_everything_in_every_state(state: State, name: str) -> None:
    connection = in_state(state)
    verdict = connection.take(GIVEN[name], AT)
    if name in LEGAL[state]:
        assert connection.state is not State.FAILED
        assert isinstance(verdict, Serve) or (isinstance(verdict, Answer) and not verdict.code)
    elif state is State.COMPLETE and name in ("handshake", "authenticate"):
        assert isinstance(verdict, Answer)
        assert not verdict.close
        renews = name == "handshake"
        assert verdict.code == (ErrorCode.NONE if renews else ErrorCode.ILLEGAL_SASL_STATE)
    else:
        assert connection.state is State.FAILED
        assert isinstance(verdict, Close) or (verdict.code and verdict.close)  # type: ignore[union-attr]
        assert connection.principal is None


@pytest.mark.parametrize("state", State)
def test_before_a_login_three_requests_are_decoded_and_none_served(state: State) -> None:
    connection = in_state(state)
    for key in ApiKey:
        served = connection.serves(key, AT.monotonic_s)
        if state is State.COMPLETE:
            assert served == (key not in (ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE))
        else:
            assert not served
        if key not in KEYS.values():
            assert not connection.legal(key)
    if state in (State.FAILED, State.WORKING, State.TOKENS):
        assert not any(connection.legal(key) for key in ApiKey)


@pytest.mark.parametrize("given", [ApiVersions(True), Handshake(1, "X")])
def test_another_request_than_the_next_message(given: Input) -> None:
    answer = in_state(State.AUTHENTICATE).take(given, AT)
    assert isinstance(answer, Answer)
    assert (answer.code, answer.close) == (ErrorCode.ILLEGAL_SASL_STATE, True)


def test_messages_of_the_other_form_are_not_taken() -> None:
    """A raw message after a handshake of version 1, and the other way round."""
    connection = real()
    connection.take(Handshake(1, PLAIN), AT)
    assert isinstance(connection.take(Token(b"\0ann\0pencil"), AT), Close)
    connection = real()
    connection.take(Handshake(0, PLAIN), AT)
    assert isinstance(connection.take(Authenticate(b"\0ann\0pencil"), AT), Close)


# How logins fail


def test_a_wrong_password_by_version_1() -> None:
    connection = real()
    connection.take(Handshake(1, PLAIN), AT)
    assert "wrong" in failed(run(connection, Authenticate(b"\0ann\0wrong")))
    assert connection.principal is None
    assert isinstance(connection.take(Authenticate(b"\0ann\0pencil"), AT), Close)


def test_a_wrong_password_by_version_0_is_answered_by_silence() -> None:
    connection = real()
    connection.take(Handshake(0, PLAIN), AT)
    close = run(connection, Token(b"\0ann\0wrong"))
    assert isinstance(close, Close)
    assert close.delay_ms == 100


def test_an_unknown_user_is_told_what_a_wrong_password_is_told() -> None:
    for mechanism in (PLAIN, SCRAM):
        told = set()
        for user in ("ann", "nobody"):
            connection = real()
            connection.take(Handshake(1, mechanism), AT)
            if mechanism == PLAIN:
                answer = run(connection, Authenticate(f"\0{user}\0wrong".encode()))
            else:
                exchange = scram("sha256", user, "wrong", "client-nonce")
                asked = connection.take(Authenticate(next(exchange)), AT)
                assert isinstance(asked, Answer)
                answer = connection.take(Authenticate(exchange.send(asked.data)), AT)
            told.add((failed(answer), repr(answer)))
        assert len(told) == 1


@pytest.mark.parametrize("mechanism", [PLAIN, SCRAM, OAUTHBEARER])
@pytest.mark.parametrize("handshake", [0, 1])
def test_a_message_that_is_too_large(mechanism: str, handshake: int) -> None:
    """CVE-2022-34917."""
    connection = real()
    connection.take(Handshake(handshake, mechanism), AT)
    data = b"\0" * (MESSAGE_BYTES_MAX + 1)
    verdict = connection.take(Authenticate(data) if handshake else Token(data), AT)
    assert isinstance(verdict, Answer | Close)
    assert verdict.reason
    assert "524288" in verdict.reason
    assert connection.state is State.FAILED


@pytest.mark.parametrize("error", [ValueError("hush"), RecursionError(), KeyboardInterrupt()])
def test_work_that_breaks_off_fails_the_login(error: BaseException) -> None:
    connection = in_state(State.WORKING)
    answer = connection.take(WorkResult(error), AT)
    assert "invalid credentials" in failed(answer)
    assert "hush" not in repr(answer)


def test_a_mechanism_that_breaks_off_fails_the_login() -> None:
    connection = scripted()
    connection.take(Handshake(1, "X"), AT)
    with pytest.raises(IndexError):
        connection.take(Authenticate(b"x"), AT)
    assert connection.state is State.FAILED
    connection = in_state(State.WORKING)
    with pytest.raises(AssertionError):
        connection.take(WorkResult("nonsense"), AT)
    assert connection.state is State.FAILED


# Sessions


@pytest.mark.parametrize(
    ("expires_in_ms", "max_reauth_ms", "lifetime_ms", "ends"),
    [
        (None, 0, 0, False),
        (None, 5000, 5000, True),
        (3000, 0, 3000, True),
        (3000, 5000, 3000, True),
        (9000, 5000, 5000, True),
        (-10, 5000, 0, True),
    ],
)
def test_how_long_a_session_lasts(
    expires_in_ms: int | None, max_reauth_ms: int, lifetime_ms: int, ends: bool
) -> None:
    expires = None if expires_in_ms is None else AT.wall_ms + expires_in_ms
    connection = scripted(Done("ann", b"", expires), max_reauth_ms=max_reauth_ms)
    assert logged_in(connection).lifetime_ms == lifetime_ms
    end = lifetime_ms / 1000
    assert connection.serves(ApiKey.PRODUCE, later(end).monotonic_s)
    assert connection.serves(ApiKey.PRODUCE, later(end + 0.001).monotonic_s) != ends
    assert connection.expired(later(1e9).monotonic_s) == ends


@pytest.mark.parametrize("name", ["versions", "authenticate", "token"])
def test_after_the_end_of_a_session_only_a_handshake_is_taken(name: str) -> None:
    connection = scripted(Done("ann"), Done("ann"), max_reauth_ms=1000)
    logged_in(connection)
    assert not connection.serves(ApiKey.API_VERSIONS, later(2).monotonic_s)
    assert isinstance(connection.take(GIVEN[name], later(2)), Close)
    assert connection.principal is None


def test_a_session_is_renewed() -> None:
    connection = scripted(
        Done("ann", roles=frozenset({"a"})), Done("ann", roles=frozenset({"b"})), max_reauth_ms=1000
    )
    logged_in(connection)
    assert isinstance(connection.take(Handshake(1, "X"), later(5)), Answer)
    assert connection.principal is None, "nothing is served meanwhile"
    assert not connection.serves(ApiKey.PRODUCE, later(5).monotonic_s)
    answer = connection.take(Authenticate(b"x"), later(5))
    assert answer == Answer(lifetime_ms=1000)
    assert connection.serves(ApiKey.PRODUCE, later(6).monotonic_s)
    assert not connection.serves(ApiKey.PRODUCE, later(6.1).monotonic_s)
    assert connection.principal is not None
    assert connection.principal.roles == {"b"}, "those of the credential that counts now"


def test_a_session_without_an_end_is_not_renewed() -> None:
    connection = scripted(Done("ann"), Done("ann"))
    logged_in(connection)
    for given in (Handshake(1, "X"), Authenticate(b"x")):
        answer = connection.take(given, later(10))
        assert isinstance(answer, Answer)
        assert (answer.code, answer.close) == (ErrorCode.ILLEGAL_SASL_STATE, False)
    assert connection.principal == ANN


def test_a_session_is_renewed_once_a_second() -> None:
    connection = scripted(*[Done("ann")] * 4, max_reauth_ms=60_000)
    logged_in(connection)
    assert not logged_in(connection, later(0.1)).code, "the first time at any time"
    answer = connection.take(Handshake(1, "X"), later(1.0))
    assert isinstance(answer, Answer)
    assert (answer.code, answer.close) == (ErrorCode.ILLEGAL_SASL_STATE, False)
    assert connection.principal == ANN
    assert not logged_in(connection, later(1.2)).code


def test_too_soon_and_too_late() -> None:
    connection = scripted(*[Done("ann")] * 3, max_reauth_ms=100)
    logged_in(connection)
    logged_in(connection, later(1))
    assert isinstance(connection.take(Handshake(1, "X"), later(1.5)), Close)
    assert connection.state is State.FAILED


def test_who_authenticates_again_is_the_same() -> None:
    connection = scripted(Done("ann"), Done("bob"), max_reauth_ms=1000)
    logged_in(connection)
    text = failed(logged_in(connection, later(1)))
    assert "User:ann" in text
    assert "User:bob" in text
    assert connection.principal is None


def test_who_fails_to_authenticate_again_is_out() -> None:
    connection = scripted(Done("ann"), Failed("wrong"), max_reauth_ms=60_000)
    logged_in(connection)
    text = failed(logged_in(connection, later(1)))
    assert text.startswith("Re-authentication failed")
    assert connection.principal is None
    assert not connection.serves(ApiKey.PRODUCE, later(1).monotonic_s)


@pytest.mark.parametrize("version", [0, 1])
def test_the_mechanism_stays_the_same(version: int) -> None:
    connection = scripted(Done("ann"), Done("ann"), max_reauth_ms=1000)
    logged_in(connection)
    answer = connection.take(Handshake(version, "Y"), later(1))
    assert isinstance(answer, Answer)
    assert not answer.code
    assert connection.principal is None
    assert connection.raw == (version == 0)
    if version:
        assert "mechanism X" in failed(connection.take(Authenticate(b"x"), later(1)))
    else:
        assert isinstance(connection.take(Token(b"x"), later(1)), Close)


def test_a_mechanism_that_is_not_there_ends_a_session() -> None:
    connection = scripted(Done("ann"), max_reauth_ms=1000)
    logged_in(connection)
    answer = connection.take(Handshake(1, "Z"), later(1))
    assert isinstance(answer, Answer)
    assert answer.code == ErrorCode.UNSUPPORTED_SASL_MECHANISM
    assert connection.state is State.FAILED
