"""What partitions cost on one node: to make, list, describe, write to, hold, and start with.

Of every size a node of its own is started. Each partition gets a message, so that its log is open
and has something to recover; what the memory was before is told, too, since a node opens a log when
it is first used.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from tests.support.node import NodeProcess

from penstock.cli.bench.raw_groups import Coordinator, classic_rebalance, consumer_join
from penstock.kafka.brokers import GROUP, Brokers
from penstock.kafka.client import Client

from .calls import ANSWER_S_MAX, Caller, topic_names
from .nodes import address, busy_cores, metric, rss_mb, single_node, start, stop, until

RECOVER_S_MAX = 900.0
LOOK_S = 0.5
MEMBERS = 20
"""Of a group that shares the partitions of one topic."""


def many(root: Path, partitions: int, seconds: float, per_topic: int) -> dict[str, Any]:
    """`partitions` partitions in topics of `per_topic`: the whole life of a node with them."""
    names = topic_names(max(1, partitions // per_topic))
    total = len(names) * per_topic
    found: dict[str, Any] = {"topics": len(names), "partitions": total}
    with single_node(root) as node:
        empty = node.rss_bytes()
        found |= _make(node, names, per_topic)
        with Caller(address(node)) as caller:
            began, cpu = time.perf_counter(), node.cpu_seconds()
            caller.publish_each(names, range(per_topic))
            found["first_message_ms_each"] = _ms_each(time.perf_counter() - began, total)
            found["first_message_cpu_ms_each"] = _ms_each(node.cpu_seconds() - cpu, total)
        found["idle_cores"] = busy_cores([node], seconds)
        found["open_files"] = node.open_files()
        found["rss_mb"] = rss_mb(node)
        found["bytes_each"] = (node.rss_bytes() - empty) // total
        found |= _start_again(node, total)
    return found


def _make(node: NodeProcess, names: list[str], per_topic: int) -> dict[str, Any]:
    """Create, list all, describe one."""
    total = len(names) * per_topic
    with Caller(address(node)) as caller:
        cpu = node.cpu_seconds()
        took = caller.create(names, per_topic)
        made = node.cpu_seconds() - cpu
        before = node.cpu_seconds()
        everything = caller.metadata()
        listed = node.cpu_seconds() - before
        one = min(caller.metadata([names[-1]]).seconds for _ in range(5))
    return {
        "create_s": round(sum(took), 3),
        "create_cpu_ms_each": _ms_each(made, total),
        "create_slowest_request_s": round(max(took), 3),
        "list_s": round(everything.seconds, 3),
        "list_cpu_s": round(listed, 2),
        "list_bytes": len(everything.data),
        "describe_one_topic_ms": round(1000 * one, 2),
        "rss_created_mb": rss_mb(node),
    }


def _start_again(node: NodeProcess, total: int) -> dict[str, Any]:
    """After kill -9, with a message in each log that was never flushed; then after a clean stop."""
    node.kill()
    found: dict[str, Any] = {"start_after_kill_s": round(start(node), 2)}
    # Ready at once: the logs that nobody has asked for are checked meanwhile.
    found["recovered_s"] = round(
        until(
            lambda: (metric(node, "penstock_partitions") or 0) >= total,
            RECOVER_S_MAX,
            "all logs to be checked",
            LOOK_S,
        ),
        2,
    )
    found["recovered_rss_mb"] = rss_mb(node)
    found["stop_s"] = round(stop(node), 2)
    found["start_s"] = round(start(node), 2)
    found["start_rss_mb"] = rss_mb(node)
    return found


def _ms_each(seconds: float, count: int) -> float:
    return round(1000 * seconds / count, 4)


def one_topic(root: Path, partitions: int, _seconds: float) -> dict[str, Any]:
    """One topic with all the partitions, and a group over it in both protocols."""
    [name] = topic_names(1)
    found: dict[str, Any] = {"partitions": partitions}
    # The pause before a group's first generation says nothing of its size.
    with single_node(root, {"group.initial.rebalance.delay.ms": "0"}) as node:
        with Caller(address(node)) as caller:
            found["create_s"] = round(sum(caller.create([name], partitions)), 3)
            answers = [caller.metadata([name]) for _ in range(5)]
            found["metadata_ms"] = round(1000 * min(a.seconds for a in answers), 2)
            found["metadata_bytes"] = len(answers[0].data)
            began = time.perf_counter()
            caller.publish_each([name], range(partitions))
            found["first_message_ms_each"] = _ms_each(time.perf_counter() - began, partitions)
        prefix = f"scale-{os.getpid()}"
        client = Client("scale", answer_s=ANSWER_S_MAX)
        with Brokers([address(node)], ANSWER_S_MAX, client) as brokers:
            where = brokers.coordinator(GROUP, prefix)
        coordinator = Coordinator(where, client, name, partitions)
        found |= classic_rebalance(coordinator, f"{prefix}-classic", MEMBERS)
        found |= consumer_join(coordinator, f"{prefix}-consumer", MEMBERS)
        found["rss_mb"] = rss_mb(node)
    return found
