"""docs/testing.md: its examples run as they stand, with the fixtures found as pytest finds them.

The entry point is taken from pyproject.toml and put beside the tests of the page as an installed
package would have it, so that it does not matter how this environment was made.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

pytestmark = pytest.mark.penstock_only
ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "testing.md").read_text()
PROGRAMS = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
END_SECONDS_MAX = 240
SHARED = """\
def test_{name}(penstock, worker_id):
    with open({file!r}, "a") as seen:
        seen.write(f"{{worker_id}} {{penstock.bootstrap_servers}}\\n")
    assert penstock.create_topic({name!r}) == {name!r}
"""
FAILING = """\
def test_it_fails(penstock_node):
    assert penstock_node.bootstrap_servers == "elsewhere"


def test_settings_that_are_wrong(penstock_node, penstock_settings):
    assert penstock_settings == {}
"""


def program(words: str) -> str:
    """The one program that has these words in it."""
    [found] = [text for text in PROGRAMS if words in text]
    return found


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    installed = tmp_path / "installed" / "penstock_as_installed-0.dist-info"
    installed.mkdir(parents=True)
    installed.joinpath("METADATA").write_text("Name: penstock-as-installed\nVersion: 0\n")
    points = project["entry-points"]["pytest11"].items()
    lines = "".join(f"{name} = {place}\n" for name, place in points)
    installed.joinpath("entry_points.txt").write_text(f"[pytest11]\n{lines}")
    path = [str(installed.parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    inherited = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST_")}
    return {**inherited, "PYTHONPATH": os.pathsep.join(path)}


def run(
    environment: dict[str, str], folder: Path, *command: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *command],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=END_SECONDS_MAX,
        check=False,
    )


def folder_with(folder: Path, **texts: str) -> Path:
    """A folder of its own with these test files."""
    folder.mkdir()
    folder.joinpath("pytest.ini").write_text("[pytest]\n")
    for name, text in texts.items():
        folder.joinpath(f"{name}.py").write_text(text)
    return folder


def test_every_program_is_tested() -> None:
    taken = ("penstock, penstock_topic", "def penstock_settings", "kill()", "unittest", "urlopen")
    assert [program(words) for words in taken] == PROGRAMS


@pytest.mark.timeout(300)
def test_the_tests_of_the_page_pass_with_its_settings(
    environment: dict[str, str], tmp_path: Path
) -> None:
    folder = folder_with(
        tmp_path / "page",
        conftest=program("def penstock_settings"),
        test_orders=program("penstock, penstock_topic"),
        test_faults=program("kill()"),
    )
    done = run(environment, folder, "-m", "pytest", "-p", "no:cacheprovider")
    assert "3 passed" in done.stdout, done.stdout + done.stderr


@pytest.mark.timeout(300)
def test_unittest_and_the_script(environment: dict[str, str], tmp_path: Path) -> None:
    done = run(environment, tmp_path, "-c", program("unittest"))
    assert done.stderr.rstrip().endswith("OK"), done.stderr
    done = run(environment, tmp_path, "-c", program("urlopen"))
    address, status, nodes = done.stdout.split()
    assert re.fullmatch(r"127\.0\.0\.1:\d+", address)
    assert (status, nodes) == ("200", "3")


@pytest.mark.timeout(300)
def test_each_worker_of_xdist_has_a_node(environment: dict[str, str], tmp_path: Path) -> None:
    seen = tmp_path / "seen"
    texts = {
        f"test_{name}": SHARED.format(name=name, file=str(seen)) for name in ("a", "b", "c", "d")
    }
    folder = folder_with(tmp_path / "xdist", **texts)
    command = ("-m", "pytest", "-n", "2", "--dist", "loadfile", "-p", "no:cacheprovider")
    done = run(environment, folder, *command)
    assert "4 passed" in done.stdout, done.stdout + done.stderr
    lines = [line.split() for line in seen.read_text().splitlines()]
    assert len(lines) == 4
    nodes = dict(lines)
    assert all(nodes[worker] == node for worker, node in lines), "one for each worker"
    assert len(set(nodes.values())) == len(nodes), "and no two of them the same"


def test_a_failing_test_shows_the_log(environment: dict[str, str], tmp_path: Path) -> None:
    folder = folder_with(tmp_path / "failing", test_failing=FAILING)
    done = run(environment, folder, "-m", "pytest", "-p", "no:cacheprovider")
    assert "1 failed, 1 passed" in done.stdout, done.stdout
    assert "log of penstock_node" in done.stdout
    assert "penstock.node:" in done.stdout


def test_the_fixtures_can_be_left_out_and_start_nothing_by_themselves(
    environment: dict[str, str], tmp_path: Path
) -> None:
    texts = {
        "test_nothing": "import sys\n\n\ndef test_nothing():\n"
        "    assert 'penstock.testing.plugin' in sys.modules\n"
        "    assert not [n for n in sys.modules if n.startswith('penstock.node')]\n"
    }
    folder = folder_with(tmp_path / "none", **texts)
    done = run(environment, folder, "-m", "pytest", "-p", "no:cacheprovider")
    assert "1 passed" in done.stdout, done.stdout
    done = run(environment, folder, "-m", "pytest", "-p", "no:penstock", "--fixtures")
    assert "penstock_node" not in done.stdout
