"""The load of a share group upon a node that runs already, for `bench.profile`.

    python -m bench.share_load --bootstrap 127.0.0.1:9092 --seconds 10 --consumers 8 --one

A topic is filled once. One group after the other consumes it, with the requests and the checks of
`bench.peers`, so that nothing is published meanwhile.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import ClassVar

from bench.peers.queue_wire import BY_DEFAULT, ONE, QueueWire
from bench.peers.queues import consume
from bench.peers.server import Server
from bench.peers.share_queue import ShareQueue
from bench.peers.wire import PeerError, Wire

SIZE = 100
PER_BATCH = 100
MESSAGES = 300_000
MESSAGES_ONE = 10_000
CASE_S_MAX = 30.0


class RunningNode(Server):
    """A node of somebody else's: nothing of it but its address is known."""

    name: ClassVar[str] = "the node"

    def __init__(self, bootstrap: str) -> None:
        super().__init__(Path())
        self.host, _, port = bootstrap.rpartition(":")
        self.port = int(port)
        self.queue = ShareQueue(self.host, self.port)

    @classmethod
    def missing(cls) -> str | None:
        return None

    @classmethod
    def version(cls) -> str:
        return ""

    @property
    def durability(self) -> str:
        return ""

    def command(self) -> list[str]:
        raise PeerError("it runs already")

    def answers(self) -> bool:
        return True

    def new_queue_wire(self) -> QueueWire:
        return self.queue

    def wire(self) -> Wire:
        raise PeerError("it is loaded as a queue")

    def cpu_seconds(self) -> float:
        return 0.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bootstrap", required=True, help="HOST:PORT of the node")
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--consumers", type=int, default=8)
    parser.add_argument("--one", action="store_true", help="one message at a time")
    options = parser.parse_args()
    node = RunningNode(options.bootstrap)
    queue = node.queue
    asking = ONE if options.one else BY_DEFAULT
    deadline = time.monotonic() + options.seconds
    topic = "share-load"
    queue.make(topic)
    filled = queue.fill(
        topic,
        MESSAGES_ONE if options.one else MESSAGES,
        size=SIZE,
        per_batch=1 if options.one else PER_BATCH,
    )
    while time.monotonic() < deadline:
        consume(node, topic, filled, consumers=options.consumers, asking=asking, seconds=CASE_S_MAX)
        queue.begin_again(topic)


if __name__ == "__main__":
    main()
