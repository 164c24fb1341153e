"""Three Python clients behind one small interface: transactional writers, and readers.

A `Writer` owns a transactional id; a `Reader` reads partitions from an offset, or as a member of a
group. Each library keeps its own errors; `Client.is_fenced` knows which of them say that another
producer has taken over. aiokafka runs on an event loop in a thread of its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Coroutine, Iterator, Mapping
from typing import Any, NamedTuple, Protocol, TypeVar

import aiokafka  # type: ignore[import-untyped]
import aiokafka.errors  # type: ignore[import-untyped]
import confluent_kafka
import kafka
import kafka.errors
from kafka.structs import OffsetAndMetadata

from .helpers import QUIET
from .process import BrokerProcess
from .waiting import CALL_SECONDS_MAX, eventually

T = TypeVar("T")
Where = tuple[str, int]
POLL_SECONDS = 0.05
SESSION_MS = 6000


class Got(NamedTuple):
    """A message that was read."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes


class Writer(Protocol):
    """A transactional producer; it is initialised when it is made."""

    def begin(self) -> None: ...
    def send(self, topic: str, value: str, partition: int = 0, key: str | None = None) -> None: ...
    def flush(self) -> None: ...
    def send_offsets(self, reader: Reader) -> None: ...
    def commit(self) -> None: ...
    def abort(self) -> None: ...
    def close(self) -> None: ...


class Reader(Protocol):
    """A consumer that commits nothing by itself."""

    def poll(self) -> list[Got]: ...
    def positions(self) -> dict[Where, int]: ...
    def committed(self, topic: str, partition: int) -> int: ...
    def close(self) -> None: ...


class Client(Protocol):
    """One library; `errors` is what all of its errors are."""

    errors: type[Exception]

    def writer(
        self, broker: BrokerProcess, transactional_id: str, timeout_ms: int = 60_000
    ) -> Writer: ...
    def reader(
        self, broker: BrokerProcess, start: Mapping[Where, int], *, committed: bool
    ) -> Reader: ...
    def member(self, broker: BrokerProcess, topic: str, group: str) -> Reader: ...
    def is_fenced(self, error: Exception) -> bool: ...


def isolation(committed: bool) -> str:
    return "read_committed" if committed else "read_uncommitted"


# confluent-kafka


class ConfluentWriter:
    def __init__(self, client: confluent_kafka.Producer) -> None:
        self.client = client
        client.init_transactions(CALL_SECONDS_MAX)

    def begin(self) -> None:
        self.client.begin_transaction()

    def send(self, topic: str, value: str, partition: int = 0, key: str | None = None) -> None:
        self.client.produce(topic, value, key, partition)

    def flush(self) -> None:
        assert self.client.flush(CALL_SECONDS_MAX) == 0

    def send_offsets(self, reader: Reader) -> None:
        assert isinstance(reader, ConfluentReader)
        offsets = reader.client.position(reader.client.assignment())
        metadata = reader.client.consumer_group_metadata()
        self.client.send_offsets_to_transaction(offsets, metadata, CALL_SECONDS_MAX)

    def commit(self) -> None:
        self.client.commit_transaction(CALL_SECONDS_MAX)

    def abort(self) -> None:
        self.client.abort_transaction(CALL_SECONDS_MAX)

    def close(self) -> None:
        with contextlib.suppress(confluent_kafka.KafkaException):  # it may have been fenced
            self.client.purge()
            self.client.flush(1)


class ConfluentReader:
    def __init__(self, client: confluent_kafka.Consumer) -> None:
        self.client = client

    def poll(self) -> list[Got]:
        found = []
        for message in self.client.consume(1000, timeout=POLL_SECONDS):
            assert message.error() is None, message.error()
            topic, partition, offset = message.topic(), message.partition(), message.offset()
            assert topic is not None
            assert partition is not None
            assert offset is not None
            found.append(Got(topic, partition, offset, message.key(), message.value() or b""))
        return found

    def positions(self) -> dict[Where, int]:
        found = self.client.position(self.client.assignment())
        return {(p.topic, p.partition): p.offset for p in found}

    def committed(self, topic: str, partition: int) -> int:
        asked = [confluent_kafka.TopicPartition(topic, partition)]
        [found] = self.client.committed(asked, CALL_SECONDS_MAX)
        return int(found.offset)

    def close(self) -> None:
        self.client.close()


