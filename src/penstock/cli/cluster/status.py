"""`penstock cluster status`: at a glance, is the cluster well, and how evenly does load lie?

The exit code tells a script the same: 0 healthy, 3 not, 1 when nobody could be asked.
"""

from __future__ import annotations

import time
from typing import Annotated, Any

import typer

from penstock.cli.access import Access
from penstock.cli.cluster.asking import Brokers
from penstock.cli.cluster.configs import read_min_isr
from penstock.cli.cluster.health import Health, is_away, judge, skew, under_replicated
from penstock.cli.cluster.nodes import node_facts, print_nodes
from penstock.cli.cluster.state import ClusterState, Quorum, Replica, gather
from penstock.cli.options import (
    Format,
    OutputFormat,
)
from penstock.cli.output import (
    clear_screen,
    plural,
    print_json,
    print_pairs,
    print_table,
    remark,
    title,
)

EXIT_DEGRADED = 3
WORST_SHOWN_MAX = 10


def status(
    access: Access,
    watch: Annotated[
        float | None,
        typer.Option(
            "--watch",
            min=0.1,
            metavar="SECONDS",
            help="Show it again after so many seconds, until Ctrl-C.",
        ),
    ] = None,
    output_format: OutputFormat = Format.TEXT,
) -> int:
    """Show the quorum, the nodes, partitions in danger, moves under way and skew; exit code 3
    when data is unavailable or has lost safety.
    """
    brokers = Brokers(access)
    if watch is None:
        return _show_once(brokers, output_format)
    try:
        while True:
            clear_screen()
            _show_once(brokers, output_format)
            time.sleep(watch)
    except KeyboardInterrupt:
        return 0


def _show_once(brokers: Brokers, output_format: Format) -> int:
    state = gather(brokers)
    short = sorted({p.topic for p in under_replicated(state)})
    health = judge(state, read_min_isr(brokers, short))
    if output_format is Format.JSON:
        print_json(facts(state, health))
    else:
        _print(state, health)
    return 0 if health.is_healthy else EXIT_DEGRADED


def facts(state: ClusterState, health: Health) -> dict[str, Any]:
    """Everything for programs."""
    return {
        "cluster_id": state.cluster_id,
        "healthy": health.is_healthy,
        "quorum": None if state.quorum is None else _quorum_facts(state.quorum),
        "nodes": node_facts(state),
        "partitions": len(state.partitions),
        "unreachable": health.unreachable,
        "leaderless": [str(p) for p in health.leaderless],
        "leader_unreachable": [str(p) for p in health.leader_unreachable],
        "under_min_isr": [str(p) for p in health.under_min_isr],
        "under_replicated": [str(p) for p in health.under_replicated],
        "failed_folders": [
            {"node": node, "folder": folder} for node, folder in health.failed_folders
        ],
        "reassignments": [
            {
                "topic": r.topic,
                "partition": r.number,
                "replicas": list(r.replicas),
                "adding": list(r.adding),
                "removing": list(r.removing),
            }
            for r in state.reassignments.values()
        ],
        "skew": {name: round(value, 3) for name, value in skew(state)._asdict().items()},
        "features": {f.name: f.finalized for f in state.features.values()},
        "problems": state.problems,
    }


def _quorum_facts(quorum: Quorum) -> dict[str, Any]:
    def replica(of: Replica) -> dict[str, Any]:
        return {
            "id": of.id,
            "end_offset": of.end_offset,
            "lag": of.lag,
            "silent_ms": of.silent_ms,
            "away": is_away(of),
        }

    return {
        "leader": quorum.leader,
        "epoch": quorum.epoch,
        "high_watermark": quorum.high_watermark,
        "voters": [replica(of) for of in quorum.voters],
        "observers": [replica(of) for of in quorum.observers],
    }


def _print(state: ClusterState, health: Health) -> None:
    title(f"cluster {state.cluster_id}: {_verdict(health)}")
    even = skew(state)
    print_pairs(
        [
            ("quorum", _quorum_text(state.quorum)),
            ("voters", _replicas_text(state.quorum, voters=True)),
            ("observers", _replicas_text(state.quorum, voters=False)),
            ("partitions", _partitions_text(state, health)),
            ("moving", _moving_text(state)),
            (
                "skew",
                f"leaders {even.leaders:.2f}, replicas {even.replicas:.2f}, disk {even.disk:.2f}"
                " (largest/mean)",
            ),
            ("features", _features_text(state)),
        ]
    )
    print_nodes(state)
    _print_worst(health)
    for node, folder in health.failed_folders:
        remark(
            f"{folder} on node {node} serves nobody: the log of that node says why; start the node"
            " anew, and it checks the folder"
        )
    for problem in state.problems:
        remark(problem)


def _verdict(health: Health) -> str:
    if health.is_healthy:
        return "healthy"
    troubles = [
        (not health.has_quorum, "the quorum has no leader"),
        (health.unreachable, "some nodes cannot be reached"),
        (health.leaderless or health.leader_unreachable, "some data cannot be read or written"),
        (health.under_min_isr, "some data cannot be written with acks=all"),
        (health.under_replicated, "some data has fewer copies than it should"),
        (health.voters_away, "not all voters are there"),
        (health.failed_folders, "some replicas were stopped"),
        (not health.is_known and not health.unreachable, "not all could be asked"),
    ]
    return "degraded: " + ", ".join(text for is_so, text in troubles if is_so)


def _quorum_text(quorum: Quorum | None) -> str:
    if quorum is None or quorum.leader < 0:
        return "no leader is known"
    return f"leader {quorum.leader}, epoch {quorum.epoch}, high watermark {quorum.high_watermark}"


def _replicas_text(quorum: Quorum | None, *, voters: bool) -> str:
    if quorum is None:
        return "unknown"
    texts = []
    for replica in quorum.voters if voters else quorum.observers:
        if is_away(replica):
            since = "" if replica.silent_ms is None else f" for {replica.silent_ms / 1000:.0f} s"
            texts.append(f"{replica.id} (away{since})")
        elif replica.id == quorum.leader:
            texts.append(f"{replica.id} (leader)")
        else:
            texts.append(f"{replica.id} ({replica.lag} behind)")
    return ", ".join(texts) or "none"


def _partitions_text(state: ClusterState, health: Health) -> str:
    topics = len({topic for topic, _ in state.partitions})
    of = f"{plural(len(state.partitions), 'partition')} of {plural(topics, 'topic')}"
    return (
        f"{of}: {len(health.leaderless)} without a leader,"
        f" {len(health.leader_unreachable)} whose leader cannot be reached,"
        f" {len(health.under_min_isr)} under min ISR,"
        f" {len(health.under_replicated)} under-replicated"
    )


def _moving_text(state: ClusterState) -> str:
    count = len(state.reassignments)
    return f"{plural(count, 'partition')} being reassigned" if count else "nothing"


def _features_text(state: ClusterState) -> str:
    return ", ".join(f"{f.name} {f.finalized}" for f in state.features.values()) or "unknown"


def _print_worst(health: Health) -> None:
    worst = health.worst
    if not worst:
        return
    rows = [
        (
            p.topic,
            p.number,
            health.kind_of(p),
            "-" if p.leader is None else p.leader,
            ",".join(map(str, p.replicas)),
            ",".join(map(str, p.isr)),
        )
        for p in worst[:WORST_SHOWN_MAX]
    ]
    print_table(("topic", "partition", "trouble", "leader", "replicas", "isr"), rows)
    if len(worst) > len(rows):
        remark(f"and {len(worst) - len(rows)} more; --format json lists all")
