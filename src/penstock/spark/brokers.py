"""Brokers as the sink calls them: blocking requests to leaders and coordinators, found and found
again.

Duty: one connection per address, kept for the worker's next task; the leaders of topics, the
coordinators of groups and transactional ids, and waiting while one of them moves. What the sink
sends cannot be sent through a client library: a transaction that a task has written is ended by the
driver, with the task's producer id and epoch, which libraries keep to themselves.

Invariants: a connection carries one request at a time and is dropped with its first error, so an
answer is never taken for another's. A request to a coordinator is repeated only after an error that
says to come again, or when the connection broke; each of them may be repeated safely.

Limits: `settle_s` until an error that passes counts as lasting. Plain connections only. Belongs to
one thread.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple, TypeVar

from penstock.base.errors import ErrorCode
from penstock.spark.connection import Address, Connection, give_back, parse_addresses, take
from penstock.spark.errors import ClusterError
from penstock.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from penstock.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from penstock.wire.schema import Message

CLIENT_ID: Final = "penstock-spark"
PRODUCER_CLIENT_ID: Final = "penstock-spark-producer"
"""Rows have connections of their own: other questions are asked while rows are on their way."""
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

    def __init__(self, bootstrap: str, settle_s: float) -> None:
        self.settle_s = settle_s
        self._bootstrap = parse_addresses(bootstrap)
        self._connections: dict[tuple[Address, str], Connection] = {}
        self._coordinators: dict[tuple[int, str], Address] = {}
        self._leaders: dict[str, Leaders] = {}

    def __enter__(self) -> Brokers:
        return self

    def __exit__(self, *_: object) -> None:
        for connection in self._connections.values():
            give_back(connection)
        self._connections.clear()

    def connection(self, address: Address, client_id: str = CLIENT_ID) -> Connection:
        found = self._connections.get((address, client_id))
        if found is None:
            found = self._connections[address, client_id] = take(address, client_id)
        return found

    def drop(self, address: Address, client_id: str = CLIENT_ID) -> None:
        """Forget a connection that failed."""
        if (connection := self._connections.pop((address, client_id), None)) is not None:
            with contextlib.suppress(OSError):
                connection.close()

    def leaders(self, topic: str, *, refresh: bool = False) -> Leaders:
        """Where a topic's partitions are written; an unknown topic is an error."""
        if not refresh and topic in self._leaders:
            return self._leaders[topic]
        patience = Patience(self.settle_s)
        while True:
            answer = self.ask_anyone(_metadata_of(topic), MetadataResponse, METADATA_VERSION)
            [found] = answer.topics
            code = ErrorCode(found.error_code)
            if code is ErrorCode.NONE and found.partitions:
                break
            if code is not ErrorCode.LEADER_NOT_AVAILABLE or not patience.wait():
                raise ClusterError(
                    f"cannot write to topic {topic!r}: {code.name}; create the topic first, or"
                    " correct the option or column 'topic'"
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
            address = self._coordinator(kind, key)
            try:
                got = self.connection(address).call(request, answer, version)
            except OSError as e:
                self.drop(address)
                why = f"{address[0]}:{address[1]}: {e}"
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
                    " at the broker's log and start the query again: it goes on where it was"
                )

    def _coordinator(self, kind: int, key: str) -> Address:
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
            connected = [a for a, client_id in self._connections if client_id == CLIENT_ID]
            for address in [*connected, *self._bootstrap]:
                try:
                    return self.connection(address).call(request, answer, version)
                except OSError as e:
                    self.drop(address)
                    why = f"{address[0]}:{address[1]}: {(e.strerror or str(e)).lower()}"
            if not patience.wait():
                raise ClusterError(
                    f"no broker answers ({why}); is kafka.bootstrap.servers right, and does the"
                    " cluster run?"
                )


def _metadata_of(topic: str) -> MetadataRequest:
    return MetadataRequest(
        topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False
    )
