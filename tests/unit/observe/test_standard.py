"""The standard metrics: totals that never shrink, switches for series that grow in number."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass

from penstock import __version__
from penstock.base.build import COMPILED, kind_of_build
from penstock.base.ids import TopicPartition
from penstock.observe.metrics import Registry
from penstock.observe.standard import (
    CleanerMetrics,
    PartitionMetrics,
    TopicMetrics,
    add_build_info,
    add_process_metrics,
)

Scrape = Callable[[Registry], dict[tuple[str, ...], float]]


@dataclass
class Sizes:
    size_bytes: int
    log_start_offset: int
    log_end_offset: int


def test_topic_traffic_is_shown_by_topic_and_in_total(scrape: Scrape) -> None:
    registry = Registry()
    topics = TopicMetrics(registry, per_topic=True)
    topics.topic("a").bytes_in += 10
    topics.topic("b").bytes_in += 5
    topics.topic("b").messages_in += 1
    found = scrape(registry)
    assert found["penstock_topic_bytes_in_total", "a"] == 10
    assert found["penstock_topic_bytes_in_total", "b"] == 5
    assert found[("penstock_bytes_in_total",)] == 15
    assert found[("penstock_messages_in_total",)] == 1


def test_a_deleted_topic_leaves_its_share_of_the_totals(scrape: Scrape) -> None:
    registry = Registry()
    topics = TopicMetrics(registry, per_topic=True)
    topics.topic("a").bytes_out += 10
    topics.remove("a")
    topics.remove("never-there")
    found = scrape(registry)
    assert ("penstock_topic_bytes_out_total", "a") not in found
    assert found[("penstock_bytes_out_total",)] == 10
    assert topics.topic("a").bytes_out == 0


def test_without_series_per_topic_only_totals_are_shown(scrape: Scrape) -> None:
    registry = Registry()
    topics = TopicMetrics(registry, per_topic=False)
    topics.topic("a").failed_fetch_requests += 1
    topics.topic("b").failed_fetch_requests += 1
    found = scrape(registry)
    assert found[("penstock_failed_fetch_requests_total",)] == 2
    assert not [key for key in found if key[0].startswith("penstock_topic_")]


def test_partitions_are_read_on_every_scrape(scrape: Scrape) -> None:
    registry = Registry()
    logs = {TopicPartition("a", 0): Sizes(100, 5, 9), TopicPartition("a", 1): Sizes(50, 0, 3)}
    PartitionMetrics(registry, logs.items, per_partition=True)
    assert scrape(registry) == {
        ("penstock_partitions",): 2,
        ("penstock_logs_size_bytes",): 150,
        ("penstock_log_size_bytes", "0", "a"): 100,
        ("penstock_log_size_bytes", "1", "a"): 50,
        ("penstock_log_start_offset", "0", "a"): 5,
        ("penstock_log_start_offset", "1", "a"): 0,
        ("penstock_log_end_offset", "0", "a"): 9,
        ("penstock_log_end_offset", "1", "a"): 3,
    }
    del logs[TopicPartition("a", 0)]
    assert scrape(registry)[("penstock_partitions",)] == 1


def test_without_series_per_partition_only_sums_are_shown(scrape: Scrape) -> None:
    registry = Registry()
    logs = {TopicPartition("a", 0): Sizes(100, 5, 9)}
    PartitionMetrics(registry, logs.items, per_partition=False)
    assert scrape(registry) == {("penstock_partitions",): 1, ("penstock_logs_size_bytes",): 100}


def test_the_cleaner_shows_its_work(scrape: Scrape) -> None:
    registry = Registry()
    cleaner = CleanerMetrics(registry)
    cleaner.runs.value += 1
    cleaner.bytes_read.value += 100
    cleaner.bytes_written.value += 40
    cleaner.duration.observe(0.5)
    found = scrape(registry)
    assert found[("penstock_cleaner_runs_total",)] == 1
    assert found[("penstock_cleaner_failures_total",)] == 0
    assert found[("penstock_cleaner_read_bytes_total",)] == 100
    assert found[("penstock_cleaner_written_bytes_total",)] == 40
    assert found[("penstock_cleaner_duration_seconds_sum",)] == 0.5


def test_what_runs_is_shown_by_version_build_node_and_cluster(scrape: Scrape) -> None:
    registry = Registry()
    add_build_info(registry, 7, "lkc-1")
    compiled = "true" if kind_of_build() == COMPILED else "false"
    assert scrape(registry)["penstock_build_info", "lkc-1", compiled, "7", __version__] == 1


def test_the_process_shows_its_use_of_the_machine(scrape: Scrape) -> None:
    registry = Registry()
    add_process_metrics(registry)
    found = scrape(registry)
    assert found[("process_cpu_seconds_total",)] > 0
    assert found[("process_resident_memory_bytes",)] > 1_000_000
    assert 0 < found[("process_open_fds",)] <= len(os.listdir("/proc/self/fd"))
    assert found[("process_start_time_seconds",)] > 1_600_000_000
