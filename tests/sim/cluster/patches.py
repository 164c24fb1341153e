"""Puts the simulated system under Penstock's modules: `os`, time, threads, the listening socket.

Done once per process, for every module of Penstock that a node is made of; a run that has done so
belongs to the simulator. Files may be written only through `os`, where the simulated disk sees it.
"""

from __future__ import annotations

import builtins
import importlib
import os
import pkgutil
import sys
import threading
import time
import types
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import penstock

from .disk import Disk, Os
from .loop import SimLoop
from .network import Network
from .threads import SimExecutor, SimLock

LEFT_OUT = ("penstock.cli", "penstock.spark")
SYSTEM = Os()


class VirtualTime(types.ModuleType):
    """`time` for modules that measure durations."""

    def __init__(self, now: Callable[[], float]) -> None:
        super().__init__("time")
        self.monotonic = self.perf_counter = now
        self.monotonic_ns = self.perf_counter_ns = lambda: int(now() * 1e9)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"a node must not use time.{name}: it has a clock")


def install(disks: list[Disk], network: Network, loop: SimLoop) -> None:
    import_all()
    SYSTEM.disks = disks
    clock = VirtualTime(loop.time)
    names = ("monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns")
    threads = {
        "ThreadPoolExecutor": (ThreadPoolExecutor, partial(SimExecutor, loop)),
        "Lock": (threading.Lock, partial(SimLock, loop)),
    }
    for name, module in modules():
        space = vars(module)
        if space.get("os") is os:
            space["os"] = SYSTEM
        if space.get("time") is time and name != "penstock.base.clock":
            space["time"] = clock
        for function in names:
            if space.get(function) is getattr(time, function):
                space[function] = getattr(clock, function)
        for thing, (real, simulated) in threads.items():
            if space.get(thing) is real:
                space[thing] = simulated
        space["open"] = _open_for_reading
    server = importlib.import_module("penstock.net.server")
    server.bound_socket = lambda host, port, limits: network.bind(host, port)  # type: ignore


def modules() -> Iterator[tuple[str, types.ModuleType]]:
    """The modules that a node is made of."""
    for name, module in list(sys.modules.items()):
        if name.startswith("penstock.") and not name.startswith(LEFT_OUT):
            yield name, module


def import_all() -> None:
    """Every module that a node may use, so that none is imported past the patches.

    A compiled module keeps the `os` that it found when it was imported, whatever its namespace says
    later; so they have to find the simulated one.
    """
    sys.modules["os"] = SYSTEM
    try:
        for found in pkgutil.walk_packages(penstock.__path__, "penstock."):
            if not found.name.startswith(LEFT_OUT) and not found.name.endswith("__main__"):
                importlib.import_module(found.name)
    finally:
        sys.modules["os"] = os
    for name, module in list(sys.modules.items()):
        if vars(module).get("os") is SYSTEM and not name.startswith(("penstock.", __name__)):
            vars(module)["os"] = os


def _open_for_reading(file: Any, mode: str = "r", *args: Any, **more: Any) -> Any:
    assert mode in ("r", "rb", "rt"), f"open({file!r}, {mode!r}) writes past the simulated disk"
    return builtins.open(file, mode, *args, **more)
