"""Whom a measurement talks to: a broker that runs already, or one started for it; and its topic."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from enum import StrEnum
from typing import Annotated, NamedTuple

import typer

from penstock.cli.access import Access
from penstock.cli.bench import broker
from penstock.cli.bench.report import CpuMeter
from penstock.cli.errors import CliError, usage_error
from penstock.cli.kafka import Cluster
from penstock.cli.topic.create import create_topic
from penstock.kafka.client import Address

WARM_UP_S = 1.0


class Client(StrEnum):
    RAW = "raw"
    CONFLUENT = "confluent"


ClientOption = Annotated[
    Client,
    typer.Option("--client", help="raw: pre-encoded requests; confluent: through librdkafka."),
]
Seconds = Annotated[float, typer.Option("--seconds", min=0.1, help="How long to measure.")]
Json = Annotated[bool, typer.Option("--json", help="The same as --format json.")]
BrokerPid = Annotated[
    int | None,
    typer.Option("--broker-pid", min=1, help="Process whose CPU time is the broker's."),
]
Http = Annotated[
    str | None,
    typer.Option(
        "--http", metavar="HOST:PORT", help="Read the broker's CPU time from its /metrics."
    ),
]
Start = Annotated[
    bool,
    typer.Option(
        "--start",
        help="Start a node for this, on core 0 with temporary data; the load runs on core 1.",
    ),
]
Dir = Annotated[
    str | None,
    typer.Option(
        "--dir",
        metavar="DIR",
        help="Where --start puts its data; the system's temporary folder if left out.",
    ),
]


Touch = Annotated[
    str,
    typer.Option(
        "--touch-memory",
        metavar="SIZE",
        help="Write to so much memory before: a virtual machine's memory is slow at first use.",
    ),
]


class Target(NamedTuple):
    cluster: Cluster
    meter: CpuMeter


@contextmanager
def target(
    access: Access,
    pid: int | None,
    http: str | None,
    start: bool,
    folder: str | None,
) -> Iterator[Target]:
    """The broker to measure, with the clock of its CPU time."""
    if not start:
        if pid is not None and http is not None:
            raise usage_error("--broker-pid and --http say the same: give one of them")
        clock = (
            broker.process_cpu_clock(pid) if pid else broker.http_cpu_clock(http) if http else None
        )
        yield Target(Cluster(access), CpuMeter(clock))
        return
    if pid is not None or http is not None:
        raise usage_error(
            "--start measures the node that it starts: leave out --broker-pid and --http"
        )
    with broker.temporary_data_dir(folder) as data_dir, broker.running_node(data_dir) as node:
        broker.pin(broker.LOAD_CORE)
        started = Access.of(node.bootstrap, access.timeout_s)
        yield Target(Cluster(started), CpuMeter(broker.process_cpu_clock(node.pid)))


@contextmanager
def bench_topic(cluster: Cluster, partitions: int) -> Iterator[str]:
    """A topic that exists only while it is measured."""
    name = f"penstock-bench-{os.getpid()}"
    admin = cluster.admin()
    create_topic(cluster, admin, name, partitions, None, {}, may_exist=False)
    try:
        yield name
    finally:
        with suppress(
            CliError
        ):  # the measurement's own error matters more than a topic left behind
            cluster.wait(admin.delete_topics([name])[name], f"delete topic {name!r}")


def leader_address(cluster: Cluster, topic: str) -> Address:
    """Where the raw load connects: the one leader of all partitions."""
    admin = cluster.admin()
    deadline = time.monotonic() + cluster.timeout_s
    while time.monotonic() < deadline:
        metadata = admin.list_topics(timeout=cluster.timeout_s)
        found = metadata.topics.get(topic)
        leaders = {p.leader for p in found.partitions.values()} if found else set()
        if len(leaders) > 1 and -1 not in leaders:
            raise CliError(
                "the raw load speaks to one broker, but the partitions have several leaders:"
                " use --client confluent"
            )
        if leaders and (broker := metadata.brokers.get(min(leaders))):
            return str(broker.host), broker.port
        time.sleep(0.05)
    raise CliError(
        f"topic {topic!r} got no leader within {cluster.timeout_s:g} s: look at the broker's log"
    )
