"""Plays `kafka_agrees*.txt` of tests/scenario/metadata to Apache Kafka: its answers must be those
that the controller gives there.

Only answers are compared, not records, and those of one command in any order: Kafka's come out of
hash tables.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.base.errors import ApiError, ErrorCode
from penstock.base.steps import Steps
from penstock.wire.schema import Message
from scenario.metadata.security_scenario import SecurityScenario
from support import reference
from support.raw import Closed, RawClient
from support.reference import KafkaProcess

SCENARIOS = Path(__file__).parents[1] / "scenario" / "metadata"
FILES = sorted(SCENARIOS.glob("kafka_agrees*.txt"))
SETTINGS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}

pytestmark = pytest.mark.java


class KafkaController:
    """The decisions that scenarios ask for, made by Apache Kafka."""

    def __init__(self, kafka: KafkaProcess) -> None:
        self._kafka = kafka

    def ask(self, request: Message) -> Any:
        with RawClient(self._kafka.host, self._kafka.port) as client:
            return client.call(request, request.VERSIONS[-1])

    def _asked(self, request: Message) -> Steps[tuple[list[Any], Any]]:
        yield
        return [], self.ask(request)

    create_acls = delete_acls = alter_user_scram_credentials = alter_client_quotas = _asked


class KafkaScenario(SecurityScenario):
    def __init__(self, kafka: KafkaProcess) -> None:
        self._kafka = kafka
        super().__init__()

    def take_over(self) -> None:
        self.controller = KafkaController(self._kafka)  # type: ignore[assignment]

    def describe(self, request: Any) -> Any:
        response = self.controller.ask(request)  # type: ignore[attr-defined]
        if response.error_code and not hasattr(response, "resources"):
            raise ApiError(ErrorCode(response.error_code), response.error_message)
        return response

    def run(self, line: str) -> Iterator[str]:
        try:
            yield from super().run(line)
        except Closed:
            yield "= closed"


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaProcess]:
    reason = reference.missing()
    if reason:
        pytest.skip(reason)
    with KafkaProcess(tmp_path_factory.mktemp("referee"), SETTINGS) as broker:
        yield broker


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_kafka_agrees(kafka: KafkaProcess, file: Path) -> None:
    theirs = KafkaScenario(kafka)
    apart = []
    commands = file.read_text(encoding="utf-8").split("\n> ")
    for command in commands[1:]:
        line, *following = command.splitlines()
        expected = sorted(answer for answer in following if answer.startswith("= "))
        found = sorted(theirs.run(line))
        if found != expected:
            apart.append("\n".join([f"> {line}", *found]))
    assert not apart, "Apache Kafka answers:\n" + "\n".join(apart)


def test_there_are_scenarios() -> None:
    assert FILES
