"""Which tests have their turn on which day."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from support.rotation import BY_FILE, BY_TEST, DAYS, has_turn

PROJECT = Path(__file__).resolve().parents[3]
ROTATING = "tests/chaos/test_kill.py"


def test_every_test_has_one_turn_in_so_many_days() -> None:
    tests = [f"{ROTATING}::test[{i}]" for i in range(300)]
    ran = [[test for test in tests if has_turn(test, day)] for day in range(100, 100 + DAYS)]
    assert sorted(test for day in ran for test in day) == sorted(tests)
    assert all(len(day) > len(tests) / DAYS / 2 for day in ran)


def test_a_file_has_its_turn_as_a_whole_and_each_day_as_many() -> None:
    tests = [f"{file}::test_{i}" for file in sorted(BY_FILE) for i in range(2)]
    ran = [[test for test in tests if has_turn(test, day)] for day in range(DAYS)]
    assert sorted(test for day in ran for test in day) == sorted(tests)
    for day in ran:
        assert len(day) == 2 * len({test.partition("::")[0] for test in day})
        assert abs(len(day) - len(tests) / DAYS) <= 2


def test_others_run_each_day() -> None:
    assert all(has_turn("tests/unit/tools/test_rotation.py::test", day) for day in range(DAYS))


def test_what_rotates_is_there() -> None:
    assert not BY_FILE & BY_TEST
    for name in BY_FILE | BY_TEST:
        assert (PROJECT / name).is_file(), name


def collected(rotation: str) -> set[str]:
    options = ("--collect-only", "-q", "-p", "no:cacheprovider", "--rotation", rotation)
    found = subprocess.run(
        [sys.executable, "-m", "pytest", *options, ROTATING, "tests/unit/tools/test_order.py"],
        cwd=PROJECT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.returncode == 0, found.stdout + found.stderr
    return {line for line in found.stdout.splitlines() if "::" in line}


def test_a_run_takes_what_has_its_turn_and_the_others_run_apart() -> None:
    everything, today, others = map(collected, ("all", "today", "others"))
    assert today | others == everything
    assert not today & others
    assert others
    assert all(name.startswith(ROTATING) for name in others)
    assert any(not name.startswith(ROTATING) for name in today)
