"""Plays `kafka_agrees.txt` of tests/scenario/share_state to Apache Kafka and to a shard of ours:
the answers must be the same, and so must the records be.

Two things of the records are not compared: times, and leaders' epochs, which ours keep when a state
is begun anew.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from penstock.base.ids import Uuid
from penstock.coordinator.effects import CoordinatorRecord, Effects
from penstock.coordinator.share_state.records import decode
from penstock.coordinator.share_state.state import record_of
from penstock.share.types import ShareKey
from penstock.wire.records import parse_header, read_records
from penstock.wire.schema import Message
from scenario.share_state.scenario import Scenario, record_shown
from support import reference
from support.raw import RawClient
from support.reference import KafkaProcess
from support.share_states import SETTINGS, ShareStates
from unit.coordinator.share_state.rig import PARTITIONS, topic_id

FILE = Path(__file__).parents[1] / "scenario" / "share_state" / "kafka_agrees.txt"
TOPICS = "abc"
ANSWER = re.compile(r"\w--?\d+: ")

pytestmark = pytest.mark.java


class KafkaRig:
    """What a scenario needs of a rig, with Apache Kafka behind it."""

    def __init__(self, states: ShareStates, topics: Mapping[str, Uuid], prefix: str) -> None:
        self.now = 0
        self._states = states
        self._topics = topics
        self._prefix = prefix

    def ask(self, kind: type[Message], topic: str, named: Any, group: str) -> tuple[Any, Effects]:
        key = ShareKey(self._prefix + group, self._topics[topic], named.partition)
        return self._states.ask(kind, key, named), Effects()


def answers(lines: Iterator[str]) -> list[str]:
    return [line for line in lines if ANSWER.match(line)]


def shown_log(log: Iterable[tuple[bytes, bytes | None]]) -> list[str]:
    """Records without the times and epochs that only one of the two has."""
    return [
        re.sub(r"leader -?\d+|made \d+|written \d+", "", record_shown(CoordinatorRecord(*record)))
        for record in log
    ]


def as_ours(
    log: Iterable[tuple[bytes, bytes | None]], names: Mapping[Uuid, str], prefix: str
) -> Iterator[CoordinatorRecord]:
    """The records of groups whose ids begin so, with the groups and topics of our scenario."""
    for key, value in log:
        record = decode(key, value)
        assert record is not None
        group_id, id_, partition = record.key
        if group_id.startswith(prefix):
            key_here = ShareKey(group_id.removeprefix(prefix), topic_id(names[id_]), partition)
            yield record_of(key_here, record.value)


def kafka_log(broker: KafkaProcess) -> Iterator[tuple[bytes, bytes | None]]:
    """The records in the one partition of Kafka's topic, as they are on disk."""
    [segment] = (broker.data_dir / "__share_group_state-0").glob("*.log")
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
        yield client, broker


def test_apache_kafka_answers_and_writes_the_same(kafka: tuple[RawClient, KafkaProcess]) -> None:
    client, broker = kafka
    states = ShareStates(client)
    topics = states.make_topics(TOPICS, PARTITIONS)
    names = {id_: name for name, id_ in topics.items()}
    sections = re.split(r"(?m)^---.*$", FILE.read_text(encoding="utf-8"))
    for number, section in zip(itertools.count(), sections, strict=False):
        ours, theirs = Scenario(), Scenario()
        theirs.rig = KafkaRig(states, topics, prefix := f"{number} ")
        for event in section.splitlines():
            if event.startswith("t="):
                expected = answers(theirs.run(event))
                assert expected
                assert answers(ours.run(event)) == expected, f"section {number}, {event}"
        found = shown_log(ours.rig.log)
        assert found
        assert found == shown_log(as_ours(kafka_log(broker), names, prefix))
