"""How the door of Kafka's protocol counts what its clients use, and makes them wait.

A client that is over a quota gets its answer at once, with the time that it has to wait; its
connection is muted for that time, whether its version of the protocol knows of it or not (KIP-219).
Owned by the event loop's thread.
"""

from __future__ import annotations

from collections.abc import Coroutine, Generator
from typing import Any, Final

from penstock.auth.usage import Usage
from penstock.net.connection import Connection
from penstock.net.exchange import Exchange
from penstock.wire.apis import APIS, ApiKey
from penstock.wire.schema import Message

UNMETERED: Final = frozenset(
    {key for key, api in APIS.items() if api.listener == "controller"}
    | {
        ApiKey.WRITE_TXN_MARKERS,
        ApiKey.ADD_RAFT_VOTER,
        ApiKey.REMOVE_RAFT_VOTER,
        ApiKey.DESCRIBE_QUORUM,
    }
)
"""What nodes ask of each other: the cluster must not wait for a quota."""
_BROKERS_FROM: Final = 4
"""The first version of AddPartitionsToTxn that only nodes use."""
_MS_PER_S: Final = 1000


def is_metered(api_key: int, version: int) -> bool:
    """Whether a request is of a client, who may have to wait for its quotas."""
    of_nodes = api_key == ApiKey.ADD_PARTITIONS_TO_TXN and version >= _BROKERS_FROM
    return api_key not in UNMETERED and not of_nodes


def mute(connection: Connection, ms: int) -> None:
    """Take nothing more from the client for so long; to be called before the answer is given."""
    connection.mute(ms / _MS_PER_S)


def throttle(exchange: Exchange, response: Message) -> None:
    """Have the client wait after `response` if it has used more of the loop's time than it may."""
    assert exchange.usage is not None
    ms = exchange.usage.requested()
    if ms:
        mute(exchange.connection, ms)
        of_controller: int = getattr(response, "throttle_time_ms", ms)
        if of_controller < ms:
            response.throttle_time_ms = ms  # type: ignore[attr-defined]


class Timed(Coroutine[Any, Any, None]):
    """Work in several steps, each of which counts as that of a request."""

    __slots__ = ("_usage", "_work")

    def __init__(self, usage: Usage, work: Coroutine[Any, Any, None]) -> None:
        self._usage = usage
        self._work = work

    def send(self, value: Any) -> Any:
        return self._usage.timed(self._work.send, value)

    def throw(self, *error: Any) -> Any:
        return self._usage.timed(self._work.throw, *error)

    def close(self) -> None:
        self._work.close()

    def __await__(self) -> Generator[Any, Any, None]:
        return (yield from self._work.__await__())
