"""Which tests have their turn on which day."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.rotation import DAYS, of_another_day

pytest_plugins = ["pytester"]

TESTS = Path(__file__).resolve().parents[2]


def test_every_test_has_one_turn_in_three_days() -> None:
    units = {f"tests/test_{i}.py::test": f"tests/test_{i}.py::test" for i in range(10)}
    ran = [set(units) - of_another_day(units, day) for day in range(100, 100 + DAYS)]
    assert set.union(*ran) == set(units)
    assert sum(map(len, ran)) == len(units)
    assert {len(day) for day in ran} == {3, 4}


def test_a_file_has_its_turn_as_a_whole() -> None:
    units = {f"a.py::test_{i}": "a.py" for i in range(5)} | {"b.py::test": "b.py"}
    ran = [set(units) - of_another_day(units, day) for day in range(DAYS)]
    assert sorted(map(len, ran)) == [0, 1, 5]


@pytest.mark.parametrize("workers", ["0", "2"])
def test_pytest_leaves_out_what_has_no_turn(pytester: pytest.Pytester, workers: str) -> None:
    pytester.makeconftest(
        (TESTS / "conftest.py").read_text().replace("__file__", repr(str(TESTS / "conftest.py")))
    )
    pytester.makeini("[pytest]\nmarkers =\n    rotated\n    java\n")
    pytester.makepyfile(
        """
        import pytest

        @pytest.mark.rotated
        @pytest.mark.parametrize("i", range(9))
        def test_costly(i): pass

        def test_cheap(): pass
        """
    )
    options = ("-n", workers, "-p", "no:cacheprovider")
    today = pytester.runpytest_subprocess(*options, "--rotation", "today")
    today.assert_outcomes(passed=4, deselected=0 if workers == "2" else 6)
