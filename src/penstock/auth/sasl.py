"""SASL on one connection, as Kafka's brokers speak it: from the first request to the last session.

Duty: which requests are legal when, the choice of the mechanism, and what is answered to each of
its messages. No bytes of Kafka's protocol: the driver tells what it has decoded and is told what to
answer, whether to close, how long to hold an answer back, or what work to run beside the loop.

Invariants:
- `_TABLE` says what each state takes; everything else closes the connection. `legal` asks it before
  a request is decoded, so that before a login nothing but three small requests is.
- There is a principal in the state COMPLETE only. A state that expects the outcome of a step is
  FAILED until the outcome is there: an error in between fails the login.
- Who authenticates again (KIP-368) does so by the same mechanism and as the same principal, at most
  once in `REAUTHENTICATION_MIN_S`. After the end of a session nothing is served.
- A failed login is answered late (`connection.failed.authentication.delay.ms`), and closes.

Kafka answers a changed mechanism with nothing at all; here the client is told.

Limits: `message_bytes_max` for a message (`sasl.server.max.receive.size`, CVE-2022-34917; framing
has to hold it too), `API_VERSIONS_REFUSED_MAX`. The loop of the connection owns it; times are
handed in.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final, NamedTuple, TypeAlias

from penstock.auth.mechanism import Challenge, Done, Failed, Mechanism, Outcome, Work
from penstock.auth.principal import USER, Principal
from penstock.base.errors import ErrorCode
from penstock.wire.apis import ApiKey

MESSAGE_BYTES_MAX: Final = 524_288
FAILURE_DELAY_MS: Final = 100
REAUTHENTICATION_MIN_S: Final = 1.0
API_VERSIONS_REFUSED_MAX: Final = 16


class State(Enum):
    INITIAL = "initial"
    """Nothing but, maybe, ApiVersions in versions that are not served."""
    HANDSHAKE = "handshake"
    """After ApiVersions."""
    AUTHENTICATE = "authenticate"
    """Messages of the mechanism in SaslAuthenticate (after SaslHandshake 1)."""
    TOKENS = "tokens"
    """Messages of the mechanism as they are, without a header (after SaslHandshake 0)."""
    WORKING = "working"
    """Until the result of work is there."""
    OTHER_MECHANISM = "other mechanism"
    """Authenticating again began with another mechanism; it fails with the next message."""
    COMPLETE = "complete"
    FAILED = "failed"


class Moment(NamedTuple):
    wall_ms: int
    monotonic_s: float


class ApiVersions(NamedTuple):
    accepted: bool
    """Whether it is answered with versions, not with an error."""


class Handshake(NamedTuple):
    version: int
    mechanism: str


class Authenticate(NamedTuple):
    data: bytes

    def __repr__(self) -> str:
        return "Authenticate(...)"


class Token(NamedTuple):
    """A frame that is a message of the mechanism."""

    data: bytes

    def __repr__(self) -> str:
        return "Token(...)"


class WorkResult(NamedTuple):
    """What work has returned, or the error that it raised."""

    value: object

    def __repr__(self) -> str:
        return "WorkResult(...)"


Input: TypeAlias = ApiVersions | Handshake | Authenticate | Token | WorkResult


class Serve(NamedTuple):
    """The request is answered as any other."""


@dataclass(frozen=True, slots=True)
class Close:
    """Without an answer, after the delay."""

    reason: str
    delay_ms: int = 0


@dataclass(frozen=True, slots=True)
class Answer:
    code: ErrorCode = ErrorCode.NONE
    text: str | None = None
    data: bytes = field(default=b"", repr=False)
    lifetime_ms: int = 0
    """How long the session lasts; 0 for one without an end."""
    mechanisms: tuple[str, ...] = ()
    """In the answer to a handshake."""
    raw: bool = False
    """The data alone is the frame."""
    close: bool = False
    delay_ms: int = 0
    """How long it is held back."""
    reason: str | None = None
    """Why a login failed, for the log."""


Verdict: TypeAlias = Answer | Serve | Close | Work


@dataclass(frozen=True, slots=True)
class SaslSettings:
    max_reauth_ms: Mapping[str, int] = field(default_factory=dict)
    """`connections.max.reauth.ms` by mechanism; none or 0: sessions have no end by it."""
    failure_delay_ms: int = FAILURE_DELAY_MS
    message_bytes_max: int = MESSAGE_BYTES_MAX


class SaslConnection:
    def __init__(
        self,
        mechanisms: Mapping[str, Callable[[], Mechanism]],
        host: str,
        settings: SaslSettings | None = None,
    ) -> None:
        """`mechanisms`: by name, what makes the machine of one login, in the order of the answer.
        `host`: the client's address, part of its principal.
        """
        if not mechanisms:
            raise ValueError("no SASL mechanism is enabled")
        self.state = State.INITIAL
        self._mechanisms = mechanisms
        self._host = host
        self._settings = settings or SaslSettings()
        self._api_versions_refused = 0
        self._name = ""
        self.claimed = ""
        """The name that was given in a login that has failed."""
        self._mechanism: Mechanism | None = None
        self._waiting = State.AUTHENTICATE
        self._principal: Principal | None = None
        self._session_ends_s: float | None = None
        self._reauthentication_began_s: float | None = None

    @property
    def principal(self) -> Principal | None:
        return self._principal if self.state is State.COMPLETE else None

    @property
    def mechanism(self) -> str:
        """Its name; empty before the handshake."""
        return self._name

    @property
    def raw(self) -> bool:
        """Whether the next frame is a message of the mechanism, without a header."""
        return self._waiting is State.TOKENS and self.state in (
            State.TOKENS,
            State.OTHER_MECHANISM,
        )

    def serves(self, api_key: int, monotonic_s: float) -> bool:
        """Whether a request goes the way of all requests. If not, and it is `legal`, it is decoded
        for `take`; else the connection is to be closed.
        """
        return (
            self.state is State.COMPLETE and api_key not in _OURS and not self.expired(monotonic_s)
        )

    @property
    def has_end(self) -> bool:
        """Whether the session ends, so that the client has to authenticate again."""
        return self._session_ends_s is not None

    def expired(self, monotonic_s: float) -> bool:
        return self._session_ends_s is not None and monotonic_s > self._session_ends_s

    def legal(self, api_key: int) -> bool:
        kind = _INPUT_OF_KEY.get(api_key)
        return kind is not None and kind in _TABLE[self.state]

    def take(self, given: Input, at: Moment) -> Verdict:
        act = _TABLE[self.state].get(type(given))
        if act is None:
            state, self.state = self.state, State.FAILED
            return Close(f"{type(given).__name__} is not legal in the state {state.value}")
        return act(self, given, at)

    # What the table names

    def _api_versions(self, given: ApiVersions, at: Moment) -> Verdict:
        if given.accepted:
            self.state = State.HANDSHAKE
            return Serve()
        self._api_versions_refused += 1
        if self._api_versions_refused > API_VERSIONS_REFUSED_MAX:
            self.state = State.FAILED
            return Close("too many requests for ApiVersions in versions that are not served")
        return Serve()

    def _handshake(self, given: Handshake, at: Moment) -> Verdict:
        names = tuple(self._mechanisms)
        self._waiting = State.TOKENS if given.version == 0 else State.AUTHENTICATE
        make = self._mechanisms.get(given.mechanism)
        if make is None:
            self.state = State.FAILED
            return Answer(
                ErrorCode.UNSUPPORTED_SASL_MECHANISM,
                mechanisms=names,
                close=True,
                delay_ms=self._settings.failure_delay_ms,
                reason="the mechanism is not enabled",
            )
        if self._principal is not None and given.mechanism != self._name:
            self.state = State.OTHER_MECHANISM
        else:
            self.state = self._waiting
            self._name = given.mechanism
            self._mechanism = make()
        return Answer(mechanisms=names)

    def _handshake_again(self, given: Handshake, at: Moment) -> Verdict:
        """Without an end of the session there is nothing to renew."""
        began = self._reauthentication_began_s
        too_soon = began is not None and at.monotonic_s - began < REAUTHENTICATION_MIN_S
        if self._session_ends_s is None or too_soon:
            return self._authenticated_already(given, at)
        self._reauthentication_began_s = at.monotonic_s
        return self._handshake(given, at)

    def _authenticated_already(self, given: Input, at: Moment) -> Verdict:
        if self.expired(at.monotonic_s):
            self.state = State.FAILED
            return Close("the session has ended")
        return Answer(
            ErrorCode.ILLEGAL_SASL_STATE, "The connection is authenticated: go on with requests"
        )

    def _api_versions_again(self, given: ApiVersions, at: Moment) -> Verdict:
        if self.expired(at.monotonic_s):
            self.state = State.FAILED
            return Close("the session has ended")
        return Serve()

    def _out_of_order(self, given: Input, at: Moment) -> Verdict:
        self.state = State.FAILED
        return Answer(
            ErrorCode.ILLEGAL_SASL_STATE,
            "SaslAuthenticate is expected after SaslHandshake",
            close=True,
            delay_ms=self._settings.failure_delay_ms,
            reason=f"{type(given).__name__} instead of SaslAuthenticate",
        )

    def _message(self, given: Authenticate | Token, at: Moment) -> Verdict:
        self.state = State.FAILED
        if self._mechanism is None or len(given.data) > self._settings.message_bytes_max:
            return self._fail(
                Failed(f"a message of more than {self._settings.message_bytes_max} bytes")
            )
        outcome = self._mechanism.step(given.data, at.wall_ms)
        if isinstance(outcome, Work):
            self.state = State.WORKING
            return outcome
        return self._settle(outcome, at)

    def _result(self, given: WorkResult, at: Moment) -> Verdict:
        self.state = State.FAILED
        if self._mechanism is None or isinstance(given.value, BaseException):
            return self._fail(Failed(f"the check broke off ({type(given.value).__name__})"))
        return self._settle(self._mechanism.resume(given.value, at.wall_ms), at)

    def _other_mechanism(self, given: Authenticate | Token, at: Moment) -> Verdict:
        text = f"Re-authentication failed: it must be by the mechanism {self._name} again"
        return self._fail(Failed("another mechanism", text))

    def _settle(self, outcome: Outcome, at: Moment) -> Verdict:
        raw = self._waiting is State.TOKENS
        if isinstance(outcome, Failed):
            return self._fail(outcome)
        if isinstance(outcome, Challenge):
            self.state = self._waiting
            return Answer(data=outcome.data, raw=raw)
        before = self._principal
        principal = Principal(
            USER,
            outcome.name,
            self._host,
            token_authenticated=outcome.token_authenticated,
            roles=outcome.roles,
        )
        if before is not None and before.text != principal.text:
            text = f"Re-authentication failed: the principal was {before}, and is {principal} now"
            return self._fail(Failed("another principal", text))
        lifetime_ms = self._begin_session(outcome, at)
        self._principal = principal
        self._mechanism = None
        self.state = State.COMPLETE
        return Answer(data=outcome.data, lifetime_ms=lifetime_ms, raw=raw)

    def _begin_session(self, done: Done, at: Moment) -> int:
        """How long it lasts, in milliseconds; 0 if it has no end, or ends at once."""
        ends = []
        if done.expires_at_ms is not None:
            ends.append(done.expires_at_ms - at.wall_ms)
        if (max_reauth_ms := self._settings.max_reauth_ms.get(self._name, 0)) > 0:
            ends.append(max_reauth_ms)
        if not ends:
            self._session_ends_s = None
            return 0
        lifetime_ms = max(0, min(ends))
        self._session_ends_s = at.monotonic_s + lifetime_ms / 1000
        return lifetime_ms

    def _fail(self, failed: Failed) -> Answer | Close:
        """A client that sends raw messages can be told nothing."""
        self.state = State.FAILED
        if self._mechanism is not None:
            self.claimed = self._mechanism.claimed
        self._mechanism = None
        delay_ms = self._settings.failure_delay_ms
        if self._waiting is State.TOKENS:
            return Close(failed.reason, delay_ms)
        what = "Authentication" if self._principal is None else "Re-authentication"
        return Answer(
            ErrorCode.SASL_AUTHENTICATION_FAILED,
            failed.text or f"{what} failed: invalid credentials for the mechanism {self._name}",
            close=True,
            delay_ms=delay_ms,
            reason=failed.reason,
        )


_INPUT_OF_KEY: Final[Mapping[int, type[Input]]] = {
    ApiKey.API_VERSIONS: ApiVersions,
    ApiKey.SASL_HANDSHAKE: Handshake,
    ApiKey.SASL_AUTHENTICATE: Authenticate,
}
_OURS: Final = frozenset({ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE})
_Act: TypeAlias = Callable[[SaslConnection, Any, Moment], Verdict]
_TABLE: Final[Mapping[State, Mapping[type[Input], _Act]]] = {
    State.INITIAL: {
        ApiVersions: SaslConnection._api_versions,
        Handshake: SaslConnection._handshake,
    },
    State.HANDSHAKE: {Handshake: SaslConnection._handshake},
    State.AUTHENTICATE: {
        ApiVersions: SaslConnection._out_of_order,
        Handshake: SaslConnection._out_of_order,
        Authenticate: SaslConnection._message,
    },
    State.TOKENS: {Token: SaslConnection._message},
    State.WORKING: {WorkResult: SaslConnection._result},
    State.OTHER_MECHANISM: {
        Authenticate: SaslConnection._other_mechanism,
        Token: SaslConnection._other_mechanism,
    },
    State.COMPLETE: {
        ApiVersions: SaslConnection._api_versions_again,
        Handshake: SaslConnection._handshake_again,
        Authenticate: SaslConnection._authenticated_already,
    },
    State.FAILED: {},
}
