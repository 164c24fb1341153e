"""`tools/suite.py` upon real runs of pytest in a folder of its own: what is forgiven, what is not,
and what is written down and printed of it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from tools import second_chances

ROOT = Path(__file__).resolve().parents[3]
CONFIG = "[pytest]\naddopts = --import-mode=importlib\n"
# To load whatever plugin is installed takes most of the time of so small a run.
FEW_PLUGINS = {
    "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
    "PYTEST_PLUGINS": "xdist.plugin,_hypothesis_pytestplugin",
}
LOGGING = """
import pytest

@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item):
    outcome = yield
    outcome.get_result().sections.append(("log of penstock", "the node's last words"))
"""
# Fails the first time, since what it leaves behind is not there yet.
ONCE = """
from pathlib import Path

MARK = Path(__file__).with_suffix(".was-here")

def test_it(record_property):
    record_property("CHAOS_SEED", 77)
    seen = MARK.exists()
    MARK.touch()
    assert seen, "upset by the machine"
"""
ALWAYS = "def test_it():\n    assert False, 'broken'\n"
PASSES = "def test_it():\n    pass\n"


class Project:
    """A folder with a few tests, and what a run of them said."""

    def __init__(self, root: Path) -> None:
        self.root = root
        (root / "pytest.ini").write_text(CONFIG)
        self.write("tests/conftest.py", LOGGING)

    def write(self, name: str, text: str) -> None:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def run(self, *options: str, **environment: str) -> tuple[int, str]:
        own = {"PYTHONPATH": str(ROOT), "PYTEST_ADDOPTS": ""} | FEW_PLUGINS
        done = subprocess.run(
            [sys.executable, "-m", "tools.suite", "--root", str(self.root), *options],
            capture_output=True,
            text=True,
            check=False,
            cwd=ROOT,
            env=os.environ | own | environment,
        )
        return done.returncode, done.stdout + done.stderr

    def records(self) -> list[dict[str, Any]]:
        found = sorted((self.root / "build" / "second-chances").glob("*.json"))
        return [json.loads(path.read_text()) for path in found]


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


def test_a_second_chance_is_recorded_and_printed_last(project: Project) -> None:
    project.write("tests/interop/test_once.py", ONCE)
    project.write("tests/unit/test_fine.py", PASSES)
    code, said = project.run("-n", "2", "--dist", "load", SUITE_SEED="4711")
    assert code == 0, said
    [record] = project.records()
    assert record["test"] == "tests/interop/test_once.py::test_it"
    assert record["alone"] == "passed"
    assert record["reason"] == "AssertionError: upset by the machine"
    assert "assert seen" in record["failure"]
    assert record["seed"] == 4711
    assert record["again"].startswith("PYTHONHASHSEED=4711 CHAOS_SEED=77 ")
    assert "--hypothesis-seed=4711 'tests/interop/test_once.py::test_it'" in record["again"]
    assert record["logs"]["log of penstock"] == "the node's last words"
    reading = record["machine"]
    assert reading["workers"] == 2
    assert len(reading["load"]) == 3
    assert reading["memory_mib"]["MemTotal"] >= reading["memory_mib"]["MemAvailable"] > 0
    assert "test_seconds" in reading
    last = said[said.rindex(" passed in ") :]
    assert "SECOND CHANCES: 1." in last
    assert "tests/interop/test_once.py::test_it" in last
    assert "UNKNOWN" in last


def test_a_known_cause_is_printed(project: Project) -> None:
    project.write("tests/interop/test_once.py", ONCE)
    row = "| `tests/interop/test_once.py::test_it` | the client reconnects late |"
    project.write("CONTRIBUTING.md", f"# How\n\n## Second chances\n\n{row}\n\n## More\n")
    code, said = project.run()
    assert code == 0, said
    assert "cause    the client reconnects late" in said
    assert "UNKNOWN" not in said


def test_what_fails_alone_too_fails_the_run_and_is_recorded(project: Project) -> None:
    project.write("tests/chaos/test_once.py", ONCE)
    project.write("tests/interop/test_always.py", ALWAYS)
    code, said = project.run()
    assert code == 1
    ends = {record["test"]: record["alone"] for record in project.records()}
    assert ends == {
        "tests/chaos/test_once.py::test_it": "passed",
        "tests/interop/test_always.py::test_it": "failed",
    }
    assert "SECOND CHANCES: 2." in said


@pytest.mark.parametrize("folder", ["unit", "scenario", "sim"])
def test_these_folders_depend_on_no_clock(folder: str) -> None:
    notes = [
        {"kind": second_chances.TEST, "test": f"tests/{name}/test_a.py::test_it"}
        for name in (folder, "spark")
    ]
    why = second_chances.refusal(notes)
    assert why is not None
    assert f"tests/{folder}/" in why
    assert second_chances.refusal(notes[1:]) is None


def test_what_depends_on_no_clock_gets_no_second_chance(project: Project) -> None:
    project.write("tests/unit/test_once.py", ONCE)
    project.write("tests/interop/test_once.py", ONCE)
    code, said = project.run()
    assert code == 1
    assert "get no second chance" in said
    assert "tests/unit/test_once.py::test_it" in said
    assert "Once more" not in said
    assert project.records() == []


def test_more_than_a_busy_machine_explains(project: Project) -> None:
    for number in range(4):
        project.write(f"tests/interop/test_once_{number}.py", ONCE)
    code, said = project.run()
    assert code == 1
    assert "4 tests failed, more than a busy machine explains." in said
    assert project.records() == []


def test_a_crash_of_a_worker_is_never_forgiven(project: Project) -> None:
    crash = ONCE.replace("    assert seen", "    import os; seen or os._exit(9); assert seen")
    project.write("tests/interop/test_crash.py", crash)
    project.write("tests/interop/test_fine.py", PASSES)
    code, said = project.run("-n", "2")
    assert code == 1
    assert "never forgiven" in said
    assert project.records() == []


def test_a_worker_that_dies_after_its_last_test_fails_the_run(project: Project) -> None:
    """All tests have passed, and xdist reports no failure."""
    project.write(
        "tests/interop/conftest.py",
        "import os\ndef pytest_sessionfinish(session):\n"
        "    if hasattr(session.config, 'workerinput'): os._exit(9)\n",
    )
    project.write("tests/interop/test_fine.py", PASSES)
    code, said = project.run("-n", "1")
    assert code == 1, said
    assert "never forgiven" in said


def test_a_file_that_cannot_be_collected_fails_the_run(project: Project) -> None:
    project.write("tests/interop/test_fine.py", PASSES)
    project.write("tests/interop/test_bad.py", "import no_such_module\n")
    code, said = project.run("-n", "2")
    assert code not in (0, 5), said
    assert "Once more" not in said


def test_a_test_that_is_skipped_alone_has_not_passed(project: Project) -> None:
    skipped = ONCE.replace(
        "    MARK.touch()", "    MARK.touch()\n    import pytest; seen and pytest.skip('not now')"
    )
    project.write("tests/interop/test_once.py", skipped)
    code, _ = project.run()
    assert code == 1
    assert [record["alone"] for record in project.records()] == ["failed"]


def test_a_failure_while_tidying_up_is_one_second_chance(project: Project) -> None:
    untidy = ONCE.replace("(record_property)", "(record_property, untidy)") + (
        "\nimport pytest\n\n@pytest.fixture\ndef untidy():\n"
        "    first = not MARK.exists()\n    yield\n    assert not first, 'left behind'\n"
    )
    project.write("tests/interop/test_once.py", untidy)
    code, _ = project.run()
    assert code == 0
    [record] = project.records()
    assert record["reason"] == "AssertionError: upset by the machine"
    assert [more["reason"] for more in record["more"]] == ["AssertionError: left behind"]


def test_a_run_without_failures_says_so(project: Project) -> None:
    project.write("tests/unit/test_fine.py", PASSES)
    code, said = project.run()
    assert code == 0
    assert said.rstrip().endswith("Second chances: none.")


def test_the_report_tells_of_earlier_runs_since_a_moment(project: Project) -> None:
    began = time.time()
    project.write("tests/interop/test_once.py", ONCE)
    project.run()
    code, said = project.run("--report", "--since", str(began))
    assert code == 0
    assert said.startswith("SECOND CHANCES: 1.")
    code, said = project.run("--report", "--since", str(time.time()))
    assert said == "Second chances: none.\n"


def test_a_run_is_repeated_by_its_seed(project: Project) -> None:
    project.write("tests/unit/test_seed.py", "def test_it():\n    print(hash('a'))\n    assert 0\n")
    first, second = (project.run("-rA", SUITE_SEED="12")[1] for _ in range(2))
    printed = [line for line in first.splitlines() if line.lstrip("-").isdigit()]
    assert printed
    assert printed == [line for line in second.splitlines() if line.lstrip("-").isdigit()]
