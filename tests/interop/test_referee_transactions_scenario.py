"""Plays `kafka_agrees*.txt` of tests/scenario/transactions to Apache Kafka and to a shard of ours:
the answers must be the same, and so must the transaction log be.

Producer ids are numbered in the order in which they are seen. Kafka aborts what takes too long and
writes its markers by itself, so where the scenario waits or has them written, Kafka is waited for.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from penstock.base.errors import ErrorCode
from penstock.coordinator.effects import Effects
from penstock.coordinator.transaction.records import decode
from penstock.coordinator.transaction.states import BY_STATUS
from penstock.wire.messages.api_versions import ApiVersionsRequest
from penstock.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from penstock.wire.messages.describe_transactions import DescribeTransactionsRequest
from penstock.wire.messages.find_coordinator import FindCoordinatorRequest
from penstock.wire.messages.init_producer_id import InitProducerIdRequest
from penstock.wire.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from penstock.wire.records import parse_header, read_records
from scenario.transactions.scenario import Scenario
from support import reference
from support.raw import RawClient
from support.reference import KafkaProcess
from support.waiting import eventually
from unit.coordinator.transaction.rig import FIRST_PRODUCER_ID, TIMEOUT_MS

SCENARIOS = Path(__file__).parents[1] / "scenario" / "transactions"
SETTINGS = {
    "transaction.state.log.num.partitions": "1",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "100",
}
TOPICS = {"a": 2, "b": 1}
ANSWER = re.compile(r"[\w']+: ")
TRANSACTION = 1
"""The kind of key that FindCoordinator is asked with."""
READY = (ErrorCode.NONE, ErrorCode.PRODUCER_FENCED)

pytestmark = pytest.mark.java


class KafkaRig:
    """What a scenario needs of a rig, with Apache Kafka behind it."""

    def __init__(self, client: RawClient, prefix: str) -> None:
        self.now = 0
        self._client = client
        self.prefix = prefix
        self._real: dict[int, int] = {}
        self.shown: dict[int, int] = {}
        self._numbers = itertools.count(FIRST_PRODUCER_ID)

    def next_timer(self) -> None:
        return None

    def send(self, request: Any, version: int) -> tuple[Any, Effects]:
        self._name(request)
        answer = self._client.call(request, version)
        self._unname(answer)
        return answer, Effects()

    def write_markers(self) -> Effects:
        eventually(lambda: not self.state.startswith("Prepare"))
        return Effects()

    @property
    def state(self) -> str:
        wanted = DescribeTransactionsRequest(transactional_ids=[f"{self.prefix}t"])
        [found] = self._client.call(wanted, 0).transaction_states
        return str(found.transaction_state)

    def _name(self, request: Any) -> None:
        """Ids that no other section has used, and Kafka's producer ids for ours."""
        for part in (request, *getattr(request, "transactions", ())):
            for name in ("transactional_id", "v3_and_below_transactional_id"):
                if getattr(part, name, ""):
                    setattr(part, name, self.prefix + getattr(part, name))
            for name in ("producer_id", "v3_and_below_producer_id"):
                if hasattr(part, name):
                    ours = getattr(part, name)
                    setattr(part, name, self._real.get(ours, ours))
        if isinstance(request, DescribeTransactionsRequest):
            request.transactional_ids = [self.prefix + id_ for id_ in request.transactional_ids]

    def _unname(self, answer: Any) -> None:
        for part in (answer, *getattr(answer, "transaction_states", ())):
            if getattr(part, "transactional_id", ""):
                part.transactional_id = part.transactional_id.removeprefix(self.prefix)
            theirs = getattr(part, "producer_id", -1)
            if theirs >= 0 and not part.error_code:
                if theirs not in self.shown:
                    self.shown[theirs] = next(self._numbers)
                    self._real[self.shown[theirs]] = theirs
                part.producer_id = self.shown[theirs]


class KafkaScenario(Scenario):
    def __init__(self, client: RawClient, prefix: str) -> None:
        super().__init__()
        self.kafka = KafkaRig(client, prefix)
        self.rig = self.kafka  # type: ignore[assignment]

    def do_wait(self, _: list[str], __: dict[str, str]) -> Iterator[str]:
        eventually(lambda: self.kafka.state != "Ongoing")
        yield from ()

    def do_epoch(self, words: list[str], _: dict[str, str]) -> Iterator[str]:
        """The producer really begins that often."""
        name, wanted = words
        while self.clients[name].producer[1] < int(wanted):
            list(self.do_init([name], {}))
        yield from ()


def answers(lines: Iterator[str]) -> list[str]:
    """The lines that are answers, without the times that only one of the two has."""
    return [re.sub(r"since \d+", "since then", line) for line in lines if ANSWER.match(line)]


