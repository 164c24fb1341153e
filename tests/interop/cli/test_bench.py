"""`penstock bench` against a real broker: the figures are there and hang together."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from support.process import BrokerProcess
from support.waiting import eventually

Run = Callable[..., Any]
CPU_ROUNDING_S = 0.0005
"""The CPU time is told in milliseconds, and a short run on a busy machine uses few of them."""
SHORT = ("--seconds", "0.3", "--json")


@pytest.mark.parametrize(
    "options",
    [
        ("--batch-bytes", "16K", "--request-bytes", "64K"),
        ("--batch-bytes", "0", "--connections", "8", "--depth", "1"),
        ("--acks", "0"),
        ("--client", "confluent"),
    ],
)
def test_produce(node: BrokerProcess, run: Run, options: tuple[str, ...]) -> None:
    def measured() -> Any:
        found = run("bench", "produce", *options, *SHORT, "--broker-pid", str(node.pid)).json()
        assert found["broker_cpu_s"] > 0, "less than the kernel counts, where others are busy"
        return found

    found = eventually(measured)
    assert found["messages"] > 0
    assert found["messages_per_s"] == pytest.approx(found["messages"] / found["seconds"], rel=0.01)
    cpu_s = found["messages"] / found["messages_per_core_s"]
    assert cpu_s == pytest.approx(found["broker_cpu_s"], rel=0.001, abs=CPU_ROUNDING_S)


@pytest.mark.parametrize("client", ["raw", "confluent"])
def test_consume(run: Run, client: str) -> None:
    found = run("bench", "consume", "--fill-bytes", "1M", "--client", client, *SHORT).json()
    assert found["messages"] > 0
    assert found["mb_per_s"] > 0
    assert "broker_cpu_s" not in found


@pytest.mark.parametrize("client", ["raw", "confluent"])
def test_latency(run: Run, client: str) -> None:
    found = run("bench", "latency", "--rate", "200", "--client", client, *SHORT).json()
    assert found["messages"] == 60
    assert 0 < found["p50_ms"] <= found["p99_ms"] <= found["p999_ms"] <= found["max_ms"]


def test_the_topic_is_gone_afterwards(run: Run) -> None:
    run("bench", "latency", "--rate", "100", *SHORT)
    assert "penstock-bench" not in run("topic", "list").out


def test_a_batch_that_the_broker_refuses_ends_the_measurement(run: Run) -> None:
    refused = run("bench", "produce", "--message-bytes", "3M", *SHORT)
    assert refused.code == 1
    assert "MESSAGE_TOO_LARGE" in refused.sentence


def test_a_process_that_is_not_there_is_told(run: Run) -> None:
    refused = run("bench", "produce", *SHORT, "--broker-pid", "99999999")
    assert refused.sentence == "no process 99999999 to read CPU time from: check --broker-pid"


@pytest.mark.penstock_only
def test_cpu_time_by_metrics(node: Any, run: Run) -> None:
    address = f"{node.host}:{node.http_port}"
    assert run("bench", "produce", *SHORT, "--http", address).json()["broker_cpu_s"] > 0


@pytest.mark.penstock_only
def test_a_node_is_started_for_the_measurement(run_at: Run) -> None:
    found = run_at("127.0.0.1:1", "bench", "produce", "--start", *SHORT).json()
    assert found["messages_per_core_s"] > 0


@pytest.mark.penstock_only
def test_startup(run_at: Run) -> None:
    options = ("--partitions", "20", "--kill", "--repeat", "1")
    text = run_at("127.0.0.1:1", "bench", "startup", *options).out
    assert re.search(r"^ready s median\s+\d", text, re.MULTILINE)
    assert re.search(r"^after\s+kill$", text, re.MULTILINE)


@pytest.mark.penstock_only
def test_idle(run_at: Run) -> None:
    found = run_at("127.0.0.1:1", "bench", "idle", "--connections", "50", "--json").json()
    assert found["connections"] == 50
    assert found["rss_mb"] > 5
    assert found["rss_with_connections_mb"] >= found["rss_mb"] / 2
