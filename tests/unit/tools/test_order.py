"""Which tests stay together, which come first, and that the tables name files that exist."""

from __future__ import annotations

from pathlib import Path

import pytest
from tools import second_chances

from support import order

ROOT = Path(__file__).resolve().parents[3]


def test_every_file_that_is_named_exists() -> None:
    named = order.REFEREE_FILES + order.SPARK_PROGRAM_FILES + order.NO_SPARK_FILES
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
        ("tests/interop/cli/test_cluster.py::test_a", "tests/interop/cli/test_cluster.py"),
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
