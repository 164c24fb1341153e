"""The arithmetic of `penstock plan`: sums by hand, what must grow with what, and its figures."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.cli.plan import figures
from penstock.cli.plan.arithmetic import Load, NodeSize, Plan, Region, plan, regions
from penstock.cli.plan.figures import GIB, Figure

TABLES = (Path(__file__).parents[3] / "docs" / "performance-tables.md").read_text()
DAY_S = 86_400
MILLION = 1_000_000

loads = st.builds(
    Load,
    size_bytes=st.integers(1, 10_000_000),
    retention_s=st.floats(1, 400 * DAY_S),
    replication=st.integers(1, 7),
    groups=st.integers(0, 50),
    members=st.integers(1, 5_000),
    producers=st.integers(1, 100_000),
    peak=st.floats(1, 20),
    compression=st.floats(1, 20),
    batch_bytes=st.integers(1, 10_000_000),
    partition_bytes_per_s=st.floats(1e4, 1e9),
    consumer_messages_per_s=st.none() | st.floats(0.1, 1e6),
)
sizes = st.builds(
    NodeSize,
    disk_bytes=st.floats(4 * GIB, 1e15),
    network_bytes_per_s=st.floats(1e6, 1e11),
    headroom=st.floats(0, 0.7),
    spare=st.integers(0, 5),
)
places = st.builds(
    Region,
    name=st.just("here"),
    rate=st.floats(0.001, 1e8),
    mirrored_rate=st.floats(0, 1e8),
    readers=st.integers(0, 5),
)
factors = st.floats(1, 100)


def amounts(found: Plan) -> dict[str, float]:
    """Everything that more of something must not make less."""
    counted = {need.what: float(need.nodes) for need in found.needs}
    names = ("ingress_bytes_per_s", "replication_bytes_per_s", "egress_bytes_per_s", "cores")
    names += ("stored_bytes", "disk_bytes", "partitions", "nodes")
    return counted | {name: float(getattr(found, name)) for name in names}


def assert_not_less(before: Plan, after: Plan) -> None:
    less = {
        name: (value, amounts(after)[name])
        for name, value in amounts(before).items()
        if amounts(after)[name] < value * (1 - 1e-9)
    }
    assert less == {}


@given(loads, sizes, places, factors)
def test_it_grows_with_the_rate(load: Load, node: NodeSize, place: Region, by: float) -> None:
    more = replace(place, rate=place.rate * by)
    assert_not_less(plan(load, node, place), plan(load, node, more))
    more = replace(place, mirrored_rate=place.mirrored_rate + by)
    assert_not_less(plan(load, node, place), plan(load, node, more))


@given(
    loads,
    sizes,
    places,
    factors,
    st.sampled_from(["size_bytes", "retention_s", "peak", "replication", "groups", "members"]),
)
def test_it_grows_with_each_part_of_the_load(
    load: Load, node: NodeSize, place: Region, by: float, name: str
) -> None:
    value: Any = getattr(load, name)
    more = value + round(by) if isinstance(value, int) else value * by
    changes: dict[str, Any] = {name: more}
    assert_not_less(plan(load, node, place), plan(replace(load, **changes), node, place))


@given(loads, sizes, places, factors)
def test_compression_and_larger_nodes_never_need_more(
    load: Load, node: NodeSize, place: Region, by: float
) -> None:
    smaller = replace(load, compression=load.compression * by)
    assert_not_less(plan(smaller, node, place), plan(load, node, place))
    larger = NodeSize(node.disk_bytes * by, node.network_bytes_per_s * by, 0.0, node.spare)
    assert plan(load, larger, place).nodes <= plan(load, node, place).nodes


@given(loads, sizes, places)
def test_the_nodes_found_carry_the_load_without_the_spare_ones(
    load: Load, node: NodeSize, place: Region
) -> None:
    found = plan(load, node, place)
    left = found.nodes - node.spare
    assert left >= load.replication
    assert found.disk_bytes <= left * node.disk_bytes * (1 + 1e-9)
    assert found.cores <= left * figures.PROCESSOR_USE_MAX * (1 + 1e-9)
    busiest = max(
        found.ingress_bytes_per_s + found.replication_bytes_per_s,
        found.egress_bytes_per_s + found.replication_bytes_per_s,
    )
    network = node.network_bytes_per_s * figures.NETWORK_USE_MAX
    assert load.peak * busiest <= left * network * (1 + 1e-9)
    assert found.partitions >= max(load.members, found.nodes)
    assert found.bottleneck in {n.what for n in found.needs if n.nodes == left}


def test_a_sum_by_hand() -> None:
    load = Load(size_bytes=990, retention_s=DAY_S, replication=3, groups=2, batch_bytes=61_000)
    found = plan(load, NodeSize(), Region("", 1_000))
    assert found.message_bytes == pytest.approx(1_001)
    assert found.ingress_bytes_per_s == pytest.approx(1_001_000)
    assert found.requests_per_s == pytest.approx(1_001_000 / 61_000)
    assert found.replication_bytes_per_s == pytest.approx(2_002_000)
    assert found.egress_bytes_per_s == pytest.approx(2_002_000)
    assert found.stored_bytes == pytest.approx(3 * (1_001_000 * DAY_S + GIB))
    assert found.disk_bytes == pytest.approx(found.stored_bytes / 0.7)
    assert (found.nodes, found.bottleneck, found.partitions) == (4, "replication", 4)


@pytest.mark.parametrize(
    ("mirror", "mirrored", "readers"),
    [
        ("all", [50, 40, 30], [2, 2, 2]),
        ("none", [0, 0, 0], [0, 0, 0]),
        ("b", [0, 40, 0], [1, 0, 1]),
    ],
)
def test_regions_and_what_they_mirror(mirror: str, mirrored: list[int], readers: list[int]) -> None:
    found = regions([("a", 10), ("b", 20), ("c", 30)], mirror)
    assert [place.mirrored_rate for place in found] == mirrored
    assert [place.readers for place in found] == readers
    load, node = Load(1_000, DAY_S), NodeSize()
    plans = [plan(load, node, place) for place in found]
    came = sum(one.from_regions_bytes_per_s for one in plans)
    assert came == pytest.approx(sum(one.to_regions_bytes_per_s for one in plans))


def test_consumers_that_are_slow_need_partitions() -> None:
    load = Load(100, DAY_S, peak=2, consumer_messages_per_s=50)
    found = plan(load, NodeSize(), Region("", 1_000))
    assert (found.partitions, found.partitions_why) == (40, "what one consumer handles at the peak")


def row(begins: str) -> str:
    """What the tables have measured here, in the first column behind the name."""
    [found] = re.findall(rf"^\| {re.escape(begins)}[^|]*\| *([^|]*)", TABLES, re.MULTILINE)
    return str(found)


def measured(begins: str) -> float:
    return float(re.match(r"[\d,.]+", row(begins))[0].replace(",", ""))  # type: ignore[index]


ONE_BY_ONE = "publish 100 B, one per request, 64 connections, acks=1, server's CPU"
BATCHES = "publish 100 B, 256 KiB batches, 8 connections, acks=1, server's CPU"
THREE_ONE_BY_ONE = "three nodes: publish 100 B, one per request, 64 connections, server's CPU"
THREE_BATCHES = "three nodes: publish 100 B, 256 KiB batches, 8 connections, server's CPU"


@pytest.mark.parametrize(
    ("figure", "value"),
    [
        (figures.PUBLISH_REQUEST_S, measured(ONE_BY_ONE) / MILLION),
        (
            figures.PUBLISH_BYTE_S,
            measured("publish 1 KB, 256 KiB batches, 8 connections, acks=1, server's CPU")
            / (MILLION * 1_000),
        ),
        (
            figures.COPY_REQUEST_S,
            (measured(THREE_ONE_BY_ONE) - measured(ONE_BY_ONE)) / 2 / MILLION,
        ),
        (
            figures.COPY_BYTE_S,
            (measured(THREE_BATCHES) - measured(BATCHES)) / 2 / (MILLION * 100),
        ),
        (
            figures.FETCH_BYTE_S,
            measured("consume 1 KB from cache, server's CPU") / (MILLION * 1_000),
        ),
        (
            figures.FETCH_ANSWER_S,
            (
                1 / measured("fetch from the page cache, answers of 64 KB")
                - 1 / measured("fetch from the page cache, answers of 1 MB")
            )
            / 1e9
            / (1 / 65_536 - 1 / 1_048_576),
        ),
        (figures.NODE_BYTES, measured("memory when idle") * MILLION),
    ],
)
def test_a_figure_is_what_was_measured(figure: Figure, value: float) -> None:
    assert figure.value == pytest.approx(value, rel=0.02)


def test_other_figures_stand_in_the_tables() -> None:
    assert "memory, MB (about 6.8 KB each)" in TABLES
    assert "memory with 10,000 idle connections (3.2 KB each)" in TABLES
    assert "| 0.8 / 10 |" in row_of("after kill -9: serves / every log was checked, s")
    assert figures.PARTITION_BYTES.value == 6_800
    assert figures.CONNECTION_BYTES.value == 3_200


def row_of(begins: str) -> str:
    [line] = [line for line in TABLES.splitlines() if line.startswith(f"| {begins}")]
    return line


def test_the_costs_give_back_what_they_were_not_taken_from() -> None:
    request, byte = figures.PUBLISH_REQUEST_S.value, figures.PUBLISH_BYTE_S.value
    of_batches = 1 / (request * 100 / 16_384 + byte * 100)
    assert of_batches == pytest.approx(
        measured("publish 100 B messages in 16 KB batches") * MILLION, rel=0.1
    )
    one_by_one = request + byte * 10_000
    large = measured("publish 10 KB, one per request, 64 connections, acks=1, server's CPU")
    assert one_by_one == pytest.approx(large / MILLION, rel=0.1)
