"""Kafka's protocol as the load wants it; Penstock and Apache Kafka are spoken to alike.

Of an answer to Produce its length and error code are read, the first one is decoded in full. Of an
answer to Fetch the frame's head and the heads of its batches are read, the rest is passed over as
it arrives and never put together: nothing is copied but heads that are torn by the end of a read.
One fetch is under way on a connection, of at most 1 MiB, as clients have it by default.
"""

from __future__ import annotations

import json
import random
import socket
import struct
import time
from typing import Any

from tests.support.raw import Closed, RawClient
from tests.support.waiting import eventually

from penstock.base.errors import ErrorCode
from penstock.cli.bench.requests import (
    FETCH_VERSION,
    FetchFrame,
    batch_of,
    check_produce_response,
    first_error_at,
    produce_frame,
)
from penstock.cli.errors import CliError
from penstock.wire.compression import Compression
from penstock.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from penstock.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from penstock.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from penstock.wire.messages.metadata import MetadataRequest
from penstock.wire.record_batch import HEADER_SIZE
from penstock.wire.records import Record, build_batch

from .wire import Consumer, PeerError, Publisher, Received, Wire

FETCH_BYTES = 1024 * 1024
MAX_WAIT_MS = 500
CREATE_VERSION = 7
DELETE_VERSION = 6
METADATA_VERSION = 12
ACKS = {"1": 1, "all": -1}
FILE_DELETE_DELAY_MS = "100"
"""Instead of a minute: the quicker a server is, the more of the memory for files would be taken by
topics of cases that are over."""
ANSWER_S_MAX = 1.0
LENGTH_BYTES = 4
TAIL_BYTES = 3
"""The tagged fields of partition, topic and answer, of which there are none."""
LOG_OVERHEAD_BYTES = 12

_FETCH_HEAD = struct.Struct(">i5x4xh")
_BATCH_HEAD = struct.Struct(">qi45xi")
_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")


def answers_metadata(host: str, port: int) -> bool:
    """Whether a broker answers and knows of itself."""
    try:
        with RawClient(host, port, seconds=ANSWER_S_MAX) as client:
            return bool(client.call(MetadataRequest(topics=[]), METADATA_VERSION).brokers)
    except (OSError, Closed):
        return False


def durability(fsync: bool) -> str:
    """When a message is on disk, for topics that are made here."""
    if fsync:
        return "on disk before the acknowledgement (flush.messages=1)"
    return "written to the file before the acknowledgement, no fsync"


def compressed_batch_of(size: int, messages: int, compression: Compression) -> bytes:
    """A batch of different messages, each a line of JSON of about `size` bytes."""
    rng = random.Random(1)
    now_ms = time.time_ns() // 1_000_000
    records = []
    for number in range(messages):
        fields = {"id": number, "user": f"user-{rng.randrange(100_000):05}"}
        while len(json.dumps(fields)) < size:
            word = rng.choice(("amount", "country", "price", "product", "state", "time"))
            fields[f"{word}_{len(fields)}"] = rng.randrange(1_000_000)
        records.append(Record(number, now_ms, None, json.dumps(fields).encode(), ()))
    return build_batch(records, compression=compression)


class KafkaWire(Wire):
    """Topics of one copy on one broker, and unless it is said otherwise of one partition."""

    def __init__(
        self, host: str, port: int, *, fsync: bool, compression: Compression = Compression.NONE
    ) -> None:
        self._address = (host, port)
        self._compression = compression
        self._settings = {"file.delete.delay.ms": FILE_DELETE_DELAY_MS}
        if fsync:
            self._settings["flush.messages"] = "1"
        self._requests: dict[tuple[str, int, int, str], bytearray] = {}

    def make(self, topic: str, *, groups: int = 1, partitions: int = 1) -> None:
        configs = [CreatableTopicConfig(name=n, value=v) for n, v in self._settings.items()]
        wanted = CreatableTopic(
            name=topic, num_partitions=partitions, replication_factor=1, configs=configs
        )
        with RawClient(*self._address) as client:
            answer = client.call(CreateTopicsRequest(topics=[wanted]), CREATE_VERSION)
            _check(answer.topics[0].error_code, f"make topic {topic}")
            eventually(lambda: not _fetch_error(client, topic, partitions), every=0.01)

    def remove(self, topic: str) -> None:
        request = DeleteTopicsRequest(topics=[DeleteTopicState(name=topic)], timeout_ms=30_000)
        with RawClient(*self._address) as client:
            answer = client.call(request, DELETE_VERSION)
        _check(answer.responses[0].error_code, f"delete topic {topic}")

    def publisher(
        self, sock: socket.socket, topic: str, *, size: int, messages: int, acks: str
    ) -> Publisher:
        key = (topic, size, messages, acks)
        if key not in self._requests:  # hundreds of connections send the same bytes
            if self._compression is Compression.NONE:
                batch = batch_of(size, messages)
            else:
                batch = compressed_batch_of(size, messages, self._compression)
            self._requests[key] = produce_frame(topic, [0], batch, ACKS[acks])
        return KafkaPublisher(topic, self._requests[key])

    def consumer(self, sock: socket.socket, topic: str, *, group: int) -> Consumer:
        return KafkaConsumer(topic)


