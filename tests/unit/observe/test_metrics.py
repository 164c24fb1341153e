"""Metrics and their text, read back by prometheus-client's own parser."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.base.errors import InvariantBroken
from penstock.observe.metrics import (
    FIRST_BITS,
    LAST_BITS,
    SAMPLES_PER_PART,
    Histogram,
    Metric,
    Registry,
    Sample,
)

Scrape = Callable[[Registry], dict[tuple[str, ...], float]]

THINGS = Metric("penstock_things_total", "counter", "Things.")
LEVEL = Metric("penstock_level", "gauge", "Level.")


def test_plain_metrics_show_their_value(scrape: Scrape) -> None:
    registry = Registry()
    counter = registry.counter(THINGS)
    gauge = registry.gauge(LEVEL)
    registry.gauge(Metric("penstock_asked", "gauge", "Asked."), lambda: 7)
    counter.value += 3
    gauge.value = 2.5
    assert scrape(registry) == {
        ("penstock_things_total",): 3,
        ("penstock_level",): 2.5,
        ("penstock_asked",): 7,
    }


def test_the_text_names_type_and_meaning() -> None:
    registry = Registry()
    registry.counter(Metric("penstock_things_total", "counter", "Things\nthat are."))
    assert registry.render().decode().splitlines() == [
        "# HELP penstock_things_total Things\\nthat are.",
        "# TYPE penstock_things_total counter",
        "penstock_things_total 0.0",
    ]


def test_children_are_made_once_and_can_be_removed(scrape: Scrape) -> None:
    registry = Registry()
    family = registry.counters(
        Metric("penstock_things_total", "counter", "Things.", ("topic", "kind"))
    )
    family.child("a", "x").value += 1
    family.child("a", "x").value += 1
    family.child('quo"te\n', "x").value += 5
    assert scrape(registry)["penstock_things_total", "x", 'quo"te\n'] == 5
    family.remove('quo"te\n', "x")
    assert scrape(registry) == {("penstock_things_total", "x", "a"): 2}


def test_a_family_of_many_children_keeps_one_head_and_loses_none(scrape: Scrape) -> None:
    registry = Registry()
    family = registry.gauges(Metric("penstock_level", "gauge", "Level.", ("topic",)))
    count = SAMPLES_PER_PART * 2 + 1
    for i in range(count):
        family.child(str(i)).value = i
    parts = list(registry.render_parts())
    assert len(parts) == 3
    assert b"".join(parts).count(b"# TYPE") == 1
    assert scrape(registry) == {("penstock_level", str(i)): i for i in range(count)}


def test_slices_cover_every_sample() -> None:
    samples = [Sample("penstock_x", {}, i) for i in range(SAMPLES_PER_PART + 1)]
    readings = list(LEVEL.slices(samples))
    assert [len(r.samples) for r in readings] == [SAMPLES_PER_PART, 1]
    assert [s for r in readings for s in r.samples] == samples


@pytest.mark.parametrize("name", ["things_total", "penstock_Things_total", "penstock_things"])
def test_a_counter_with_a_bad_name_is_refused(name: str) -> None:
    with pytest.raises(InvariantBroken):
        Metric(name, "counter", "Things.")


def test_only_a_counter_ends_like_one() -> None:
    with pytest.raises(InvariantBroken, match="_total"):
        Metric("penstock_things_total", "gauge", "Things.")


def test_a_label_with_a_bad_name_is_refused() -> None:
    with pytest.raises(InvariantBroken, match="topic-name"):
        Metric("penstock_level", "gauge", "Level.", ("topic-name",))


def test_a_metric_is_used_as_what_it_is() -> None:
    with pytest.raises(InvariantBroken, match="the gauge penstock_level is used as a histogram"):
        Registry().histogram(LEVEL)


def test_a_name_is_registered_once() -> None:
    registry = Registry()
    registry.gauge(LEVEL)
    with pytest.raises(InvariantBroken, match="penstock_level is registered twice"):
        registry.gauge(LEVEL)


def test_a_child_needs_every_label() -> None:
    family = Registry().gauges(Metric("penstock_level", "gauge", "Level.", ("topic", "partition")))
    with pytest.raises(InvariantBroken, match="penstock_level"):
        family.child("a")


@given(st.lists(st.integers(min_value=0, max_value=2**40)))
def test_histogram_buckets_are_cumulative_counts_of_what_lies_below(durations: list[int]) -> None:
    histogram = Histogram()
    for ns in durations:
        histogram.observe_ns(ns)
    samples = {
        s.labels.get("le", s.name): s.value for s in histogram.samples("penstock_t_seconds", {})
    }
    for bits in range(FIRST_BITS, LAST_BITS + 1):
        assert samples.pop(repr(2**bits / 1e9)) == sum(ns < 2**bits for ns in durations)
    assert samples == {
        "+Inf": len(durations),
        "penstock_t_seconds_count": len(durations),
        "penstock_t_seconds_sum": sum(durations) / 1e9,
    }


def test_a_thinned_histogram_shows_some_of_its_bounds_and_the_same_counts() -> None:
    histogram = Histogram()
    for bits in range(45):
        histogram.observe_ns(1 << bits)
    whole = histogram.samples("penstock_t_seconds", {})
    half = histogram.samples("penstock_t_seconds", {}, every=2)
    assert whole[:-3:2] == half[:-3]
    assert len(whole[:-3]) == 21
    assert whole[-3:] == half[-3:] == histogram.samples("penstock_t_seconds", {}, every=0)


def test_histogram_takes_seconds() -> None:
    histogram = Histogram()
    histogram.observe(0.001)
    assert histogram.sum_ns == 1_000_000
    assert histogram.counts[(1_000_000).bit_length()] == 1


def test_a_node_that_nobody_scrapes_does_not_load_prometheus_client() -> None:
    code = (
        "import sys, penstock.observe.http;"
        "import penstock.observe.standard as s, penstock.observe.metrics as m;"
        "r = m.Registry(); s.add_process_metrics(r);"
        "assert 'prometheus_client' not in sys.modules; r.render();"
        "assert 'prometheus_client' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=30)
