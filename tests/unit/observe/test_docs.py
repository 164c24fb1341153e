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
from penstock.observe.table import METRICS
from unit.observe.test_requests import SERIES_PER_API

ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs" / "observability.md").read_text()


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What a running node shows once every kind of metric has something to say."""
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

    return uvloop.run(scrape())


@pytest.fixture(scope="module")
def shown(text: str) -> set[str]:
    """The names of the metrics in it."""
    return set(re.findall(r"^# TYPE (\S+)", text, re.MULTILINE))


def test_the_table_has_exactly_the_metrics_of_a_node(text: str) -> None:
    kinds = dict(re.findall(r"^# TYPE (\S+) (\S+)", text, re.MULTILINE))
    assert kinds == {metric.name: metric.kind for metric in METRICS.values()}
    labels = {name: set(metric.labels) for name, metric in METRICS.items()}
    for name, pairs in re.findall(r"^(\w+)\{(.*)\} \S+$", text, re.MULTILINE):
        metric = name if name in METRICS else re.sub(r"_(bucket|sum|count)$", "", name)
        assert set(re.findall(r'(\w+)="', pairs)) - {"le"} == labels[metric]


def test_the_page_lists_exactly_the_metrics_of_a_node(shown: set[str]) -> None:
    rows = "\n".join(line for line in PAGE.splitlines() if line.startswith("| `"))
    listed = set(re.findall(r"`((?:penstock|process)_\w+)`", rows))
    assert listed == shown


def test_the_page_tells_their_kinds() -> None:
    rows = re.findall(
        r"^\| (`\w+`(?:, `\w+`)*) \| (counter|gauge|histogram) \|", PAGE, re.MULTILINE
    )
    told = {name: kind for names, kind in rows for name in re.findall(r"\w+", names)}
    assert len(told) > len(METRICS) / 2, "the rows have another form now"
    assert told.items() <= {(metric.name, metric.kind) for metric in METRICS.values()}


def test_the_page_tells_what_thinned_histograms_cost() -> None:
    for value, series in SERIES_PER_API.items():
        assert re.search(rf"^\| `{value}`.* \| {series} \| {20 * series:,} \|$", PAGE, re.MULTILINE)


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
