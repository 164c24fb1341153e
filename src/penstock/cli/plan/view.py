"""What `penstock plan` prints: for people a table for each region in which every number says what
it rests on, for programs one JSON document.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from penstock.cli.output import bytes_text, plural, print_table, title
from penstock.cli.plan import figures
from penstock.cli.plan.arithmetic import Load, Need, NodeSize, Plan
from penstock.cli.values import duration_text

ASSUMPTIONS = (
    "a node is one process on one core; a machine may carry as many as it has cores, disks and"
    " network for",
    "processor times are those of the compiled package on the machines of docs/performance.md",
    f"at the peak a node's core is at most {figures.PROCESSOR_USE_MAX:.0%} busy, its network"
    f" {figures.NETWORK_USE_MAX:.0%}",
    "consumers keep up, so that they read from the page cache; each group reads everything, and"
    " gets an answer for each request of a producer",
    f"messages have {figures.RECORD_BYTES} bytes around them and batches {figures.BATCH_BYTES},"
    " as Kafka's format has; SIZE is that of key, value and headers together",
    "a partition keeps up to one segment more than its retention: log.segment.bytes is"
    f" {bytes_text(figures.SEGMENT_BYTES)}, and a segment ends after"
    f" {duration_text(figures.SEGMENT_S * 1000)}",
    "one partition takes what --partition-rate says: a rule of the field, and no limit of a node",
    "the time to unpack compressed batches for their check is not in it: measure it with your own"
    " messages",
    "what is mirrored is read once for each region that gets it, stored there as long as at home,"
    " and read by that region's groups, too",
)


def document(load: Load, node: NodeSize, plans: Sequence[Plan]) -> dict[str, Any]:
    """Everything, in plain numbers: bytes, seconds, messages."""
    return {
        "load": asdict(load),
        "node": asdict(node),
        "regions": [_region(plan) for plan in plans],
        "total": _total(plans),
        "figures": [figure._asdict() for figure in figures.MEASURED],
        "assumptions": list(ASSUMPTIONS),
    }


def _region(plan: Plan) -> dict[str, Any]:
    return {**asdict(plan), "needs": [need._asdict() for need in plan.needs]}


def _total(plans: Sequence[Plan]) -> dict[str, Any]:
    return {
        "nodes": sum(plan.nodes for plan in plans),
        "disk_bytes": sum(plan.disk_bytes for plan in plans),
        "between_regions_bytes_per_s": sum(plan.to_regions_bytes_per_s for plan in plans),
    }


def show(load: Load, node: NodeSize, plans: Sequence[Plan]) -> None:
    for plan in plans:
        name = f"{plan.region.name}: " if plan.region.name else ""
        title(
            f"{name}{plural(plan.nodes, 'node')}, {plural(plan.partitions, 'partition')},"
            f" {bytes_text(plan.disk_bytes)} of disk; bound by {plan.bottleneck}"
        )
        print_table(("what", "value", "rests on"), _rows(load, node, plan))
        print()
        print_table(("nodes", "for", "because"), [_need_row(need) for need in plan.needs])
        print()
    if len(plans) > 1:
        total = _total(plans)
        between = bytes_text(total["between_regions_bytes_per_s"])
        disk = bytes_text(total["disk_bytes"])
        title(f"all regions: {plural(total['nodes'], 'node')}, {disk} of disk")
        print(f"between regions: {between}/s on average\n")
    title("measured (docs/performance-tables.md)")
    print_table(
        ("figure", "of", "from"),
        [(f"{figure.value:g}", figure.unit, figure.source) for figure in figures.MEASURED],
    )
    print()
    title("assumed")
    for sentence in ASSUMPTIONS:
        print(f"- {sentence}")


def _rows(load: Load, node: NodeSize, plan: Plan) -> list[tuple[str, str, str]]:
    region = plan.region
    rows = [("published", f"{region.rate:,.0f}/s", "--rate or --region")]
    if region.mirrored_rate:
        rows.append(
            ("mirrored to it", f"{region.mirrored_rate:,.0f}/s", "the other regions' rates")
        )
    batch = bytes_text(load.batch_bytes)
    rows += [
        (
            "message",
            bytes_text(plan.message_bytes),
            f"--size, what Kafka's format adds, compression {load.compression:g}",
        ),
        ("requests of producers", f"{plan.requests_per_s:,.0f}/s", f"a request has {batch}"),
        ("ingress", _per_s(plan.ingress_bytes_per_s), "messages a second x message"),
        (
            "replication",
            _per_s(plan.replication_bytes_per_s),
            f"ingress x {load.replication - 1}, the copies beside the leader's",
        ),
        ("egress", _per_s(plan.egress_bytes_per_s), _egress_why(load, plan)),
    ]
    if region.mirrored_rate:
        rows.append(("from other regions", _per_s(plan.from_regions_bytes_per_s), "mirrored to it"))
    if region.readers:
        rows.append(
            (
                "to other regions",
                _per_s(plan.to_regions_bytes_per_s),
                f"what is published here x {region.readers}, the regions that mirror it",
            )
        )
    kept = duration_text(int(load.retention_s * 1000))
    return [
        *rows,
        (
            "stored",
            bytes_text(plan.stored_bytes),
            f"ingress x {kept} x {_copies(load.replication)}, and a segment of each replica",
        ),
        ("disk", bytes_text(plan.disk_bytes), f"stored, with {node.headroom:.0%} kept free"),
        ("cores busy at the peak", f"{plan.cores:.2f}", f"measured costs x peak of {load.peak:g}"),
        ("partitions", f"{plan.partitions:,}", plan.partitions_why),
        ("nodes", f"{plan.nodes:,}", f"{plan.bottleneck}, and {node.spare} to spare"),
        (
            "memory of a node",
            bytes_text(plan.memory_bytes),
            "measured for node, replicas, connections; queued.max.request.bytes",
        ),
        (
            "page cache of a node",
            bytes_text(plan.cache_bytes),
            f"what it writes in {figures.CACHED_S} s at the peak",
        ),
    ]


def _copies(count: int) -> str:
    return "1 copy" if count == 1 else f"{count} copies"


def _egress_why(load: Load, plan: Plan) -> str:
    groups = f"ingress x {plural(load.groups, 'group')}"
    return f"{groups}, and to other regions" if plan.region.readers else groups


def _need_row(need: Need) -> tuple[int, str, str]:
    return (
        need.nodes,
        need.what,
        _WHY[need.what].format(
            wanted=_amount(need.wanted, need.unit),
            of_node=_amount(need.of_node, need.unit),
            use=f"{figures.NETWORK_USE_MAX:.0%}",
        ),
    )


_WHY = {
    "disk": "{wanted} of disk, {of_node} a node (--disk)",
    "network in": "{wanted} at the peak, {of_node} a node ({use} of --network)",
    "network out": "{wanted} at the peak, {of_node} a node ({use} of --network)",
    "processor": "{wanted} at the peak, {of_node} of a node's",
    "partitions": "{wanted}, {of_node} a node (measured)",
    "replication": "each of {wanted} lies on another node",
}


def _amount(value: float, unit: str) -> str:
    if unit == "bytes":
        return bytes_text(value)
    if unit == "bytes/s":
        return _per_s(value)
    return f"{value:,.2f} {unit}" if unit == "cores" else f"{value:,.0f} {unit}"


def _per_s(count: float) -> str:
    return f"{bytes_text(count)}/s"
