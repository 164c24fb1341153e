"""A node for the measurements, and topics filled with rows of 100 B as fast as it takes them."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Self

from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from penstock.kafka.client import Client, parse_addresses
from penstock.kafka.connection import Connection
from penstock.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from penstock.wire.records import Record, build_batch

VALUE = b"x" * 100
BATCH_ROWS = 130
"""Rows of a batch of 16 KB, which is what producers send unless told otherwise."""
PRODUCE_VERSION = 8
READY_S_MAX = 30.0
_READY = re.compile(r"^ready: kafka=(\S+)", re.MULTILINE)


class Node:
    """`penstock serve` with its data in a folder."""

    def __init__(self, folder: Path) -> None:
        self._out = folder / "out"
        command = [sys.executable, "-m", "penstock.cli", "serve", "--data-dir", str(folder / "d")]
        command += ["--listen", "127.0.0.1:0", "--http", "127.0.0.1:0"]
        with self._out.open("wb") as out:
            self._process = subprocess.Popen(command, stdout=out)
        self.bootstrap = ""

    def __enter__(self) -> Self:
        deadline = time.monotonic() + READY_S_MAX
        while (ready := _READY.search(self._out.read_text())) is None:
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError("the node did not start")
            time.sleep(0.02)
        self.bootstrap = ready[1]
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait()


def make_topic(node: Node, name: str, partitions: int) -> None:
    admin = AdminClient({"bootstrap.servers": node.bootstrap})
    for future in admin.create_topics([NewTopic(name, partitions, 1)]).values():
        future.result(READY_S_MAX)


def fill(node: Node, topic: str, *, partitions: int, rows: int) -> int:
    """Publishes about that many rows, evenly; returns how many."""
    in_batch = min(BATCH_ROWS, rows)
    stamp = int(time.time() * 1000)
    batch = build_batch([Record(n, stamp, None, VALUE) for n in range(in_batch)])
    batches = max(1, rows // in_batch // partitions)
    connection = Connection(parse_addresses(node.bootstrap)[0], Client("bench"))
    for partition in range(partitions):
        for _ in range(batches):
            connection.call(_request(topic, partition, batch), ProduceResponse, PRODUCE_VERSION)
    connection.close()
    return in_batch * batches * partitions


def _request(topic: str, partition: int, records: bytes) -> ProduceRequest:
    data = PartitionProduceData(index=partition, records=records)
    topics = [TopicProduceData(name=topic, partition_data=[data])]
    return ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=topics)
