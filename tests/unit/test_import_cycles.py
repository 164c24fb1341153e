"""How far modules know each other in circles, imports for type checking included.

grimp comes with import-linter.
"""

from __future__ import annotations

import grimp
import pytest

CYCLE_MODULES_MAX = 3
"""So many can still be read together."""

PENSTOCK = grimp.build_graph("penstock", cache_dir=None)


def cycles(graph: grimp.ImportGraph, room: str) -> list[list[str]]:
    """The groups of modules of a room each of which imports all the others, if by others."""
    modules = {module for module in graph.modules if module.startswith(f"{room}.")}
    reached = {module: graph.find_upstream_modules(module) & modules for module in modules}
    found = {
        frozenset({module} | {other for other in reached[module] if module in reached[other]})
        for module in modules
    }
    return sorted(sorted(group) for group in found if len(group) > 1)


@pytest.mark.parametrize("room", ["partitions", "serving"])
def test_no_cycle_is_too_long_to_be_read(room: str) -> None:
    found = cycles(PENSTOCK, f"penstock.{room}")
    assert [group for group in found if len(group) > CYCLE_MODULES_MAX] == []


def test_a_cycle_is_found() -> None:
    graph = grimp.ImportGraph()
    for importer, imported in (("r.a", "r.b"), ("r.b", "r.c"), ("r.c", "r.a"), ("r.d", "r.a")):
        graph.add_import(importer=importer, imported=imported)
    assert cycles(graph, "r") == [["r.a", "r.b", "r.c"]]
