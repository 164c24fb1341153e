"""kill -9 at random moments under idempotent load: nothing lost, nothing doubled, order kept.

The moments come from a seed, which a failure prints; `PENSTOCK_KILL_SEED` repeats it.
`PENSTOCK_KILL_ROUNDS` makes the run longer (the suite does a few rounds).
"""

from __future__ import annotations

import os
import random
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Producer, TopicPartition

from support.helpers import NO_DUPLICATES, QUIET, consumer, make_topic, take
from support.process import BrokerProcess

SEED = int(os.environ.get("PENSTOCK_KILL_SEED", random.randrange(1 << 32)))
ROUNDS = int(os.environ.get("PENSTOCK_KILL_ROUNDS", "12"))
PRODUCERS = 3
PARTITIONS = 4
FLUSH_SECONDS_MAX = 60.0
ROUND_SECONDS_MAX = 30


class Load(threading.Thread):
    """One idempotent producer that keeps sending; it notes what was acknowledged, and where."""

    def __init__(self, number: int, bootstrap: str, topic: str, codec: str) -> None:
        super().__init__(daemon=True)
        self.number = number
        self.topic = topic
        self.sent = 0
        self.failed: list[str] = []
        self.acked: dict[tuple[int, int], bytes] = {}
        self.done = threading.Event()
        self._client = Producer(
            {
                "bootstrap.servers": bootstrap,
                "acks": "all",
                "compression.codec": codec,
                "linger.ms": 3,
                "batch.num.messages": 50,
                "reconnect.backoff.ms": 20,
                "reconnect.backoff.max.ms": 200,
                "retry.backoff.ms": 20,
                "queue.buffering.max.messages": 5000,
                **NO_DUPLICATES,
                **QUIET,
            }
        )

    def _answered(self, error: Any, message: Any) -> None:
        if error is not None:
            self.failed.append(str(error))
            return
        place = (message.partition(), message.offset())
        if place in self.acked:
            self.failed.append(f"{place} was acknowledged twice")
        self.acked[place] = message.value()

    def run(self) -> None:
        while not self.done.is_set():
            value = f"{self.number}:{self.sent}:" + "x" * (self.sent * 7 % 300)
            try:
                self._client.produce(
                    self.topic, value, partition=self.sent % PARTITIONS, on_delivery=self._answered
                )
                self.sent += 1
            except BufferError:
                self._client.poll(0.02)
            self._client.poll(0)
            if self.sent % 100 == 0:
                time.sleep(0.005)
        if left := self._client.flush(FLUSH_SECONDS_MAX):
            self.failed.append(f"{left} messages were never answered")


def read_back(node: BrokerProcess, topic: str) -> dict[int, list[tuple[int, bytes]]]:
    """Everything that is stored: (offset, value) by partition, in order."""
    client = consumer(node, check_crcs=True)
    found: dict[int, list[tuple[int, bytes]]] = {}
    for partition in range(PARTITIONS):
        where = TopicPartition(topic, partition, 0)
        low, high = client.get_watermark_offsets(where, timeout=20)
        assert low == 0
        client.assign([where])
        found[partition] = [(m.offset(), m.value()) for m in take(client, high)]
    client.close()
    return found


def check(loads: list[Load], stored: dict[int, list[tuple[int, bytes]]]) -> None:
    for load in loads:
        assert not load.failed, load.failed[:5]
        assert len(load.acked) == load.sent
        for (partition, offset), value in load.acked.items():
            assert stored[partition][offset] == (offset, value), (
                "acknowledged, but not stored there"
            )
    assert sum(len(records) for records in stored.values()) == sum(load.sent for load in loads)
    for partition, records in stored.items():
        assert [offset for offset, _ in records] == list(range(len(records)))
        numbers: dict[bytes, list[int]] = defaultdict(list)
        for _, value in records:
            sender, number, _ = value.split(b":", 2)
            numbers[sender].append(int(number))
        for sender, seen in numbers.items():
            assert seen == list(range(partition, partition + PARTITIONS * len(seen), PARTITIONS)), (
                f"partition {partition}, producer {sender!r}: lost, doubled or out of order"
            )


@pytest.mark.slow
@pytest.mark.timeout(120 + ROUNDS * ROUND_SECONDS_MAX)
@pytest.mark.parametrize(
    "config",
    [{}, {"segment.bytes": "1048576", "flush.messages": "100"}],
    ids=["page cache", "small segments, flushed"],
)
def test_kill_under_load(
    fresh_node: Any, config: dict[str, str], record_property: Callable[[str, object], None]
) -> None:
    record_property("PENSTOCK_KILL_SEED", SEED)
    print(f"PENSTOCK_KILL_SEED={SEED}")
    moments = random.Random(SEED)
    node: BrokerProcess = fresh_node()
    topic = make_topic(node, "killed", PARTITIONS, config)
    codecs = ("none", "lz4", "zstd")
    loads = [Load(i, node.bootstrap, topic, codecs[i]) for i in range(PRODUCERS)]
    for load in loads:
        load.start()
    for _ in range(ROUNDS):
        time.sleep(moments.uniform(0.05, 1.2))
        node.kill()
        node.start()
    for load in loads:
        load.done.set()
    for load in loads:
        load.join(FLUSH_SECONDS_MAX + 10)
        assert not load.is_alive()
    assert all(load.acked for load in loads)
    check(loads, read_back(node, topic))
    node.restart()
    check(loads, read_back(node, topic))
    node.stop()
