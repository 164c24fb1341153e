"""A cluster's brokers: blocking requests to leaders and coordinators, found and found again.

Duty: one connection per address, kept for the process's next task; the leaders of topics, the
coordinators of groups and transactional ids, and waiting while one of them moves. It is for what
client libraries have no call for. Spark's sink ends a transaction in another process than the one
that wrote it, with a producer id and epoch that libraries keep to themselves.

Invariants: a connection carries one request at a time and is dropped with its first error, so an
answer is never taken for another's. A request to a coordinator is repeated only after an error that
says to come again, or when the connection broke; each of them may be repeated safely.

Limits: `settle_s` until an error that passes counts as lasting. Belongs to one thread.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Final, NamedTuple, TypeVar

from penstock.base.errors import ErrorCode
from penstock.kafka.client import Address, Client, failed, place
from penstock.kafka.connection import Connection, give_back, take
from penstock.kafka.errors import ClusterError
from penstock.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from penstock.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from penstock.wire.schema import Message

ROWS: Final = "-producer"
"""The end of the client id of connections for rows, which are their own: other questions are asked
while rows are on their way.
"""
RETRY_S: Final = 0.02
RETRY_S_MAX: Final = 0.5
METADATA_VERSION: Final = 9
FIND_COORDINATOR_VERSION: Final = 2
GROUP, TRANSACTION = 0, 1
"""What a coordinator can be looked for; the numbers are the protocol's."""

PASSING: Final = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.UNSTABLE_OFFSET_COMMIT,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NETWORK_EXCEPTION,
    }
)
"""What a coordinator says when the same request may soon be answered otherwise."""

_R = TypeVar("_R", bound=Message)


class Leaders(NamedTuple):
    """The leaders of one topic's partitions; None where there is none at the moment."""

    addresses: tuple[Address | None, ...]


class Patience:
    """Waits between attempts, longer each time, until `settle_s` are over."""

    def __init__(self, settle_s: float) -> None:
        self._deadline = time.monotonic() + settle_s
        self._pause = RETRY_S

    def wait(self) -> bool:
        """Whether there is time for another attempt; if so, the pause before it is over."""
        if time.monotonic() + self._pause > self._deadline:
            return False
        time.sleep(self._pause)
        self._pause = min(self._pause * 2, RETRY_S_MAX)
        return True


