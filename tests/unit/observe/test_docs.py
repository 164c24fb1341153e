"""docs/observability.md says what is so: every metric, and its examples."""

from __future__ import annotations

import json
import logging
import re
from datetime import datetime
from http import HTTPStatus
from pathlib import Path

import pytest
import uvloop

from penstock.base.errors import ErrorCode
from penstock.config.broker_config import broker_config
from penstock.node.node import Node
from penstock.observe.http import json_response
from penstock.observe.logs import JsonFormatter, TextFormatter
from penstock.observe.requests import RequestTimes

ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs" / "observability.md").read_text()


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """The metrics that a running node shows once every kind of them has something to say."""
    texts = {
        "log.dir": str(tmp_path_factory.mktemp("data")),
        "listeners": "PLAINTEXT://127.0.0.1:0",
        "penstock.http.listen": "",
    }

    async def scrape() -> str:
        node = Node(broker_config(texts))
        await node.start()
        assert node.metrics is not None
        request = RequestTimes(0, 1, 2)
        request.local_done_ns, request.ready_ns, request.sent_ns = 3, 4, 5
        node.metrics.requests.answered(request)
        node.metrics.requests.error(0, ErrorCode.INVALID_REQUEST)
        node.metrics.topics.topic("a")
        text = node.metrics.registry.render().decode()
        await node.stop()
        return text

    return set(re.findall(r"^# TYPE (\S+)", uvloop.run(scrape()), re.MULTILINE))


def test_the_page_lists_exactly_the_metrics_of_a_node(shown: set[str]) -> None:
    rows = "\n".join(line for line in PAGE.splitlines() if line.startswith("| `"))
    listed = set(re.findall(r"`((?:penstock|process)_\w+)`", rows))
    assert listed == shown


def test_the_expressions_name_metrics_that_exist(shown: set[str]) -> None:
    named = set(re.findall(r"\b(?:penstock|process)_\w+", PAGE)) - {"penstock_topic_"}
    assert {re.sub(r"_bucket$", "", name) for name in named} - shown == set()


def test_the_two_forms_of_a_log_line_are_as_shown() -> None:
    fields = {
        "name": "penstock.log",
        "levelname": "WARNING",
        "msg": "the disk is full",
        "created": datetime.fromisoformat("2026-01-31T12:00:00Z").timestamp(),
        "dir": "penstock-data",
        "free_bytes": 0,
    }
    record = logging.makeLogRecord(fields)
    assert TextFormatter(colour=False).format(record) in PAGE.splitlines()
    assert JsonFormatter().format(record) in PAGE.splitlines()


def test_a_health_page_is_as_shown() -> None:
    shown = json_response(HTTPStatus.OK, status="ok", reason="serving").body.decode().rstrip()
    assert json.loads(shown)["status"] == "ok"
    assert shown in PAGE.splitlines()
