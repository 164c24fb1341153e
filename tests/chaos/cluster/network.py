"""What carries a cluster's traffic and can be cut: network namespaces, or else proxies.

`choose` takes the best that the machine allows for the faults that are wanted, and says why in one
sentence, which runs print. Both kinds offer the same faults:

- `cut(a, b)`: what node `a` sends to node `b` does not arrive; two cuts make a full one. Nothing is
  refused or reset: the bytes are gone, as behind a broken switch.
- `cut_clients(a)`: clients and node `a` do not hear each other.
- `delay(a, ms, jitter_ms)` and `loss(a, percent)`: for everything that node `a` sends.
- `heal()`: all of it ends.

Peers are node ids. One thread owns the object.
"""

from __future__ import annotations

import os
import shutil
from typing import Protocol

from support.places import Network

SHAPING = frozenset({"delay", "loss"})


class FaultyNetwork(Network, Protocol):
    """A network of which parts can fail."""

    KIND: str

    def cut(self, sender: int, receiver: int) -> None: ...

    def cut_clients(self, node_id: int) -> None: ...

    def delay(self, node_id: int, ms: int, jitter_ms: int) -> None: ...

    def loss(self, node_id: int, percent: int) -> None: ...

    def heal(self) -> None: ...


def choose(faults: set[str], wanted: str = "auto") -> tuple[FaultyNetwork, str]:
    """The network for a run with these faults, and why it is this one."""
    from .namespaces import NamespaceNetwork, has_netem, missing
    from .proxied import ProxyNetwork

    reason = missing()
    shaped = faults & SHAPING
    if wanted == "proxy":
        return ProxyNetwork(), "proxies, as asked for"
    if wanted == "namespaces":
        assert reason is None, reason
        return NamespaceNetwork(), "network namespaces, as asked for"
    if reason is not None:
        return ProxyNetwork(), f"proxies, since {reason}"
    if shaped and not has_netem():
        why = f"this kernel has no netem, which {' and '.join(sorted(shaped))} would need"
        return ProxyNetwork(), f"proxies, since {why}"
    return NamespaceNetwork(), "network namespaces"


def may_make_namespaces() -> str | None:
    """Why namespaces are out of the question, judged without trying; None when they are not."""
    if shutil.which("ip") is None:
        return "there is no `ip` on the PATH (Debian: apt install iproute2)"
    if os.geteuid() != 0:
        return "only root can make network namespaces"
    return None
