"""The table of attacks in this package's docstring is whole."""

from __future__ import annotations

import ast
import functools
from pathlib import Path

HERE = Path(__file__).parent
TESTS = HERE.parents[1]
ATTACKS = {
    "2017-12610", "2018-1288", "2021-38153", "2022-34917", "2023-25194", "2024-56128",
    "2025-27818", "2025-61673", "2026-10143", "2026-33557", "2026-41115", "2026-105938",
    "2026-110985", "2026-111073", "2026-111108", "2026-111115", "47w3-66wq-cpxg",
    "alg none", "HS256", "keys in the token", "addresses in the token", "replayed nonces",
    "tokens that have ended or have not begun", "certificates that have ended or have not begun",
    "slow handshakes and slow logins", "a weaker mechanism", "storms of wrong passwords",
    "a request that a client forwards", "names of ACLs with odd bytes", "nested ones",
    "tagged fields", "elements of no size", "compressed bombs", "lines of the log",
    "labels of metrics", "names of classes", "hashing without end", "secrets in arguments",
}  # fmt: skip


def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


@functools.cache
def found_in(path: Path) -> frozenset[str]:
    found = [n.name for n in ast.walk(tree(path)) if isinstance(n, ast.FunctionDef)]
    return frozenset(name for name in found if name.startswith("test_"))


def table() -> dict[str, list[str]]:
    """The tests of each attack."""
    found: dict[str, list[str]] = {}
    attack = ""
    for line in (ast.get_docstring(tree(HERE / "__init__.py")) or "").splitlines():
        if line.startswith("        "):
            found[attack].append(line.strip())
        elif line.startswith("    "):
            attack = line.strip()
            found[attack] = []
    return found


def place(name: str) -> tuple[Path, str]:
    file, _, test = name.partition("::")
    return (TESTS if "/" in file else HERE) / f"{file}.py", test


def test_every_attack_has_its_tests() -> None:
    assert {attack for attack, tests in table().items() if not tests} == set()
    names = {name for tests in table().values() for name in tests}
    missing = {name for name in names if not place(name)[0].exists()}
    assert missing == set()
    assert {name for name in names if place(name)[1] not in found_in(place(name)[0])} == set()


def test_no_attack_and_no_test_is_left_out() -> None:
    rows = " ".join(table())
    assert {attack for attack in ATTACKS if attack not in rows} == set()
    named = {place(name) for tests in table().values() for name in tests}
    here = {(f, test) for f in HERE.glob("test_*.py") for test in found_in(f)}
    own = {(HERE / "test_table.py", test) for test in found_in(HERE / "test_table.py")}
    assert here - own - named == set()