class Confluent:
    errors: type[Exception] = confluent_kafka.KafkaException

    def writer(
        self, broker: BrokerProcess, transactional_id: str, timeout_ms: int = 60_000
    ) -> ConfluentWriter:
        settings = {
            "bootstrap.servers": broker.bootstrap,
            "transactional.id": transactional_id,
            "transaction.timeout.ms": timeout_ms,
            "linger.ms": 2,
            **QUIET,
        }
        return ConfluentWriter(confluent_kafka.Producer(settings))

    def _consumer(self, broker: BrokerProcess, group: str, committed: bool) -> Any:
        settings = {
            "bootstrap.servers": broker.bootstrap,
            "group.id": group,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "isolation.level": isolation(committed),
            "session.timeout.ms": SESSION_MS,
            "fetch.queue.backoff.ms": 5,
            **QUIET,
        }
        return confluent_kafka.Consumer(settings)

    def reader(
        self, broker: BrokerProcess, start: Mapping[Where, int], *, committed: bool
    ) -> ConfluentReader:
        client = self._consumer(broker, "unused", committed)
        client.assign([confluent_kafka.TopicPartition(*w, at) for w, at in start.items()])
        return ConfluentReader(client)

    def member(self, broker: BrokerProcess, topic: str, group: str) -> ConfluentReader:
        client = self._consumer(broker, group, True)
        client.subscribe([topic])
        return ConfluentReader(client)

    def is_fenced(self, error: Exception) -> bool:
        return error.args[0].name() in ("_FENCED", "PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH")


# kafka-python


class KafkaPythonWriter:
    def __init__(self, client: kafka.KafkaProducer) -> None:
        self.client = client
        self._sent: list[Any] = []
        client.init_transactions()

    def begin(self) -> None:
        self._sent.clear()
        self.client.begin_transaction()

    def send(self, topic: str, value: str, partition: int = 0, key: str | None = None) -> None:
        sent = self.client.send(topic, value.encode(), key and key.encode(), partition=partition)
        self._sent.append(sent)

    def flush(self) -> None:
        self.client.flush(CALL_SECONDS_MAX)

    def send_offsets(self, reader: Reader) -> None:
        assert isinstance(reader, KafkaPythonReader)
        offsets = {
            kafka.TopicPartition(*where): OffsetAndMetadata(at, "", -1)
            for where, at in reader.positions().items()
        }
        self.client.send_offsets_to_transaction(offsets, reader.client.group_metadata())

    def commit(self) -> None:
        try:
            self.client.commit_transaction()
        except kafka.errors.KafkaError as error:
            # When a message was refused before this, the client asks for a new epoch, and says only
            # that it cannot commit meanwhile: what the broker said is with the message.
            for sent in self._sent:
                if sent.failed():
                    raise sent.exception from error
            raise

    def abort(self) -> None:
        self.client.abort_transaction()

    def close(self) -> None:
        self.client.close(timeout=1)


class KafkaPythonReader:
    def __init__(self, client: kafka.KafkaConsumer) -> None:
        self.client = client

    def poll(self) -> list[Got]:
        found = self.client.poll(timeout_ms=int(POLL_SECONDS * 1000), max_records=1000)
        return [
            Got(record.topic, record.partition, record.offset, record.key, record.value)
            for records in found.values()
            for record in records
        ]

    def positions(self) -> dict[Where, int]:
        return {(p.topic, p.partition): self.client.position(p) for p in self.client.assignment()}

    def committed(self, topic: str, partition: int) -> int:
        found = self.client.committed(kafka.TopicPartition(topic, partition))
        return -1001 if found is None else int(found)

    def close(self) -> None:
        self.client.close()


class KafkaPython:
    errors: type[Exception] = kafka.errors.KafkaError

    def writer(
        self, broker: BrokerProcess, transactional_id: str, timeout_ms: int = 60_000
    ) -> KafkaPythonWriter:
        client = kafka.KafkaProducer(
            bootstrap_servers=broker.bootstrap,
            transactional_id=transactional_id,
            transaction_timeout_ms=timeout_ms,
            linger_ms=2,
            max_block_ms=CALL_SECONDS_MAX * 1000,
        )
        return KafkaPythonWriter(client)

    def reader(
        self, broker: BrokerProcess, start: Mapping[Where, int], *, committed: bool
    ) -> KafkaPythonReader:
        client = kafka.KafkaConsumer(
            bootstrap_servers=broker.bootstrap,
            isolation_level=isolation(committed),
            enable_auto_commit=False,
            auto_offset_reset="none",
            fetch_max_wait_ms=100,
        )
        client.assign([kafka.TopicPartition(*where) for where in start])
        for where, at in start.items():
            client.seek(kafka.TopicPartition(*where), at)
        return KafkaPythonReader(client)

    def member(self, broker: BrokerProcess, topic: str, group: str) -> KafkaPythonReader:
        client = kafka.KafkaConsumer(
            bootstrap_servers=broker.bootstrap,
            group_id=group,
            isolation_level="read_committed",
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            session_timeout_ms=SESSION_MS,
            fetch_max_wait_ms=100,
        )
        # A leader that has not heard of the topic when it is asked to assign assigns nothing.
        client.subscribe([topic])
        eventually(lambda: client.partitions_for_topic(topic))
        return KafkaPythonReader(client)

    def is_fenced(self, error: Exception) -> bool:
        fenced = kafka.errors.ProducerFencedError, kafka.errors.InvalidProducerEpochError
        return isinstance(error, fenced)


# aiokafka


