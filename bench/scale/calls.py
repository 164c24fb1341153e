"""Requests of the scale measurements over one blocking connection, timed.

The time of an answer ends when its last byte is here: decoding it in Python would cost more than
the node took to make it, and is done only where its contents are wanted.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, TypeVar

from penstock.base.errors import ErrorCode
from penstock.cli.bench.requests import batch_of, check_produce_response, frame, produce_frame
from penstock.kafka.client import Address, Client, why
from penstock.kafka.connection import Connection
from penstock.wire.apis import ApiKey, response_header_version
from penstock.wire.messages.create_topics import (
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from penstock.wire.messages.header import ResponseHeader
from penstock.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from penstock.wire.schema import Message

ANSWER_S_MAX = 300.0
CREATE_VERSION = 7
METADATA_VERSION = 12
PARTITIONS_PER_REQUEST = 1_000
"""One request makes so many: few enough that a node answers others soon, as an admin tool would."""
MESSAGE_BYTES = 100
_R = TypeVar("_R", bound=Message)


class ScaleError(Exception):
    """A measurement cannot go on; the message says what was refused or missing."""


class Answer(NamedTuple):
    """An answer without its length, and the seconds from the first byte sent to its last."""

    data: memoryview
    seconds: float


class Caller:
    """One connection to one node."""

    def __init__(self, address: Address, seconds: float = ANSWER_S_MAX) -> None:
        client = Client("scale", connect_s=seconds, answer_s=seconds)
        self._connection = Connection(address, client)

    def __enter__(self) -> Caller:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def send(self, request: bytes | bytearray) -> Answer:
        """The answer to a request that is ready to be sent."""
        began = time.perf_counter()
        try:
            self._connection.send_frame(request)
            data = self._connection.receive_frame()
        except ConnectionError as e:
            raise ScaleError(
                f"the node has closed the connection ({why(e)}): look at its log"
            ) from e
        return Answer(data, time.perf_counter() - began)

    # Topics

    def create(self, names: Sequence[str], partitions: int, copies: int = 1) -> list[float]:
        """Makes topics, several in one request; the seconds that each request took."""
        took = []
        for some in _chunks(names, max(1, PARTITIONS_PER_REQUEST // partitions)):
            topics = [
                CreatableTopic(name=name, num_partitions=partitions, replication_factor=copies)
                for name in some
            ]
            request = CreateTopicsRequest(topics=topics, timeout_ms=int(ANSWER_S_MAX * 1000))
            answer = self.send(frame(ApiKey.CREATE_TOPICS, request, CREATE_VERSION))
            took.append(answer.seconds)
            made = decoded(answer, CreateTopicsResponse, CREATE_VERSION)
            for topic in made.topics:
                if topic.error_code:
                    code = ErrorCode(topic.error_code).name
                    raise ScaleError(f"{topic.name} was refused: {code}: {topic.error_message}")
        return took

    def metadata(self, names: Sequence[str] | None = None) -> Answer:
        """Metadata of these topics, or of all."""
        topics = None if names is None else [MetadataRequestTopic(name=n) for n in names]
        request = MetadataRequest(topics=topics, allow_auto_topic_creation=False)
        return self.send(frame(ApiKey.METADATA, request, METADATA_VERSION))

    def publish_each(self, names: Iterable[str], partitions: Sequence[int]) -> None:
        """One message into each of these partitions of each topic, a thousand in a request."""
        batch = batch_of(MESSAGE_BYTES, 1)
        for name in names:
            for some in _chunks(partitions, PARTITIONS_PER_REQUEST):
                answer = self.send(produce_frame(name, list(some), batch, 1))
                check_produce_response(answer.data)


def decoded(answer: Answer, kind: type[_R], version: int) -> _R:
    """What an answer says."""
    assert kind.API_KEY is not None
    header_version = response_header_version(ApiKey(kind.API_KEY), version)
    _, position = ResponseHeader.decode_from(answer.data, 0, header_version)
    return kind.decode(answer.data[position:], version)


def cluster_metadata(answer: Answer) -> MetadataResponse:
    return decoded(answer, MetadataResponse, METADATA_VERSION)


def topic_names(count: int) -> list[str]:
    return [f"scale-{number:06d}" for number in range(count)]


_T = TypeVar("_T")


def _chunks(items: Sequence[_T], size: int) -> Iterator[Sequence[_T]]:
    for start in range(0, len(items), size):
        yield items[start : start + size]
