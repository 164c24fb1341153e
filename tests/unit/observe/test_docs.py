"""docs/observability.md says what is so: every metric, and its examples."""

from __future__ import annotations

import ast
import json
import logging
import re
from collections.abc import Iterator
from datetime import datetime
from http import HTTPStatus
from pathlib import Path

from penstock.base.errors import ErrorCode
from penstock.base.ids import TopicPartition
from penstock.observe.http import json_response
from penstock.observe.logs import JsonFormatter, TextFormatter
from penstock.observe.loop_lag import loop_lag_histogram
from penstock.observe.metrics import Registry
from penstock.observe.requests import RequestMetrics
from penstock.observe.standard import (
    CleanerMetrics,
    ConnectionMetrics,
    LogDirMetrics,
    PartitionMetrics,
    TopicMetrics,
    add_process_metrics,
)

ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs" / "observability.md").read_text()
REGISTERS = frozenset({"counter", "counters", "gauge", "gauges", "histogram", "histograms"})


class EmptyLog:
    size_bytes = log_start_offset = log_end_offset = 0


def registered_in(path: Path) -> Iterator[str]:
    """The names that calls like `registry.counter("penstock_...", ...)` in a module register."""
    for node in ast.walk(ast.parse(path.read_text())):
        match node:
            case ast.Call(func=ast.Attribute(attr=attr), args=[ast.Constant(value=str(name)), *_]):
                if attr in REGISTERS:
                    yield name


def metrics_of_the_code() -> set[str]:
    """What the standard metrics show, and what any room registers beside them."""
    registry = Registry()
    requests = RequestMetrics(registry, {0: "Produce"})
    requests.record(0, 1, 1, 1, 1)
    requests.error(0, ErrorCode.INVALID_REQUEST)
    TopicMetrics(registry, per_topic=True).topic("a")
    logs = {TopicPartition("a", 0): EmptyLog()}
    PartitionMetrics(registry, logs.items, per_partition=True)
    ConnectionMetrics(registry).refused("max.connections")
    LogDirMetrics(registry)
    CleanerMetrics(registry)
    loop_lag_histogram(registry)
    add_process_metrics(registry)
    shown = set(re.findall(r"^# TYPE (\S+)", registry.render().decode(), re.MULTILINE))
    sources = (ROOT / "src").rglob("*.py")
    return shown | {name for path in sources for name in registered_in(path)}


def test_the_page_lists_exactly_the_metrics_of_the_code() -> None:
    rows = "\n".join(line for line in PAGE.splitlines() if line.startswith("| `"))
    listed = set(re.findall(r"`((?:penstock|process)_\w+)`", rows))
    assert listed == metrics_of_the_code()


def test_the_expressions_name_metrics_that_exist() -> None:
    known = metrics_of_the_code()
    named = set(re.findall(r"\b(?:penstock|process)_\w+", PAGE)) - {"penstock_topic_"}
    assert {re.sub(r"_bucket$", "", name) for name in named} - known == set()


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
