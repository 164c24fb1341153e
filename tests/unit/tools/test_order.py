"""Which tests stay together, which come first, and that the tables name files that exist."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tools import second_chances

from support import order

ROOT = Path(__file__).resolve().parents[3]


def test_every_file_that_is_named_exists() -> None:
    named = (*order.SHARING_FILES, *order.REFEREE_FILES)
    named += (*order.SPARK_PROGRAM_FILES, *order.NO_SPARK_FILES)
    assert [name for name in named if not (ROOT / name).is_file()] == []


def test_every_known_second_chance_is_of_a_test_that_exists() -> None:
    for name in second_chances.known(ROOT):
        file, _, test = name.partition("::")
        assert f"def {test}(" in (ROOT / file).read_text()


@pytest.mark.parametrize(
    ("nodeid", "group"),
    [
        ("tests/unit/log/test_log.py::test_a", "tests/unit/log/test_log.py::test_a"),
        ("tests/interop/test_java.py::test_java[x]", "tests/interop/test_java.py"),
        ("tests/interop/test_referee.py::test_a", "referee"),
        ("tests/interop/test_transaction_codes.py::test_a", "referee"),
        ("tests/spark/test_sink.py::test_a", "tests/spark/"),
        ("tests/spark/test_connector.py::test_a", "programs"),
        ("tests/spark/test_source_rack.py::test_a", "tests/spark/test_source_rack.py::test_a"),
        ("tests/spark/test_sink_cluster.py::test_a", "tests/spark/test_sink_cluster.py"),
        # Of the same name as one that shares a cluster.
        (
            "tests/unit/serving/test_cluster.py::test_a",
            "tests/unit/serving/test_cluster.py::test_a",
        ),
    ],
)
def test_what_stays_together(nodeid: str, group: str) -> None:
    assert order.group(nodeid) == group


def test_the_longest_group_comes_first_and_stays_in_its_order() -> None:
    quick, long = "tests/unit/a.py::test_quick", "tests/unit/a.py::test_long"
    java = [f"tests/interop/test_java.py::test_java[{i}]" for i in range(3)]
    new = "tests/chaos/test_new.py::test_never_timed"
    taken = {quick: 0.01, long: 7.0} | dict.fromkeys(java, 3.0)
    names = [quick, java[0], long, java[1], new, java[2]]
    assert order.longest_first(names, taken) == [new, *java, long, quick]
    assert order.longest_first(names, {})[-2:] == [quick, long], "guessed by their folder"


SHARED = """
import pytest

@pytest.fixture(scope="{scope}")
def cluster():
    pass

def setup_module():
    pass

def test_it(cluster):
    pass
"""
PRINTING = """
from support.order import together_by_mistake

def pytest_collection_modifyitems(items):
    print("found:", sorted(together_by_mistake(items)))
"""


def test_a_file_that_shares_something_and_has_no_group_is_found(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(PRINTING)
    for scope in ("module", "function", "session"):
        (tmp_path / f"test_{scope}.py").write_text(SHARED.format(scope=scope))
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-s", "--collect-only", "-p", "no:cacheprovider"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT / "tests")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "found: ['test_module.py']" in done.stdout, done.stdout + done.stderr
