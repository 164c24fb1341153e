"""Plays `kafka_agrees.txt` of tests/scenario/groups_classic to Apache Kafka and to a group of ours:
the answers must be the same.

Member ids are numbered in the order in which they are seen, and the members that a leader is shown
are sorted: Kafka keeps them in no order.
"""

from __future__ import annotations

import re
import select
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.base.errors import ErrorCode
from penstock.coordinator.effects import Effects
from penstock.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from penstock.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from scenario.groups_classic.scenario import Client, Scenario
from support import reference
from support.group_calls import await_coordinator
from support.process import BrokerProcess
from support.raw import RawClient
from support.reference import KafkaProcess

SCENARIOS = Path(__file__).parents[1] / "scenario" / "groups_classic"
FILE = SCENARIOS / "kafka_agrees.txt"
SETTINGS = {
    "auto.create.topics.enable": "false",
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "1",
}
QUIET_SECONDS = 0.3
"""A request that has no answer after this time is taken to wait."""
TOPIC = "committed"
MEMBER_ID = re.compile(r"\b([a-z]\w*)(?:-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|#\d+)")

pytestmark = pytest.mark.java


class KafkaGroup:
    """What a scenario needs of a rig, with Apache Kafka behind it; a connection per request."""

    def __init__(self, broker: BrokerProcess, group_id: str) -> None:
        self.now = 0
        self.waiting: dict[int, tuple[RawClient, Any, int]] = {}
        self.answers: dict[int, Any] = {}
        self._broker = broker
        self.group_id = group_id
        self._last = 0

    def next_timer(self) -> None:
        return None

    def connect(self, client_id: str) -> RawClient:
        return RawClient(self._broker.host, self._broker.port, client_id)

    def send(self, request: Any, version: int | None, client_id: str) -> tuple[int, Effects]:
        version = request.VERSIONS[-1] if version is None else version
        request.group_id = self.group_id
        client = self.connect(client_id)
        client.send(request, version)
        self._last += 1
        self.waiting[self._last] = (client, type(request), version)
        self._collect()
        return self._last, Effects()

    def _collect(self) -> None:
        """Take in answers until none has come for a while."""
        end = time.monotonic() + QUIET_SECONDS
        while (left := end - time.monotonic()) > 0:
            sockets = {client.socket: token for token, (client, _, _) in self.waiting.items()}
            if not sockets:
                return
            for readable in select.select(list(sockets), [], [], left)[0]:
                token = sockets[readable]
                client, kind, version = self.waiting.pop(token)
                self.answers[token] = client.receive(kind, version)
                client.close()
                end = time.monotonic() + QUIET_SECONDS


class KafkaScenario(Scenario):
    def __init__(self, broker: BrokerProcess, group_id: str) -> None:
        super().__init__()
        self.kafka = KafkaGroup(broker, group_id)
        self.rig = self.kafka  # type: ignore[assignment]

    def effects(self, effects: Effects) -> Iterator[str]:
        yield from self.new_answers()

    def do_config(self, words: list[str], options: dict[str, str]) -> Iterator[str]:
        yield from ()

    def do_commit(self, words: list[str], options: dict[str, str]) -> Iterator[str]:
        (name,) = words
        client = self.clients.setdefault(name, Client())
        partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=1)
        request = OffsetCommitRequest(
            group_id=self.kafka.group_id,
            generation_id_or_member_epoch=int(options.get("gen", client.generation)),
            member_id=self.member_id(client, options),
            group_instance_id=self.static(client, options),
            topics=[OffsetCommitRequestTopic(name=TOPIC, partitions=[partition])],
        )
        with self.kafka.connect(name) as connection:
            answer = connection.call(request, 8)
        yield f"{name}: {ErrorCode(answer.topics[0].partitions[0].error_code).name}"


class Plain:
    """Answers as lines that do not depend on who gave them."""

    def __init__(self) -> None:
        self._numbers: dict[str, str] = {}

    def __call__(self, lines: list[str]) -> list[str]:
        answers = [line for line in lines if re.match(r"\w+: (?!parked)", line)]
        return sorted(map(self._plain, sorted(answers, key=lambda line: line.split(":")[0])))

    def _plain(self, line: str) -> str:
        line = MEMBER_ID.sub(self._number, line)
        return re.sub(
            r"members=(\S+)", lambda m: "members=" + ",".join(sorted(m[1].split(","))), line
        )

    def _number(self, found: re.Match[str]) -> str:
        taken = sum(known.startswith(found[1] + "@") for known in self._numbers.values())
        return self._numbers.setdefault(found[0], f"{found[1]}@{taken + 1}")


@pytest.fixture(scope="module")
def kafka_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    if (reason := reference.missing()) is not None:
        pytest.skip(reason)
    with KafkaProcess(tmp_path_factory.mktemp("kafka"), SETTINGS) as broker:
        with RawClient(broker.host, broker.port) as client:
            topic = CreatableTopic(name=TOPIC, num_partitions=1, replication_factor=1)
            assert client.call(CreateTopicsRequest(topics=[topic]), 7).topics[0].error_code == 0
            await_coordinator(client, "any")
        yield broker


def test_apache_kafka_gives_the_same_answers(kafka_broker: BrokerProcess) -> None:
    sections = FILE.read_text(encoding="utf-8").split("---\n")
    for number, section in enumerate(sections):
        ours, theirs = Scenario(), KafkaScenario(kafka_broker, f"group-{number}")
        plain_ours, plain_theirs = Plain(), Plain()
        for event in (line for line in section.splitlines() if line.startswith("t=")):
            mine = list(ours.run(event))
            mine += ours.let_time_pass(ours.rig.now)
            expected = plain_theirs(list(theirs.run(event)))
            assert plain_ours(mine) == expected, f"{event}: Kafka answers differently"
