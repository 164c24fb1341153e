"""Which tests stay together in one worker of pytest-xdist, and which come first.

Tests are spread one by one, except where they share something costly that lives for a file or a
session: those of one `group` follow each other in one worker. What takes long comes first, so that
at the end all workers have something short to do. How long a test takes is what the last run wrote
to `build/durations.json`; without that its folder is a guess.

Groups follow from a test's name and the text of its file, since that is all that xdist's scheduler
has.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest

WORKER_INPUT = "durations"
ROOT = Path(__file__).resolve().parents[2]
DURATIONS = ROOT / "build" / "durations.json"

# A file with such a fixture starts a JVM, a cluster or a node for all of its tests.
SHARED_BY_A_FILE = 'scope="module"'
# These ask the same two Kafkas, which live as long as their worker.
REFEREE_FILES = (
    "tests/interop/test_referee.py",
    "tests/interop/test_referee_controller.py",
    "tests/interop/test_referee_transactions.py",
    "tests/interop/test_referee_transactions_shown.py",
    "tests/interop/test_transaction_codes.py",
)
SPARK_TESTS = "tests/spark/"
# These start Sparks of their own, or none; the other tests of the folder share one. Those of their
# own follow each other, too: three Sparks at once are too many for two cores.
SPARK_PROGRAM_FILES = (
    "tests/spark/test_connector.py",
    "tests/spark/test_installation.py",
    "tests/spark/test_pipeline.py",
    "tests/spark/test_pipeline_declarative.py",
    "tests/spark/test_sink_kills.py",
    "tests/spark/test_standalone.py",
)
NO_SPARK_FILES = (
    "tests/spark/test_preflight.py",
    "tests/spark/test_sink_cluster.py",
    "tests/spark/test_sink_encoding.py",
    "tests/spark/test_sink_given_up.py",
    "tests/spark/test_sink_steps.py",
    "tests/spark/test_source_rack.py",
)

GUESSED_SECONDS = {
    "tests/chaos/": 10.0,
    "tests/interop/": 1.5,
    "tests/scenario/": 0.2,
    "tests/sim/": 3.0,
    "tests/spark/": 4.0,
    "tests/unit/": 0.05,
}
GUESSED_PROGRAM_SECONDS = 20.0


def group(nodeid: str) -> str:
    """The name of what a test belongs to; its own if it stands alone."""
    file = nodeid.partition("::")[0]
    if file in REFEREE_FILES:
        return "referee"
    if file.startswith(SPARK_TESTS) and file not in NO_SPARK_FILES:
        return "programs" if file in SPARK_PROGRAM_FILES else SPARK_TESTS
    return file if _is_shared(file) else nodeid


@cache
def _is_shared(file: str) -> bool:
    path = ROOT / file
    return path.is_file() and SHARED_BY_A_FILE in path.read_text()


def longest_first(nodeids: Iterable[str], seconds: Mapping[str, float]) -> list[str]:
    """The tests by group, and the groups by how long they take."""
    groups: dict[str, list[str]] = defaultdict(list)
    for nodeid in nodeids:
        groups[group(nodeid)].append(nodeid)
    takes = {name: sum(seconds.get(t, _guess(t)) for t in own) for name, own in groups.items()}
    return [t for name in sorted(groups, key=lambda name: -takes[name]) for t in groups[name]]


def _guess(nodeid: str) -> float:
    if group(nodeid) == "programs":
        return GUESSED_PROGRAM_SECONDS
    return next((s for folder, s in GUESSED_SECONDS.items() if nodeid.startswith(folder)), 0.0)


def read_durations() -> dict[str, float]:
    """How long tests took when they last ran here."""
    if not DURATIONS.exists():
        return {}
    found: dict[str, float] = json.loads(DURATIONS.read_text())
    return found


class Durations:
    """Notes how long each test takes; in the process that the user started.

    It also tells the workers how long tests took before: all of them must come to the same order,
    also while another run writes the file anew.
    """

    def __init__(self) -> None:
        self._before = read_durations()
        self._seconds: dict[str, float] = defaultdict(float)

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        node.workerinput[WORKER_INPUT] = self._before

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._seconds[report.nodeid] += report.duration

    def pytest_sessionfinish(self) -> None:
        known = read_durations() | {name: round(s, 2) for name, s in self._seconds.items()}
        DURATIONS.parent.mkdir(exist_ok=True)
        partial = DURATIONS.with_suffix(".new")
        partial.write_text(json.dumps(known, indent=0, sort_keys=True))
        partial.replace(DURATIONS)
