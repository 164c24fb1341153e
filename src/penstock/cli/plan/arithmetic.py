"""The arithmetic of `penstock plan`: from a load to storage, partitions and nodes. Pure.

For each region, with R messages a second written there (its own and those that are mirrored to
it), m bytes each on the wire and on disk, replication factor f, g groups that read all, and the
peak p:

    m           = (size + RECORD_BYTES) / compression, and its share of the batch's header
    ingress     = R * m                         requests = R * m / batch, at most R
    replication = ingress * (f - 1)             out of leaders and into followers
    egress      = ingress * g + own ingress for each region that mirrors it
    stored      = R * m * retention * f + one more segment of each replica
    disk        = stored / (1 - headroom)
    cores       = p * (requests * publish + bytes * publish
                       + (f - 1) * (requests * copy + bytes * copy)
                       + reads * (requests * answer + bytes * fetch))
    partitions  = max(members of a group, p * ingress / what one partition takes,
                      p * R / what one consumer handles, nodes)
    nodes       = max(by disk, network in, network out, processor, replicas, f) + spare

A node is one process on one core. All of it grows with each of rate, size, retention, replication,
consumers and peak, or stays (the tests hold it). Times and sizes are plain numbers in seconds and
bytes; nothing is rounded but the counts, upwards.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from penstock.cli.plan import figures


@dataclass(frozen=True)
class Load:
    """What is the same in all regions."""

    size_bytes: float
    retention_s: float
    replication: int = 3
    groups: int = 1
    members: int = 1
    producers: int = 1
    peak: float = 2.0
    compression: float = 1.0
    batch_bytes: float = 16 * figures.KIB
    partition_bytes_per_s: float = 10 * figures.MIB
    consumer_messages_per_s: float | None = None


@dataclass(frozen=True)
class NodeSize:
    """What a node has, and how much of it is kept free."""

    disk_bytes: float = 1024 * figures.GIB
    network_bytes_per_s: float = 1e9 / 8
    headroom: float = 0.3
    spare: int = 1


@dataclass(frozen=True)
class Region:
    """Messages a second that are published here, and that come from other regions; `readers` are
    the regions that get a copy of what is published here.
    """

    name: str
    rate: float
    mirrored_rate: float = 0.0
    readers: int = 0


class Need(NamedTuple):
    """How many nodes one thing needs: all that is wanted of it, and what one node has."""

    what: str
    nodes: int
    wanted: float
    of_node: float
    unit: str


@dataclass(frozen=True)
class Plan:
    """What one region needs. Bytes per second are averages; `peak` is not in them."""

    region: Region
    message_bytes: float
    requests_per_s: float
    ingress_bytes_per_s: float
    replication_bytes_per_s: float
    egress_bytes_per_s: float
    from_regions_bytes_per_s: float
    to_regions_bytes_per_s: float
    stored_bytes: float
    disk_bytes: float
    cores: float
    partitions: int
    partitions_why: str
    needs: tuple[Need, ...]
    bottleneck: str
    nodes: int
    memory_bytes: float
    cache_bytes: float


def plan(load: Load, node: NodeSize, region: Region) -> Plan:
    """What the region needs."""
    rate = region.rate + region.mirrored_rate
    size = _message_bytes(load)
    requests = min(rate, rate * size / load.batch_bytes)
    ingress = rate * size
    replication = ingress * (load.replication - 1)
    to_regions = region.rate * size * region.readers
    egress = ingress * load.groups + to_regions
    wanted, why = _partitions(load, rate, ingress)
    stored = _stored(load, ingress, wanted)
    disk = stored / (1 - node.headroom)
    cores = load.peak * _cores(load, requests, ingress, egress)
    needs = (
        _need("disk", disk, node.disk_bytes, "bytes"),
        _network("network in", load, ingress + replication, node),
        _network("network out", load, replication + egress, node),
        _need("processor", cores, figures.PROCESSOR_USE_MAX, "cores"),
        _replicas(load, wanted),
        _need("replication", load.replication, 1, "copies"),
    )
    most = max(needs, key=lambda need: need.nodes)
    nodes = most.nodes + node.spare
    if nodes > wanted:
        wanted, why = nodes, "one for each node to lead"
    return Plan(
        region=region,
        message_bytes=size,
        requests_per_s=requests,
        ingress_bytes_per_s=ingress,
        replication_bytes_per_s=replication,
        egress_bytes_per_s=egress,
        from_regions_bytes_per_s=region.mirrored_rate * size,
        to_regions_bytes_per_s=to_regions,
        stored_bytes=stored,
        disk_bytes=disk,
        cores=cores,
        partitions=wanted,
        partitions_why=why,
        needs=needs,
        bottleneck=most.what,
        nodes=nodes,
        memory_bytes=_memory(load, wanted, nodes),
        cache_bytes=load.peak * (ingress + replication) * figures.CACHED_S / nodes,
    )


def regions(rates: Sequence[tuple[str, float]], mirror: str) -> list[Region]:
    """The regions by name and rate. `mirror` says who gets a copy of the others' messages: `all`,
    `none`, or the name of one region.
    """
    total = sum(rate for _, rate in rates)
    others = len(rates) - 1
    found = []
    for name, rate in rates:
        takes = mirror in ("all", name)
        gives = others if mirror == "all" else int(mirror not in ("none", name) and others > 0)
        found.append(Region(name, rate, total - rate if takes else 0.0, gives))
    return found


def _message_bytes(load: Load) -> float:
    """Of one message, with what the format puts around it."""
    packed = (load.size_bytes + figures.RECORD_BYTES) / load.compression
    return packed * (1 + figures.BATCH_BYTES / max(load.batch_bytes, packed))


def _partitions(load: Load, rate: float, ingress: float) -> tuple[int, str]:
    by = [
        (load.members, "one for each member of a group"),
        (
            math.ceil(load.peak * ingress / load.partition_bytes_per_s),
            "what one partition takes at the peak",
        ),
    ]
    if load.consumer_messages_per_s is not None:
        handled = math.ceil(load.peak * rate / load.consumer_messages_per_s)
        by.append((handled, "what one consumer handles at the peak"))
    return max(by, key=lambda count: count[0])


def _stored(load: Load, ingress: float, partitions: int) -> float:
    """All copies, with the segments that retention cannot remove yet."""
    kept = ingress * load.retention_s
    segments = min(partitions * figures.SEGMENT_BYTES, ingress * figures.SEGMENT_S)
    return (kept + segments) * load.replication


def _cores(load: Load, requests: float, ingress: float, egress: float) -> float:
    """Cores that are busy, all nodes together, on average."""
    publish = requests * figures.PUBLISH_REQUEST_S.value + ingress * figures.PUBLISH_BYTE_S.value
    copy = requests * figures.COPY_REQUEST_S.value + ingress * figures.COPY_BYTE_S.value
    reads = egress / ingress
    fetch = reads * requests * figures.FETCH_ANSWER_S.value + egress * figures.FETCH_BYTE_S.value
    return publish + (load.replication - 1) * copy + fetch


def _need(what: str, wanted: float, of_node: float, unit: str) -> Need:
    return Need(what, math.ceil(wanted / of_node), wanted, of_node, unit)


def _network(what: str, load: Load, bytes_per_s: float, node: NodeSize) -> Need:
    usable = node.network_bytes_per_s * figures.NETWORK_USE_MAX
    return _need(what, load.peak * bytes_per_s, usable, "bytes/s")


def _replicas(load: Load, partitions: int) -> Need:
    replicas = partitions * load.replication
    return _need("partitions", replicas, figures.REPLICAS_PER_NODE_MAX.value, "replicas")


def _memory(load: Load, partitions: int, nodes: int) -> float:
    """Of one node's process, without the page cache."""
    replicas = math.ceil(partitions * load.replication / nodes)
    connections = load.producers + load.groups * load.members + 2 * (nodes - 1)
    return (
        figures.NODE_BYTES.value
        + replicas * figures.PARTITION_BYTES.value
        + connections * figures.CONNECTION_BYTES.value
        + figures.QUEUED_BYTES_MAX
    )