class KafkaPublisher:
    """See `Publisher`."""

    def __init__(self, topic: str, request: bytearray) -> None:
        self.request: bytes | bytearray = request
        self._error_at = LENGTH_BYTES + first_error_at(topic, 1)
        self._answer_bytes = -1
        self._torn = b""

    def acknowledged(self, data: memoryview) -> int:
        at = self._error_at
        if len(data) == self._answer_bytes and not (self._torn or data[at] or data[at + 1]):
            return 1
        return self._several(bytes(self._torn) + bytes(data))

    def _several(self, data: bytes) -> int:
        answers = pos = 0
        while len(data) - pos >= LENGTH_BYTES:
            end = pos + LENGTH_BYTES + _INT32.unpack_from(data, pos)[0]
            if end > len(data):
                break
            self._check(data[pos:end])
            answers += 1
            pos = end
        self._torn = data[pos:]
        return answers

    def _check(self, answer: bytes) -> None:
        refused = len(answer) > self._error_at + 1 and any(
            answer[self._error_at : self._error_at + 2]
        )
        if refused or len(answer) != self._answer_bytes:
            try:
                check_produce_response(answer[LENGTH_BYTES:])
            except CliError as e:
                raise PeerError(str(e)) from None
            self._answer_bytes = len(answer)


class KafkaConsumer:
    """See `Consumer`. Bytes of an answer are a head, then batches (`_rest` bytes of them are to
    come), of which each has a head too; `_skip` bytes are to be passed over before the next head.
    """

    def __init__(self, topic: str, *, partition: int = 0, fetch_bytes: int = FETCH_BYTES) -> None:
        self._fetch = FetchFrame(topic, partition, fetch_bytes, MAX_WAIT_MS)
        self.first: bytes | bytearray = self._fetch.at(0, 0)
        # length, correlation id, tags, throttle time, error, session; one topic: count, name;
        # one partition: count, index, error; offsets: end, stable, start; aborted transactions
        # (none), preferred replica
        names = 1 + 1 + len(topic.encode())
        self._error_at = 4 + 4 + 1 + 4 + 2 + 4 + names + 1 + 4
        self._head_bytes = self._error_at + 2 + 8 + 8 + 8 + 1 + 4
        self._offset = 0
        self._torn = bytearray()
        self._skip = 0
        self._rest = -1  # between answers

    def received(self, data: memoryview) -> Received:
        pos, end, messages = 0, len(data), 0
        reply = None
        while True:
            if self._skip:
                step = min(self._skip, end - pos)
                pos += step
                self._skip -= step
                if self._skip:
                    break
            if self._rest == 0:
                self._rest = -1
                reply = self._fetch.at(self._offset, 0)
            need = self._head_bytes if self._rest < 0 else HEADER_SIZE
            source: memoryview | bytearray = data
            if self._torn or end - pos < need:
                taken = data[pos : pos + need - len(self._torn)]
                pos += len(taken)
                self._torn += taken
                if len(self._torn) < need:
                    break
                source, at, self._torn = self._torn, 0, bytearray()
            else:
                at = pos
                pos += need
            if self._rest < 0:
                self._answer(source, at)
            else:
                messages += self._batch(source, at)
        return Received(messages, reply)

    def _answer(self, source: memoryview | bytearray, at: int) -> None:
        """The head of an answer. What follows are the size of the batches in as many bytes as it
        needs, the batches, and a tail of known length.
        """
        length, error = _FETCH_HEAD.unpack_from(source, at)
        _check(error or _INT16.unpack_from(source, at + self._error_at)[0], "fetch")
        left = LENGTH_BYTES + length - self._head_bytes - TAIL_BYTES
        size_bytes = next(n for n in range(1, 6) if left - n + 1 < 1 << 7 * n)
        self._after(size_bytes, left - size_bytes)

    def _batch(self, source: memoryview | bytearray, at: int) -> int:
        """The head of a batch: how many messages it has. The last batch of an answer may be torn
        off, and is then fetched again.
        """
        base_offset, length, count = _BATCH_HEAD.unpack_from(source, at)
        size = LOG_OVERHEAD_BYTES + length
        if size > self._rest:
            self._after(self._rest - HEADER_SIZE, 0)
            return 0
        self._offset = base_offset + count
        self._after(size - HEADER_SIZE, self._rest - size)
        return int(count)

    def _after(self, skip: int, rest: int) -> None:
        """After `skip` bytes come batches of `rest` bytes; too few for a head are passed over."""
        if rest < HEADER_SIZE:
            skip, rest = skip + rest + TAIL_BYTES, 0
        self._skip, self._rest = skip, rest


def _fetch_error(client: RawClient, topic: str, partitions: int) -> int:
    """The error of a fetch from the topic's start; 0 when its leader is at work."""
    wanted = [
        FetchPartition(partition=partition, fetch_offset=0, partition_max_bytes=1)
        for partition in range(partitions)
    ]
    request = FetchRequest(
        max_wait_ms=0, min_bytes=0, topics=[FetchTopic(topic=topic, partitions=wanted)]
    )
    answer: Any = client.call(request, FETCH_VERSION)
    if answer.error_code:
        return int(answer.error_code)
    codes = (part.error_code for part in answer.responses[0].partitions)
    return int(next(filter(None, codes), 0))


def _check(error: int, what: str) -> None:
    if error:
        raise PeerError(f"the broker refused to {what}: {ErrorCode(error).name}")
