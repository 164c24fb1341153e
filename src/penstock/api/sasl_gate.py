"""The way in by a listener with SASL: nothing passes before its connection is authenticated.

The gate is the handler of such a listener, in front of the dispatcher. Until a login is complete it
decodes three small requests and no others, or the raw messages of a mechanism (SaslHandshake 0);
what `auth.sasl` says of them is answered. A connection whose session has no end is then handed to
the dispatcher for good; for one that has to authenticate again the gate looks at every request.

Work that takes long (hashing a password, verifying a signature) is done by a thread, for at most
`LOGINS_WAITING_MAX` connections at a time; one more is closed, so that its client comes again. The
thread rests after each as long as it has worked, so that it takes half a core at most, and is less
likely to be interrupted while it holds the interpreter's lock, which the loop waits for.
What fails is answered late, and closes; while the node starts it is not answered, since the user
may not be known yet. Owned by the event loop's thread.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from time import monotonic_ns, sleep, thread_time
from typing import Final

from penstock.api.dispatcher import Dispatcher
from penstock.api.frames import UNKNOWN_VERSION, BadHeader, encode_response, read_header
from penstock.auth.mechanism import Work
from penstock.auth.sasl import (
    Answer,
    ApiVersions,
    Authenticate,
    Close,
    Handshake,
    Input,
    Moment,
    SaslConnection,
    Serve,
    Token,
    Verdict,
    WorkResult,
)
from penstock.base.errors import ApiError
from penstock.net.connection import Connection
from penstock.net.exchange import Exchange
from penstock.observe.logs import Alarm
from penstock.wire.apis import ApiKey
from penstock.wire.errors import WireError
from penstock.wire.messages.api_versions import ApiVersionsResponse
from penstock.wire.messages.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from penstock.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from penstock.wire.schema import Message

log = logging.getLogger("penstock.api")

LOGINS_WAITING_MAX: Final = 1_000
REST_S_MAX: Final = 0.02
_LENGTH_BYTES: Final = 4


class LoginWork:
    """The thread in which logins are checked; one object for all listeners of a node."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._threads = ThreadPoolExecutor(1, thread_name_prefix="login")
        self.waiting = 0

    def begin(self, work: Work, done: Callable[[WorkResult], None]) -> bool:
        """Have `done` called with what the work returned, or the error that it raised; False, and
        nothing is done, if too much is under way.
        """
        if self.waiting >= LOGINS_WAITING_MAX:
            return False
        self.waiting += 1
        future = self._loop.run_in_executor(self._threads, _work_and_rest, work)
        future.add_done_callback(lambda ended: self._ended(ended, done))
        return True

    def _ended(self, ended: asyncio.Future[object], done: Callable[[WorkResult], None]) -> None:
        self.waiting -= 1
        if ended.cancelled():
            return
        error = ended.exception()
        done(WorkResult(ended.result() if error is None else error))

    def stop(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)


def _work_and_rest(work: Work) -> object:
    began_s = thread_time()
    try:
        return work.run()
    finally:
        sleep(min(thread_time() - began_s, REST_S_MAX))


