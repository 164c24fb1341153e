"""What mypyc asks of the modules that it compiles, and mypy does not find."""

from __future__ import annotations

import ast
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def compiled_modules() -> list[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    wheel = project["tool"]["hatch"]["build"]["targets"]["wheel"]
    modules: list[str] = wheel["hooks"]["custom"]["include"]
    return modules


def rebound(source: str) -> list[str]:
    """The exceptions that a function binds to a name which has another type there."""
    found = []
    for function in ast.walk(ast.parse(source)):
        if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        kinds: dict[str, str] = {}
        for handler in ast.walk(function):
            if isinstance(handler, ast.ExceptHandler) and handler.name and handler.type:
                kind = ast.unparse(handler.type)
                if kinds.setdefault(handler.name, kind) != kind:
                    found.append(f"{function.name}, line {handler.lineno}: {kind}")
    return found


def test_the_list_names_modules_that_exist() -> None:
    modules = compiled_modules()
    assert modules == sorted(modules)
    assert [name for name in modules if not (ROOT / name).is_file()] == []


@pytest.mark.parametrize("module", compiled_modules())
def test_exceptions_of_different_types_have_different_names(module: str) -> None:
    assert rebound((ROOT / module).read_text()) == []


def test_a_name_with_two_types_is_found() -> None:
    twice = "def f():\n try: g()\n except A as e: h(e)\n except B as e: h(e)\n"
    assert rebound(twice) == ["f, line 4: B"]
    assert rebound(twice.replace("B as e: h(e)", "B as other: h(other)")) == []