class Brokers:
    """A cluster's brokers, by address."""

    def __init__(
        self, bootstrap: Iterable[Address], settle_s: float, client: Client | None = None
    ) -> None:
        self.settle_s = settle_s
        self.known: tuple[Address, ...] = ()
        """The brokers that were there when a topic was last asked for."""
        self._bootstrap = tuple(bootstrap)
        self._client = client or Client()
        self._connections: dict[tuple[Address, str], Connection] = {}
        self._coordinators: dict[tuple[int, str], Address] = {}
        self._leaders: dict[str, Leaders] = {}

    def __enter__(self) -> Brokers:
        return self

    def __exit__(self, *_: object) -> None:
        for connection in self._connections.values():
            give_back(connection)
        self._connections.clear()

    @property
    def bootstrap(self) -> str:
        """The brokers that are asked first, as they are written."""
        return ",".join(map(place, self._bootstrap))

    def connection(self, address: Address, use: str = "") -> Connection:
        """The connection to a broker; those for `ROWS` are others than those for questions."""
        found = self._connections.get((address, use))
        if found is None:
            client = replace(self._client, client_id=self._client.client_id + use)
            found = self._connections[address, use] = take(address, client)
        return found

    def drop(self, address: Address, use: str = "") -> None:
        """Forget a connection that failed."""
        if (connection := self._connections.pop((address, use), None)) is not None:
            with contextlib.suppress(OSError):
                connection.close()

    def ask(self, address: Address, request: Message, answer: type[_R], version: int) -> _R:
        """The answer of one broker; a connection that fails is dropped."""
        try:
            return self.connection(address).call(request, answer, version)
        except OSError:
            self.drop(address)
            raise

    def metadata(self, topics: Iterable[str] | None) -> MetadataResponse:
        """What any broker knows of topics, None for all of them; notes which brokers there are."""
        named = None if topics is None else [MetadataRequestTopic(name=name) for name in topics]
        request = MetadataRequest(topics=named, allow_auto_topic_creation=False)
        answer = self.ask_anyone(request, MetadataResponse, METADATA_VERSION)
        self.known = tuple((b.host, b.port) for b in answer.brokers)
        return answer

    def leaders(self, topic: str, *, refresh: bool = False) -> Leaders:
        """Where a topic's partitions are written; an unknown topic is an error."""
        if not refresh and topic in self._leaders:
            return self._leaders[topic]
        patience = Patience(self.settle_s)
        while True:
            answer = self.metadata([topic])
            [found] = answer.topics
            code = ErrorCode(found.error_code)
            if code is ErrorCode.NONE and found.partitions:
                break
            if code is not ErrorCode.LEADER_NOT_AVAILABLE or not patience.wait():
                raise ClusterError(
                    f"cannot use topic {topic!r}: {code.name}; create the topic first, or"
                    " correct the name"
                )
        brokers = {b.node_id: (b.host, b.port) for b in answer.brokers}
        addresses: list[Address | None] = [None] * len(found.partitions)
        for partition in found.partitions:
            addresses[partition.partition_index] = brokers.get(partition.leader_id)
        leaders = self._leaders[topic] = Leaders(tuple(addresses))
        return leaders

    def ask_coordinator(
        self,
        kind: int,
        key: str,
        request: Message,
        answer: type[_R],
        version: int,
        codes: Callable[[_R], Iterable[int]],
    ) -> _R:
        """The coordinator's answer; errors that pass are waited out."""
        patience = Patience(self.settle_s)
        why = ""
        while True:
            address = self.coordinator(kind, key)
            try:
                got = self.ask(address, request, answer, version)
            except OSError as e:
                why = failed(address, e)
            else:
                passing = [c for c in map(ErrorCode, codes(got)) if c in PASSING]
                if not passing:
                    return got
                why = passing[0].name
            self._coordinators.pop((kind, key), None)
            if not patience.wait():
                name = type(request).__name__.removesuffix("Request")
                raise ClusterError(
                    f"{name} of {key!r} was not answered within {self.settle_s:.0f} s ({why}); look"
                    " at the broker's log and start again"
                )

    def coordinator(self, kind: int, key: str) -> Address:
        """Where a group or a transactional id is coordinated; that may take a moment to be."""
        if (known := self._coordinators.get((kind, key))) is not None:
            return known
        patience = Patience(self.settle_s)
        request = FindCoordinatorRequest(key=key, key_type=kind)
        while True:
            found = self.ask_anyone(request, FindCoordinatorResponse, FIND_COORDINATOR_VERSION)
            if not found.error_code:
                address = self._coordinators[kind, key] = found.host, found.port
                return address
            code = ErrorCode(found.error_code)
            if code not in PASSING or not patience.wait():
                raise ClusterError(f"{key!r} has no coordinator ({code.name}); look at the broker")

    def ask_anyone(self, request: Message, answer: type[_R], version: int) -> _R:
        """The answer of whichever broker answers."""
        patience = Patience(self.settle_s)
        while True:
            why = ""
            connected = [address for address, use in self._connections if not use]
            for address in dict.fromkeys([*connected, *self._bootstrap, *self.known]):
                try:
                    return self.ask(address, request, answer, version)
                except OSError as e:
                    why = failed(address, e)
            if not patience.wait():
                named = self._client.security.spelling.name("bootstrap.servers")
                raise ClusterError(
                    f"no broker answers ({why}); is {named} right, and does the cluster run?"
                )