class SaslGate:
    def __init__(
        self,
        dispatcher: Dispatcher,
        new_login: Callable[[str], SaslConnection],
        work: LoginWork,
        now_ms: Callable[[], int],
    ) -> None:
        """`new_login` makes the machine of a connection from an address."""
        self._dispatcher = dispatcher
        self._new_login = new_login
        self._work = work
        self._now_ms = now_ms
        self._loop = asyncio.get_running_loop()
        self._alarm = Alarm(log)
        self.failures = 0
        self.successes = 0

    def __call__(self, connection: Connection, frame: memoryview, received_ns: int) -> None:
        login = connection.login
        if not isinstance(login, SaslConnection):
            login = connection.login = self._new_login(connection.peer_host)
        if login.raw:
            exchange = Exchange(connection, ApiKey.SASL_AUTHENTICATE, 0, 0, received_ns)
            self._follow(exchange, login, login.take(Token(bytes(frame)), self._moment()))
            return
        key = int.from_bytes(frame[:2])
        if login.serves(key, received_ns / 1e9):
            self._dispatcher(connection, frame, received_ns)
        elif login.legal(key):
            self._decode(connection, login, frame, received_ns)
        else:
            connection.refuse("a request before it is authenticated, or after its session")

    def _decode(
        self, connection: Connection, login: SaslConnection, frame: memoryview, received_ns: int
    ) -> None:
        try:
            api, version, correlation_id, position = read_header(frame)
            given: Input
            if api.key == ApiKey.API_VERSIONS:
                given = ApiVersions(version != UNKNOWN_VERSION)
            else:
                body, _ = api.request.decode_from(frame, position, version)
                given = _input(body, version)
        except (BadHeader, WireError) as e:
            connection.refuse(str(e))
            return
        verdict = login.take(given, self._moment())
        if isinstance(verdict, Serve):
            self._dispatcher(connection, frame, received_ns)
        else:
            answered = max(version, 0)  # an unknown version of ApiVersions is answered in its first
            exchange = Exchange(connection, api.key, answered, correlation_id, received_ns)
            self._follow(exchange, login, verdict)

    def _follow(self, exchange: Exchange, login: SaslConnection, verdict: Verdict) -> None:
        if isinstance(verdict, Work):
            exchange.park()
            if not self._work.begin(verdict, lambda got: self._resume(exchange, login, got)):
                exchange.connection.refuse("too many logins are under way")
        else:
            self._carry_out(exchange, login, verdict)

    def _resume(self, exchange: Exchange, login: SaslConnection, result: WorkResult) -> None:
        if exchange in exchange.connection.pending:  # the connection has not ended meanwhile
            self._carry_out(exchange, login, login.take(result, self._moment()))

    def _carry_out(self, exchange: Exchange, login: SaslConnection, verdict: Verdict) -> None:
        connection = exchange.connection
        if isinstance(verdict, Close) or (isinstance(verdict, Answer) and verdict.close):
            self._failed(connection, login, verdict.reason or "")
            # While the node starts the user may not be known yet: without an answer the client
            # comes again.
            told = isinstance(verdict, Answer) and self._dispatcher.is_open
            end = partial(_answer_and_close, exchange, verdict) if told else connection.abort
            self._loop.call_later(verdict.delay_ms / 1000, end)
            return
        assert isinstance(verdict, Answer)
        principal = login.principal
        if principal is not None and verdict.code == 0:
            try:
                self._complete(connection, login)
            except ApiError as e:
                connection.refuse(e.message)
                return
        exchange.finish(_encoded(exchange, verdict))

    def _complete(self, connection: Connection, login: SaslConnection) -> None:
        """`ApiError` if nobody is let in, since it could not be audited."""
        assert login.principal is not None
        audit = self._dispatcher.audit
        if audit is not None:
            audit.require_login(login.principal)
            audit.login(login.principal, connection.listener, login.mechanism)
        self.successes += 1
        if login.has_end:
            connection.authenticated(login.principal)
        else:
            connection.authenticated(login.principal, self._dispatcher)

    def _failed(self, connection: Connection, login: SaslConnection, reason: str) -> None:
        self.failures += 1
        audit = self._dispatcher.audit
        if audit is not None:
            name, host = connection.listener, connection.peer_host
            audit.login_failed(login.claimed, host, name, login.mechanism, reason)
        self._alarm.raised(
            connection.peer_host, "a login failed", client=connection.peer_host, reason=reason
        )

    def _moment(self) -> Moment:
        return Moment(self._now_ms(), monotonic_ns() / 1e9)


def _input(body: Message, version: int) -> Input:
    if isinstance(body, SaslHandshakeRequest):
        return Handshake(version, body.mechanism)
    assert isinstance(body, SaslAuthenticateRequest)
    return Authenticate(body.auth_bytes)


def _answer_and_close(exchange: Exchange, verdict: Verdict) -> None:
    assert isinstance(verdict, Answer)
    exchange.finish(_encoded(exchange, verdict))
    exchange.connection.close_when_answered()


def _encoded(exchange: Exchange, verdict: Answer) -> bytes:
    if verdict.raw:
        return len(verdict.data).to_bytes(_LENGTH_BYTES) + verdict.data
    response: Message
    if exchange.api_key == ApiKey.API_VERSIONS:
        response = ApiVersionsResponse(error_code=verdict.code)
    elif exchange.api_key == ApiKey.SASL_HANDSHAKE:
        response = SaslHandshakeResponse(
            error_code=verdict.code, mechanisms=list(verdict.mechanisms)
        )
    else:
        response = SaslAuthenticateResponse(
            error_code=verdict.code,
            error_message=verdict.text,
            auth_bytes=verdict.data,
            session_lifetime_ms=verdict.lifetime_ms,
        )
    return encode_response(exchange.api_key, exchange.version, exchange.correlation_id, response)
