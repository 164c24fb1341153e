"""What takes its turn: of many costly cases a run takes some; after some days all had theirs.

The files below have theirs every `DAYS` days in `make test` (`--rotation today`): as a whole where
its tests share something costly or follow a page, else test by test. `--rotation others` runs what
has no turn today, and nothing else; without the option all run. Which day is a test's follows from
its name, so that runs of different selections agree: for files from their place below, so that each
day has as many.

What is here has costly processes (JVMs, Spark, clusters under load) for something that cheaper
tests look at in each run, or that another client or variant shows as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from itertools import compress
from operator import not_
from typing import Any, TypeVar
from zlib import crc32

import pytest

WORKER_INPUT = "rotation_day"
DAYS = 3

BY_FILE = frozenset(
    f"tests/{name}.py"
    for name in (
        # Programs of pages, and what measures.
        "interop/cli/test_bench",
        "interop/test_bench_scale",
        "interop/test_delivery_doc",
        "interop/test_deploy_doc",
        "interop/test_testing_doc",
        "interop/test_roll_to_security",
        # Kafka as the referee: what was compared changes seldom.
        "interop/auth/test_java_quotas",
        "interop/auth/test_java_sasl",
        "interop/test_referee_groups_classic",
        "interop/test_referee_quotas",
        "interop/test_referee_rights",
        "interop/test_referee_security_scenario",
        "interop/test_referee_settings",
        "interop/test_referee_share",
        "interop/test_referee_share_state",
        "interop/test_referee_transactions_scenario",
        # Clients and tools whose protocol others speak in each run.
        "interop/cli/test_generated_in_prometheus",
        "interop/test_encryption",
        "interop/test_groups_aiokafka",
        "interop/test_groups_java",
        "interop/test_groups_kafka_python",
        "interop/test_security_clients",
        "interop/test_share_java",
        "interop/test_share_tools",
        "interop/test_transactions_clients",
        "interop/test_transactions_java",
        "interop/test_transactions_load",
        "interop/test_transactions_streams",
        "interop/test_transactions_tool",
        # Ready pipelines, and what kills them.
        "spark/test_aggregate",
        "spark/test_archive",
        "spark/test_archive_catalog",
        "spark/test_archive_faults",
        "spark/test_archive_s3",
        "spark/test_audit",
        "spark/test_bad_input",
        "spark/test_chain",
        "spark/test_dedupe",
        "spark/test_formats",
        "spark/test_installation",
        "spark/test_join",
        "spark/test_pipeline",
        "spark/test_pipeline_declarative",
        "spark/test_pipelines_doc",
        "spark/test_replay",
        "spark/test_route_errors",
        "spark/test_security",
        "spark/test_source_workers",
    )
)
BY_TEST = frozenset(
    f"tests/{name}.py"
    for name in (
        "apache/test_quick",
        "chaos/test_cluster_chaos",
        "chaos/test_kill",
        "chaos/test_kill_encrypted",
        "interop/test_cluster_failover",
        "interop/test_cluster_growth",
        "interop/test_cluster_tools",
        "interop/test_share_failover",
        "spark/test_sink_kills",
    )
)

T = TypeVar("T")


def of_the_day(cases: Sequence[T], count: int, day: int | None = None) -> list[T]:
    """The `count` cases whose turn it is, in their order: all have had it after
    `len(cases) / count` days.
    """
    first = count * (date.today().toordinal() if day is None else day)
    turns = {(first + i) % len(cases) for i in range(min(count, len(cases)))}
    return [case for i, case in enumerate(cases) if i in turns]


def has_turn(test: str, day: int) -> bool:
    """Whether a test, by its name in pytest, runs on that day."""
    file = test.partition("::")[0]
    if file in BY_FILE:
        return sorted(BY_FILE).index(file) % DAYS == day % DAYS
    return file not in BY_TEST or crc32(test.encode()) % DAYS == day % DAYS


class Rotation:
    """Tells the workers of pytest-xdist which day it is: all must come to the same tests."""

    def __init__(self) -> None:
        self._day = date.today().toordinal()

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        node.workerinput[WORKER_INPUT] = self._day


def deselect(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Takes out of `items` those that have no turn in this run."""
    chosen = config.getoption("--rotation")
    if chosen == "all":
        return
    given = getattr(config, "workerinput", {})
    day = given.get(WORKER_INPUT) or date.today().toordinal()
    runs = [has_turn(item.nodeid, day) == (chosen == "today") for item in items]
    config.hook.pytest_deselected(items=list(compress(items, map(not_, runs))))
    items[:] = compress(items, runs)
