"""Rules of the house that a machine can hold, over every file of the project.

The patterns of forbidden words are put together from pieces, so that this file does not break its
own rules.
"""

from __future__ import annotations

import ast
import os
import re
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import penstock

ROOT = Path(__file__).resolve().parents[2]
SOURCES = sorted((ROOT / "src").rglob("*.py"))

FILE_LINES_MAX = 600
FUNCTION_LINES_MAX = 80
NOT_OURS = frozenset(
    {".git", ".venv", "build", "dist", "target", "penstock-data", "penstock-dev", "__pycache__"}
)
BINARY = frozenset({".png", ".ico", ".gz", ".zip", ".bin"})

REGISTRIES = re.compile(
    "|".join(
        re.escape(host) + suffix
        for host, suffix in (
            ("pypi", r"\.(org|python)"),
            ("python", "hosted"),
            ("repo", r"1?\.maven"),
            ("registry", r"\.(npm|hub|docker)"),
            ("artifact", "ory"),
        )
    )
)
MACHINE_PATHS = re.compile(
    "|".join(
        f"(?<![\\w.~-])/{top}/" + rest
        for top, rest in (("work", ""), ("root", ""), ("home", r"\w"), ("tmp", "(ref|bash)"))
    )
    + "|"
    + re.escape("../" + "shared")
)
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")


@cache
def project_files() -> tuple[Path, ...]:
    """Every file that belongs to the project, without what tools and nodes leave in its folder."""
    found = []
    for folder, folders, names in os.walk(ROOT):
        folders[:] = [f for f in folders if f not in NOT_OURS and not f.endswith("_cache")]
        folders[:] = [f for f in folders if f != ".hypothesis" and not f.endswith(".egg-info")]
        found += [Path(folder, name) for name in names]
    return tuple(sorted(f for f in found if f.suffix not in BINARY))


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(), str(path))


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def lines_with(pattern: re.Pattern[str]) -> Iterator[str]:
    for path in project_files():
        for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1):
            if found := pattern.search(line):
                yield f"{name_of(path)}:{number}: {found[0]}"


def test_every_module_states_its_duty() -> None:
    assert SOURCES
    assert [name_of(p) for p in SOURCES if not ast.get_docstring(tree(p))] == []


def test_every_folder_of_code_is_a_package() -> None:
    folders = {p.parent for p in SOURCES} - {ROOT / "src"}
    assert [name_of(f) for f in sorted(folders) if not (f / "__init__.py").exists()] == []


def test_a_file_is_read_in_one_sitting() -> None:
    counts = {name_of(p): len(p.read_text().splitlines()) for p in SOURCES}
    assert {name: n for name, n in counts.items() if n > FILE_LINES_MAX} == {}


def test_a_function_fits_a_screen() -> None:
    too_long = {}
    for path in SOURCES:
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                lines = (node.end_lineno or node.lineno) - node.lineno + 1
                if lines > FUNCTION_LINES_MAX:
                    too_long[f"{name_of(path)}:{node.lineno} {node.name}"] = lines
    assert too_long == {}


def test_no_file_names_a_package_registry() -> None:
    assert list(lines_with(REGISTRIES)) == []


def test_no_file_names_a_path_of_one_machine() -> None:
    assert list(lines_with(MACHINE_PATHS)) == []


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        (REGISTRIES, "https://" + "pypi" + ".org/simple"),
        (REGISTRIES, "repo1." + "mav" + "en.org"),
        (MACHINE_PATHS, "see " + "/work" + "/main/x"),
        (MACHINE_PATHS, "'/home" + "/someone/x'"),
    ],
)
def test_the_patterns_find_what_they_look_for(pattern: re.Pattern[str], text: str) -> None:
    assert pattern.search(text)
    assert not pattern.search("a teamwork/" + "home/x and src/" + "work/file")


def test_links_between_pages_lead_somewhere() -> None:
    broken = []
    for page in project_files():
        if page.suffix != ".md":
            continue
        text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
        for target in LINK.findall(text):
            place = target.partition("#")[0]
            elsewhere = "://" in target or target.startswith("mailto:")
            if not elsewhere and not (page.parent / place).exists():
                broken.append(f"{name_of(page)}: {target}")
    assert broken == []


def test_the_changelog_tells_of_this_version() -> None:
    versions = re.findall(r"^## \[([^\]]+)\]", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert versions[0] == penstock.__version__


def test_every_dependency_is_pinned_and_has_its_reason() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = list(project["dependencies"])
    for extra in project["optional-dependencies"].values():
        wanted += extra
    names = {re.split(r"[\[<>=!~; ]", line)[0] for line in wanted}
    pins = (ROOT / "constraints.txt").read_text().splitlines()
    pins = [line for line in pins if line and not line.startswith("#")]
    assert [
        line for line in pins if not re.fullmatch(r"[A-Za-z0-9._-]+==[A-Za-z0-9.+]+", line)
    ] == []
    pinned = {line.partition("==")[0].lower().replace("_", "-") for line in pins}
    assert names - pinned == set()
    reasons = (ROOT / "docs" / "adr" / "0002-dependencies.md").read_text()
    assert [name for name in sorted(names) if name not in reasons] == []


def test_continuous_integration_runs_what_make_test_runs() -> None:
    script = ROOT / ".ci" / "run"
    assert os.access(script, os.X_OK)
    assert script.read_text().rstrip().splitlines()[-1] == "make test"
