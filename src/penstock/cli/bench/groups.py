"""`penstock bench groups`: how fast groups rebalance, what they move, and what idle ones cost."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from typing import Annotated, Any

import typer

from penstock.cli.access import Access
from penstock.cli.bench import raw_groups
from penstock.cli.bench.broker import touch_memory
from penstock.cli.bench.idle import SPARE_DESCRIPTORS, allow_descriptors
from penstock.cli.bench.raw_groups import Coordinator
from penstock.cli.bench.report import CpuMeter, print_result
from penstock.cli.bench.target import (
    BrokerPid,
    Dir,
    Http,
    Json,
    Seconds,
    Start,
    Touch,
    bench_topic,
    target,
)
from penstock.cli.options import (
    Format,
    OutputFormat,
)
from penstock.cli.values import parse_size
from penstock.kafka.brokers import GROUP

SETTLE_S = 1.0
ANSWER_S_MAX = 120.0
HEARTBEAT_INTERVAL_S = 3.0


def groups(
    access: Access,
    members: Annotated[
        int, typer.Option("--members", min=2, help="Members of the groups that rebalance.")
    ] = 100,
    partitions: Annotated[
        int, typer.Option("--partitions", min=1, help="Partitions that they share.")
    ] = 1000,
    idle_groups: Annotated[
        int, typer.Option("--groups", min=0, help="Idle groups whose CPU time is read.")
    ] = 1000,
    seconds: Seconds = 5.0,
    broker_pid: BrokerPid = None,
    http: Http = None,
    start: Start = False,
    folder: Dir = None,
    touch: Touch = "0",
    json: Json = False,
    output_format: OutputFormat = Format.TEXT,
) -> None:
    """Rebalance a group in both protocols and read the CPU time of idle groups."""
    touch_memory(parse_size(touch))
    allow_descriptors(max(members, idle_groups) + SPARE_DESCRIPTORS)
    result: dict[str, Any] = {"bench": "groups", "members": members, "partitions": partitions}
    with (
        target(access, broker_pid, http, start, folder) as (cluster, meter),
        bench_topic(cluster, partitions) as topic,
    ):
        prefix = f"penstock-bench-{os.getpid()}"
        address = cluster.coordinator(GROUP, prefix, "find the coordinator")
        client = replace(cluster.access.client, answer_s=ANSWER_S_MAX)
        coordinator = raw_groups.Coordinator(address, client, topic, partitions)
        result |= raw_groups.classic_rebalance(coordinator, f"{prefix}-classic", members)
        result |= raw_groups.consumer_join(coordinator, f"{prefix}-consumer", members)
        if idle_groups and meter.read() is not None:
            result |= _idle(coordinator, meter, prefix, idle_groups, seconds)
    print_result(result, as_json=json or output_format is Format.JSON)


def _idle(
    coordinator: Coordinator, meter: CpuMeter, prefix: str, count: int, seconds: float
) -> dict[str, Any]:
    """Cores that the broker keeps busy: without groups of ours, then with `count` of each kind."""

    def cores() -> float:
        time.sleep(SETTLE_S)
        meter.restart()
        time.sleep(seconds)
        return round((meter.read() or 0.0) / seconds, 4)

    result: dict[str, Any] = {"groups": count, "no_groups_cores": cores()}
    names = [f"{prefix}-offsets-{i}" for i in range(count)]
    raw_groups.commit_offsets(coordinator, names)
    result["offsets_only_cores"] = cores()
    raw_groups.join_and_leave(coordinator, [f"{prefix}-empty-{i}" for i in range(count)])
    result["empty_cores"] = cores()
    with raw_groups.lone_members(coordinator, [f"{prefix}-one-{i}" for i in range(count)]) as held:
        result["one_member_cores"] = cores()
        meter.restart()
        result["heartbeats"] = held.beat(HEARTBEAT_INTERVAL_S, seconds)
        result["heartbeat_cores"] = round((meter.read() or 0.0) / seconds, 4)
    return result
