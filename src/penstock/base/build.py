"""How the package that runs was built: see docs/adr/0018-compiled.md."""

from __future__ import annotations

from importlib.util import find_spec


def is_compiled() -> bool:
    """Whether the hot modules are those that mypyc has made."""
    spec = find_spec("penstock.wire.records")
    return spec is not None and spec.origin is not None and not spec.origin.endswith(".py")
