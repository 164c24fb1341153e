"""The table of served APIs, filled by the decorators of the handlers.

Two kinds of handlers:
* `@handler(Request, Response)`: takes the decoded request, returns (or awaits) the response
  message. One that does something for each of many elements may be a generator, which stops after
  each of them and returns the response: if the request has more than `at_once_max`, others run in
  between. `on_controller=True` marks what the active controller decides (`api.controller`): only
  such requests may come in an Envelope.
* `@raw_handler(...)`: Produce and Fetch, which bring their own codecs and answer through the
  exchange.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeAlias, TypeVar

from penstock.auth.principal import Principal
from penstock.base.errors import invariant
from penstock.base.steps import Steps
from penstock.net.connection import Connection
from penstock.net.exchange import Exchange
from penstock.serving.services import Services
from penstock.wire import apis as wire_apis
from penstock.wire.apis import ApiKey
from penstock.wire.schema import Message

DECODED_AT_ONCE_BYTES_MAX: Final = 32 * 1024
"""If its elements have ten bytes each, decoding them takes two milliseconds."""
ELEMENTS_AT_ONCE_MAX = 500
"""To do something quick for so many elements, or to encode them, takes a few milliseconds."""
LOGS_AT_ONCE_MAX = 20
"""For partitions whose logs may have to be opened, which takes half a millisecond each."""

Q = TypeVar("Q", bound=Message)
R = TypeVar("R", bound=Message)


@dataclass(frozen=True, slots=True)
class Request(Generic[Q]):
    """A decoded request and where it came from."""

    body: Q
    api_key: int
    version: int
    client_id: str | None
    listener: str
    connection: Connection
    """The one it came by: the client's, or that of the broker that passed it on."""
    principal: Principal
    forwarded: bool = False
    """It came in an envelope: this node was taken for the active controller."""


Handler: TypeAlias = Callable[[Services, Request[Q]], R | Awaitable[R] | Steps[R]]
RawHandler: TypeAlias = Callable[[Services, Exchange, memoryview, int], None]


@dataclass(frozen=True, slots=True)
class Api:
    """One served API; exactly one of `handle` and `handle_raw` is set."""

    key: ApiKey
    versions: range
    flexible_from: int | None
    request: type[Message]
    response: type[Message]
    handle: Callable[[Services, Request[Any]], Any] | None = None
    handle_raw: RawHandler | None = None
    on_controller: bool = False
    at_once_max: int = ELEMENTS_AT_ONCE_MAX


APIS: dict[int, Api] = {}


def handler(
    request: type[Q],
    response: type[R],
    *,
    on_controller: bool = False,
    at_once_max: int = ELEMENTS_AT_ONCE_MAX,
) -> Callable[[Handler[Q, R]], Handler[Q, R]]:
    """Serve `request` in all its versions by the decorated function."""

    def register(function: Handler[Q, R]) -> Handler[Q, R]:
        _add(
            request,
            response,
            handle=function,
            on_controller=on_controller,
            at_once_max=at_once_max,
        )
        return function

    return register


def raw_handler(
    request: type[Message], response: type[Message]
) -> Callable[[RawHandler], RawHandler]:
    def register(function: RawHandler) -> RawHandler:
        _add(request, response, handle_raw=function)
        return function

    return register


def _add(
    request: type[Message],
    response: type[Message],
    *,
    handle: Callable[[Services, Request[Any]], Any] | None = None,
    handle_raw: RawHandler | None = None,
    on_controller: bool = False,
    at_once_max: int = ELEMENTS_AT_ONCE_MAX,
) -> None:
    assert request.API_KEY is not None
    key = ApiKey(request.API_KEY)
    invariant(key not in APIS, f"{key.name} is registered twice")
    # A version that Kafka has not released yet is not offered.
    versions = wire_apis.APIS[key].stable_versions
    APIS[key] = Api(
        key,
        versions,
        request.FLEXIBLE_FROM,
        request,
        response,
        handle,
        handle_raw,
        on_controller,
        at_once_max,
    )
