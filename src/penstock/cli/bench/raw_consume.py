"""Raw fetch load: one partition is read from its start to its end, over and over, on some
connections.

Of what comes back only the batch headers are read, to know how many messages there are and
where to go on.
"""

from __future__ import annotations

import select
import time

from penstock.cli.bench.requests import FetchFrame, count_records, fetched_records
from penstock.cli.bench.sockets import CLIENT, FrameSocket
from penstock.kafka.client import Address, Client

POLL_S = 0.1
MAX_WAIT_MS = 500


class _Fetcher:
    """One connection with one request in flight, as clients keep it."""

    __slots__ = ("correlation_id", "offset", "request", "socket")

    def __init__(self, socket: FrameSocket, request: FetchFrame, offset: int) -> None:
        self.socket = socket
        self.request = request
        self.offset = offset
        self.correlation_id = 0

    def send(self) -> None:
        self.correlation_id += 1
        self.socket.send(self.request.at(self.offset, self.correlation_id))


class FetchLoad:
    """Reads offsets `start` to `end` of one partition round and round."""

    def __init__(
        self,
        address: Address,
        topic: str,
        *,
        start: int,
        end: int,
        max_bytes: int,
        connections: int,
        client: Client = CLIENT,
    ) -> None:
        self.requests = self.messages = self.bytes = 0
        self._start = start
        self._end = end
        self._epoll = select.epoll()
        fetchers = [
            _Fetcher(
                FrameSocket(address, self._epoll, client),
                FetchFrame(topic, 0, max_bytes, MAX_WAIT_MS),
                start,
            )
            for _ in range(connections)
        ]
        self._fetchers = {fetcher.socket.fd: fetcher for fetcher in fetchers}
        for fetcher in fetchers:
            fetcher.send()

    def run(self, seconds: float) -> float:
        """Load for so long; the seconds it took in fact."""
        self.requests = self.messages = self.bytes = 0
        started = time.perf_counter()
        deadline = started + seconds
        while time.perf_counter() < deadline:
            for fd, _ in self._epoll.poll(POLL_S):
                self._receive(self._fetchers[fd])
        return time.perf_counter() - started

    def finish(self) -> None:
        for fetcher in self._fetchers.values():
            fetcher.socket.close()
        self._epoll.close()

    def _receive(self, fetcher: _Fetcher) -> None:
        for answer in fetcher.socket.receive():
            records = fetched_records(answer)
            count, next_offset = count_records(records)
            self.requests += 1
            self.messages += count
            self.bytes += len(records)
            fetcher.offset = next_offset if 0 <= next_offset < self._end else self._start
            fetcher.send()
