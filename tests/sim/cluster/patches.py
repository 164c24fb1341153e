"""Puts the simulated system under Penstock's modules: `os`, time, the listening socket.

Done once per process, for every module of Penstock that a node is made of; a run that has done so
belongs to the simulator. Files may be written only through `os`, where the simulated disk sees it.
"""

from __future__ import annotations

import builtins
import importlib
import os
import pkgutil
import sys
import time
import types
from collections.abc import Callable
from typing import Any

import penstock
from penstock.net import server

from .disk import Os
from .network import Network

LEFT_OUT = ("penstock.cli", "penstock.spark")


class VirtualTime(types.ModuleType):
    """`time` for modules that measure durations."""

    def __init__(self, now: Callable[[], float]) -> None:
        super().__init__("time")
        self.monotonic = self.perf_counter = now
        self.monotonic_ns = self.perf_counter_ns = lambda: int(now() * 1e9)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"a node must not use time.{name}: it has a clock")


def install(system: Os, network: Network, now: Callable[[], float]) -> None:
    import_all()
    clock = VirtualTime(now)
    names = ("monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns")
    for name, module in list(sys.modules.items()):
        if not name.startswith("penstock.") or name.startswith(LEFT_OUT):
            continue
        space = vars(module)
        if space.get("os") is os:
            space["os"] = system
        if space.get("time") is time and name != "penstock.base.clock":
            space["time"] = clock
        for function in names:
            if space.get(function) is getattr(time, function):
                space[function] = getattr(clock, function)
        space["open"] = _open_for_reading
    server.bound_socket = lambda host, port, limits: network.bind(host, port)  # type: ignore


def import_all() -> None:
    """Every module that a node may use, so that none is imported past the patches."""
    for found in pkgutil.walk_packages(penstock.__path__, "penstock."):
        if not found.name.startswith(LEFT_OUT) and not found.name.endswith("__main__"):
            importlib.import_module(found.name)


def _open_for_reading(file: Any, mode: str = "r", *args: Any, **more: Any) -> Any:
    assert mode in ("r", "rb", "rt"), f"open({file!r}, {mode!r}) writes past the simulated disk"
    return builtins.open(file, mode, *args, **more)