class Loop:
    """An event loop in a thread, which other threads hand coroutines to."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(CALL_SECONDS_MAX)

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(CALL_SECONDS_MAX)
        self._loop.close()


class AiokafkaWriter:
    def __init__(self, loop: Loop, client: Any) -> None:
        self._loop = loop
        self.client = client
        loop.run(client.start())

    def begin(self) -> None:
        self._loop.run(self.client.begin_transaction())

    def send(self, topic: str, value: str, partition: int = 0, key: str | None = None) -> None:
        self._loop.run(
            self.client.send(topic, value.encode(), key and key.encode(), partition=partition)
        )

    def flush(self) -> None:
        self._loop.run(self.client.flush())

    def send_offsets(self, reader: Reader) -> None:
        assert isinstance(reader, AiokafkaReader)
        offsets = {aiokafka.TopicPartition(*w): at for w, at in reader.positions().items()}
        assert reader.group is not None
        self._loop.run(self.client.send_offsets_to_transaction(offsets, reader.group))

    def commit(self) -> None:
        self._loop.run(self.client.commit_transaction())

    def abort(self) -> None:
        self._loop.run(self.client.abort_transaction())

    def close(self) -> None:
        async def stop() -> None:
            with contextlib.suppress(TimeoutError, aiokafka.errors.KafkaError):
                await asyncio.wait_for(self.client.stop(), 1)

        self._loop.run(stop())


class AiokafkaReader:
    def __init__(self, loop: Loop, client: Any, group: str | None) -> None:
        self._loop = loop
        self.client = client
        self.group = group

    def poll(self) -> list[Got]:
        found = self._loop.run(self.client.getmany(timeout_ms=int(POLL_SECONDS * 1000)))
        return [
            Got(record.topic, record.partition, record.offset, record.key, record.value)
            for records in found.values()
            for record in records
        ]

    def positions(self) -> dict[Where, int]:
        async def ask() -> dict[Where, int]:
            owned = self.client.assignment()
            return {(p.topic, p.partition): await self.client.position(p) for p in owned}

        return self._loop.run(ask())

    def committed(self, topic: str, partition: int) -> int:
        found = self._loop.run(self.client.committed(aiokafka.TopicPartition(topic, partition)))
        return -1001 if found is None else int(found)

    def close(self) -> None:
        self._loop.run(self.client.stop())


class Aiokafka:
    errors: type[Exception] = aiokafka.errors.KafkaError

    def __init__(self) -> None:
        self._loop = Loop()

    def close(self) -> None:
        self._loop.close()

    def writer(
        self, broker: BrokerProcess, transactional_id: str, timeout_ms: int = 60_000
    ) -> AiokafkaWriter:
        async def make() -> Any:
            return aiokafka.AIOKafkaProducer(
                bootstrap_servers=broker.bootstrap,
                transactional_id=transactional_id,
                transaction_timeout_ms=timeout_ms,
                linger_ms=2,
            )

        return AiokafkaWriter(self._loop, self._loop.run(make()))

    def reader(
        self, broker: BrokerProcess, start: Mapping[Where, int], *, committed: bool
    ) -> AiokafkaReader:
        async def make() -> Any:
            client = aiokafka.AIOKafkaConsumer(
                bootstrap_servers=broker.bootstrap,
                isolation_level=isolation(committed),
                enable_auto_commit=False,
                auto_offset_reset="none",
                fetch_max_wait_ms=100,
            )
            await client.start()
            client.assign([aiokafka.TopicPartition(*where) for where in start])
            for where, at in start.items():
                client.seek(aiokafka.TopicPartition(*where), at)
            return client

        return AiokafkaReader(self._loop, self._loop.run(make()), None)

    def member(self, broker: BrokerProcess, topic: str, group: str) -> AiokafkaReader:
        async def make() -> Any:
            client = aiokafka.AIOKafkaConsumer(
                topic,
                bootstrap_servers=broker.bootstrap,
                group_id=group,
                isolation_level="read_committed",
                enable_auto_commit=False,
                auto_offset_reset="earliest",
                session_timeout_ms=SESSION_MS,
                heartbeat_interval_ms=1000,
                fetch_max_wait_ms=100,
            )
            await client.start()
            return client

        return AiokafkaReader(self._loop, self._loop.run(make()), group)

    def is_fenced(self, error: Exception) -> bool:
        fenced = aiokafka.errors.ProducerFenced, aiokafka.errors.InvalidProducerEpoch
        return isinstance(error, fenced)


CLIENTS: dict[str, type[Any]] = {
    "confluent": Confluent,
    "kafka-python": KafkaPython,
    "aiokafka": Aiokafka,
}


@contextlib.contextmanager
def library(name: str) -> Iterator[Client]:
    """One of `CLIENTS`."""
    made = CLIENTS[name]()
    yield made
    if isinstance(made, Aiokafka):
        made.close()


def read_until(reader: Reader, value: bytes, times: int = 1) -> list[Got]:
    """What is read until a value has come `times` times; that value is left out."""
    found: list[Got] = []

    def complete() -> bool:
        found.extend(reader.poll())
        return sum(got.value == value for got in found) >= times

    eventually(complete, every=0)
    return [got for got in found if got.value != value]
