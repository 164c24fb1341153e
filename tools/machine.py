"""How busy this machine is: load, workers, how the processors spent a stretch of time, memory.

Reads /proc; on a system without it a reading holds only what Python itself knows.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

PROC = Path("/proc")
# The columns of the first line of /proc/stat, in the kernel's order.
COLUMNS = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal")
MEBIBYTE_KIB = 1024


def cpu_times() -> dict[str, int]:
    """Ticks of all processors together since the boot, by what they did."""
    try:
        line = (PROC / "stat").read_text().partition("\n")[0]
    except OSError:
        return {}
    return dict(zip(COLUMNS, map(int, line.split()[1:]), strict=False))


def reading(before: dict[str, int]) -> dict[str, Any]:
    """The machine now; shares of the processors' time are since `before`."""
    return {
        "load": [round(value, 2) for value in os.getloadavg()],
        "cpus": len(os.sched_getaffinity(0)),
        "workers": int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1")),
        "cpu_percent": _shares(before, cpu_times()),
        "memory_mib": _memory(),
        "pressure": _pressure(),
    }


def in_words(found: dict[str, Any]) -> str:
    """A reading in one line."""
    shares, memory = found["cpu_percent"], found["memory_mib"]
    parts = [f"load {found['load'][0]} on {found['cpus']} cores", f"{found['workers']} workers"]
    parts += [f"{shares[name]} % {name}" for name in ("idle", "iowait", "steal") if name in shares]
    if memory:
        parts.append(f"{memory['MemAvailable']:,} of {memory['MemTotal']:,} MiB available")
    return ", ".join(parts)


def _shares(before: dict[str, int], after: dict[str, int]) -> dict[str, float]:
    spent = {name: after[name] - before[name] for name in after if name in before}
    whole = sum(spent.values())
    return {name: round(100 * ticks / whole, 1) for name, ticks in spent.items()} if whole else {}


def _memory() -> dict[str, int]:
    wanted = ("MemTotal", "MemAvailable", "SwapFree")
    try:
        lines = (PROC / "meminfo").read_text().splitlines()
    except OSError:
        return {}
    fields = (line.split() for line in lines)
    return {
        name.rstrip(":"): int(kib) // MEBIBYTE_KIB
        for name, kib, *_ in fields
        if name.rstrip(":") in wanted
    }


def _pressure() -> dict[str, str]:
    """How much of the last ten seconds something waited for each resource, where it is counted."""
    found = {}
    for name in ("cpu", "io", "memory"):
        try:
            found[name] = (PROC / "pressure" / name).read_text().splitlines()[0]
        except OSError:
            continue
    return found
