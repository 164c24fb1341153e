"""The server's machine of OAUTHBEARER (RFC 7628): a bearer token in the client's first message.

Duty: the message, and what follows from the verdict about its token. The verdict is that of
`jwt.JwtValidator`, which is not imported here, so that nodes without OAUTHBEARER do not load it.

Invariants: a token is believed only if the validator returns a `BearerToken`. An invalid one is
answered with an error in JSON; whatever the client sends then, the login fails. The authorization
id is empty or the token's principal. A token is in no `repr` and in no text.

Limits: `MESSAGE_BYTES_MAX` for the message, `EXTENSIONS_MAX` for what comes with the token; Kafka's
own brokers do not use those extensions, nor does a node.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Final, TypeAlias

from penstock.auth import scram
from penstock.auth.mechanism import Challenge, Done, Failed, Outcome, Work

OAUTHBEARER: Final = "OAUTHBEARER"
MESSAGE_BYTES_MAX: Final = 131_072
EXTENSIONS_MAX: Final = 64
INVALID_TOKEN: Final = '{"status":"invalid_token"}'
"""What the client is told of every token that is not believed, as Kafka tells it."""

_SEPARATOR = "\x01"
_HEADER = re.compile(r"n,(?:a=(?P<id>[^,\x00\x01]+))?,")
_PAIR = re.compile(r"(?P<key>[A-Za-z]+)=(?P<value>[\x21-\x7e \t\r\n]+)")
_AUTH = re.compile(r"(?P<scheme>\w+) +(?P<token>[-_~+/.a-zA-Z0-9]+=*)", re.ASCII)


@dataclass(frozen=True, slots=True)
class BearerToken:
    """What a valid token says."""

    principal: str
    expires_at_ms: int
    scopes: frozenset[str] = frozenset()
    roles: frozenset[str] = frozenset()


class InvalidToken(Exception):
    """A token that is not believed; the text says why, for the log, and shows nothing of it."""


class BearerError(Exception):
    """A message that is not one of OAUTHBEARER's."""


Validate: TypeAlias = Callable[[str, int], BearerToken]
"""A token and the time of the wall clock in milliseconds; raises `InvalidToken`."""


@dataclass(frozen=True, slots=True)
class InitialResponse:
    authorization_id: str
    token: str = field(repr=False)


def parse_initial_response(message: bytes) -> InitialResponse:
    """`n,[a=name],^Aauth=Bearer token^A[key=value^A]...^A`."""
    if len(message) > MESSAGE_BYTES_MAX:
        raise BearerError(f"it has more than {MESSAGE_BYTES_MAX} bytes")
    try:
        text = message.decode()
    except UnicodeDecodeError:
        raise BearerError("it is no text") from None
    header, *pairs = text.split(_SEPARATOR, EXTENSIONS_MAX + 4)
    found = _HEADER.fullmatch(header)
    if found is None or pairs[-2:] != ["", ""]:
        raise BearerError("it does not begin or end as it must")
    token = _token(_values(pairs[:-2]))
    if found["id"] is None:
        return InitialResponse("", token)
    try:
        return InitialResponse(scram.unescaped(found["id"]), token)
    except scram.ScramError:
        raise BearerError("its authorization id is not written as it must be") from None


def _values(pairs: list[str]) -> dict[str, str]:
    if len(pairs) > EXTENSIONS_MAX + 1:
        raise BearerError(f"it has more than {EXTENSIONS_MAX} extensions")
    values: dict[str, str] = {}
    for pair in pairs:
        found = _PAIR.fullmatch(pair)
        if found is None or found["key"] in values:
            raise BearerError("it has a part that is not key=value, or a key twice")
        values[found["key"]] = found["value"]
    return values


def _token(values: dict[str, str]) -> str:
    found = _AUTH.fullmatch(values.get("auth", ""))
    if found is None or found["scheme"].lower() != "bearer":
        raise BearerError("it has no bearer token")
    return found["token"]


class OAuthBearerServer:
    """One login."""

    claimed = ""  # only a token that is believed names somebody

    def __init__(self, validate: Validate) -> None:
        self._validate = validate
        self._response: InitialResponse | None = None
        self._reason = "the login is over"

    def step(self, message: bytes, now_ms: int) -> Outcome | Work:
        if self._response is not None:
            return Failed(self._reason, INVALID_TOKEN)
        try:
            self._response = parse_initial_response(message)
        except BearerError as e:
            return Failed(f"the client sent no message of OAUTHBEARER: {e}")
        return Work(partial(_verdict, self._validate, self._response.token, now_ms))

    def resume(self, result: object, now_ms: int) -> Outcome:
        if self._response is None or not isinstance(result, BearerToken):
            self._reason = f"the token is invalid: {result}"
            return Challenge(INVALID_TOKEN.encode())
        if self._response.authorization_id not in ("", result.principal):
            return Failed(
                "another authorization id",
                "Authentication failed: the authorization id is not the principal of the token",
            )
        return Done(result.principal, b"", result.expires_at_ms, roles=result.roles)


def _verdict(validate: Validate, token: str, now_ms: int) -> BearerToken | str:
    """What the token says, or why it is not believed."""
    try:
        return validate(token, now_ms)
    except InvalidToken as e:
        return str(e)
