"""What takes its turn: of many costly cases a run takes some; after some days all had theirs.

The files below have theirs every `DAYS` days in `make test` (`--rotation today`): as a whole where
its tests share something costly or follow a page, else test by test. `--rotation others` runs what
has no turn today, and nothing else; without the option all run. Which day is a test's follows from
its name, so that runs of different selections agree: for files from their place below, so that each
day has as many.

What is here has costly processes (JVMs, Spark, commands, clusters) for something that cheaper tests
look at in each run, or that another client or variant shows as well. Of a client, of commands, of
attacks and of the seeds of the pure rooms each run has some, by test; what shares a costly process
has its day as a file. The simulation of whole nodes runs each day.
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
DAYS = 5

BY_FILE = frozenset(
    f"tests/{name}.py"
    for name in (
        # Programs of pages, and what measures.
        "interop/cli/test_bench",
        "interop/test_bench_peers",
        "interop/test_bench_peers_cluster",
        "interop/test_bench_scale",
        "interop/test_bench_security",
        "interop/test_delivery_doc",
        "interop/test_deploy_doc",
        "interop/test_examples",
        "interop/test_roll_to_security",
        "interop/test_security_doc",
        "interop/test_testing_doc",
        # Kafka as the referee: what was compared changes seldom.
        "interop/auth/test_java_quotas",
        "interop/auth/test_java_sasl",
        "interop/coordinator/test_java_records",
        "interop/test_referee",
        "interop/test_referee_controller",
        "interop/test_referee_groups_classic",
        "interop/test_referee_quotas",
        "interop/test_referee_rights",
        "interop/test_referee_security_scenario",
        "interop/test_referee_settings",
        "interop/test_referee_share_state",
        "interop/test_referee_transactions",
        "interop/test_referee_transactions_scenario",
        "interop/test_referee_transactions_shown",
        "interop/test_transaction_codes",
        "interop/wire/test_java_codec",
        # Clients and tools whose protocol others speak in each run.
        "interop/cli/test_canary",
        "interop/cli/test_dev",
        "interop/cli/test_dev_secure",
        "interop/cli/test_doctor",
        "interop/cli/test_generated_in_prometheus",
        "interop/cli/test_role_and_token",
        "interop/cli/test_secured_node",
        "interop/cli/test_terminal",
        "interop/cli/test_txn_cluster",
        "interop/cli/test_user",
        "interop/test_encryption",
        "interop/test_groups_aiokafka",
        "interop/test_groups_java",
        "interop/test_groups_kafka_python",
        "interop/test_log_dump",
        "interop/test_security_clients",
        "interop/test_security_dump",
        "interop/test_transactions_clients",
        "interop/test_transactions_java",
        "interop/test_transactions_load",
        "interop/test_transactions_streams",
        "interop/test_transactions_tool",
        # Clusters of their own, for what the simulator does to its clusters, or unit tests show.
        "interop/test_audit",
        "interop/test_cluster_all_down",
        "interop/test_cluster_eligible",
        "interop/test_cluster_leadership",
        "interop/test_controller_listener",
        "interop/test_delegation_tokens",
        "interop/test_founding_users",
        "interop/test_https",
        "interop/test_quotas",
        "interop/test_security_cluster",
        "interop/test_server_properties",
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
        "spark/test_pulse",
        "spark/test_replay",
        "spark/test_route_errors",
        "spark/test_security",
        "spark/test_security_node",
        "spark/test_sink_stopped",
        "spark/test_source_cluster",
        "spark/test_source_rack",
        "spark/test_source_workers",
    )
)
BY_TEST = frozenset(
    f"tests/{name}.py"
    for name in (
        "apache/test_quick",
        "chaos/test_cluster_chaos",
        "chaos/test_cluster_network",
        "chaos/test_kill",
        "chaos/test_kill_encrypted",
        "interop/abuse/test_identity",
        "interop/abuse/test_injection",
        "interop/abuse/test_memory",
        "interop/abuse/test_our_client",
        "interop/abuse/test_rights",
        "interop/abuse/test_routes",
        "interop/cli/test_acl",
        "interop/cli/test_cluster",
        "interop/cli/test_cluster_losses",
        "interop/cli/test_config",
        "interop/cli/test_generated_alerts",
        "interop/cli/test_groups",
        "interop/cli/test_messages",
        "interop/cli/test_plan",
        "interop/cli/test_quota",
        "interop/cli/test_refusals",
        "interop/cli/test_secured",
        "interop/cli/test_topics",
        "interop/cli/test_txn",
        "interop/cli/test_unreachable",
        "interop/test_aiokafka",
        "interop/test_client_metrics",
        "interop/test_cluster_failover",
        "interop/test_cluster_growth",
        "interop/test_cluster_tools",
        "interop/test_java",
        "interop/test_kafka_python",
        "interop/test_testing",
        "interop/test_txn_offsets",
        # The pure rooms, over many seeds.
        "sim/classic/test_simulation",
        "sim/consumer/test_simulation",
        "sim/offsets/test_simulation",
        "sim/raft/test_simulation",
        "sim/transactions/test_simulation",
        "spark/test_sink",
        "spark/test_sink_cluster",
        "spark/test_sink_given_up",
        "spark/test_sink_kills",
        "spark/test_sink_steps",
        "spark/test_source_batch",
        "spark/test_source_stream",
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
