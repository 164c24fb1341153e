"""How the package that runs was built: see docs/adr/0018-compiled.md."""

from __future__ import annotations

from importlib.util import find_spec

COMPILED = "compiled"
INTERPRETED = "interpreted"


def kind_of_build() -> str:
    """Whether the hot modules are those that mypyc has made, or the plain sources."""
    spec = find_spec("penstock.wire.records")
    sources = spec is None or spec.origin is None or spec.origin.endswith(".py")
    return INTERPRETED if sources else COMPILED