def shown_log(
    log: Iterable[tuple[bytes, bytes | None]], id_: str, numbers: Mapping[int, int]
) -> list[str]:
    """What the transaction log says of `id_`, without times; producer ids by their `numbers`."""
    lines = []
    for key, value in log:
        record = decode(key, value)
        if record is None or record.transactional_id != id_:
            continue
        assert record.value is not None
        ids = (
            record.value.producer_id,
            record.value.previous_producer_id,
            record.value.next_producer_id,
        )
        partitions = record.value.transaction_partitions
        names = [f"{t.topic}-{i}" for t in partitions or () for i in t.partition_ids]
        lines.append(
            f"{BY_STATUS[record.value.transaction_status].value}"
            f" {'/'.join(str(numbers.get(one, one)) for one in ids)}"
            f" {record.value.producer_epoch}"
            f" client {record.value.client_transaction_version}"
            f" timeout {record.value.transaction_timeout_ms}"
            f" {partitions and sorted(names)}"
            f" {record.value.transaction_start_timestamp_ms < 0}"
        )
    return lines


def kafka_log(broker: KafkaProcess) -> Iterator[tuple[bytes, bytes | None]]:
    """The records in the one partition of Kafka's transaction log, as they are on disk."""
    [segment] = (broker.data_dir / "__transaction_state-0").glob("*.log")
    data = memoryview(segment.read_bytes())
    while data:
        size = parse_header(data).size
        for record in read_records(data[:size]):
            assert record.key is not None
            yield bytes(record.key), None if record.value is None else bytes(record.value)
        data = data[size:]


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[RawClient, KafkaProcess]]:
    if (reason := reference.missing()) is not None:
        pytest.skip(reason)
    with (
        KafkaProcess(tmp_path_factory.mktemp("kafka"), SETTINGS) as broker,
        RawClient(broker.host, broker.port) as client,
    ):
        _prepare(client)
        yield client, broker


def _prepare(client: RawClient) -> None:
    """Topics to write to, transactions version 2, and a coordinator that is there."""
    topics = [
        CreatableTopic(name=name, num_partitions=count, replication_factor=1)
        for name, count in TOPICS.items()
    ]
    created = client.call(CreateTopicsRequest(topics=topics), 7)
    assert [topic.error_code for topic in created.topics] == [0, 0]
    wanted = FeatureUpdateKey(feature="transaction.version", max_version_level=2, upgrade_type=1)
    updated = client.call(UpdateFeaturesRequest(timeout_ms=10_000, feature_updates=[wanted]), 2)
    assert updated.error_code == 0, updated
    eventually(lambda: "transaction.version" in _features(client))
    find = FindCoordinatorRequest(key_type=TRANSACTION, coordinator_keys=["ready"])
    eventually(lambda: client.call(find, 4).coordinators[0].error_code == 0)
    ready = InitProducerIdRequest(transactional_id="ready", transaction_timeout_ms=TIMEOUT_MS)
    eventually(lambda: client.call(ready, 5).error_code in READY)


def _features(client: RawClient) -> list[str]:
    """The features that the broker knows to be in force."""
    answer = client.call(
        ApiVersionsRequest(client_software_name="t", client_software_version="1"), 3
    )
    return [one.name for one in answer.finalized_features if one.max_version_level == 2]


def _sections(file: str) -> list[list[str]]:
    sections = re.split(r"(?m)^---.*$", (SCENARIOS / file).read_text(encoding="utf-8"))
    return [[line for line in part.splitlines() if line.startswith("t=")] for part in sections]


def _play(kafka: tuple[RawClient, KafkaProcess], file: str) -> Iterator[tuple[list[str], ...]]:
    """After each section, what our log has in it and what Kafka's has."""
    client, broker = kafka
    for number, events in enumerate(_sections(file)):
        prefix = f"{file} {number} "
        ours, theirs = Scenario(), KafkaScenario(client, prefix)
        for event in events:
            expected = answers(theirs.run(event))
            assert answers(ours.run(event)) == expected, f"section {number}, {event}"
        yield (
            shown_log(ours.rig.log, "t", {}),
            shown_log(kafka_log(broker), f"{prefix}t", theirs.kafka.shown),
        )


def test_apache_kafka_answers_and_writes_the_same(kafka: tuple[RawClient, KafkaProcess]) -> None:
    for found, expected in _play(kafka, "kafka_agrees.txt"):
        assert found
        assert found == expected


@pytest.mark.long
def test_apache_kafka_uses_up_epochs_in_the_same_way(
    kafka: tuple[RawClient, KafkaProcess],
) -> None:
    for found, expected in _play(kafka, "kafka_agrees_epochs.txt"):
        # Ours has jumped to the epoch; from there on they are the same.
        assert found[2:] == expected[2 - len(found) :]
