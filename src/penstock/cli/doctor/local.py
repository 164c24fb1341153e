"""The limits of nodes that run on this machine, from `/proc`.

A node is found by the folder that it names in DescribeLogDirs: while it runs, `penstock.pid` there
holds the number of its process. Its address has to be one of this machine, too, since another
machine may have the same folder. A node of another user may not show its open files.
"""

from __future__ import annotations

import contextlib
import os
import re
import socket
from pathlib import Path
from typing import Final, NamedTuple

from penstock.cli.cluster.state import ClusterState

PID_FILE: Final = "penstock.pid"
_OPEN_FILES = re.compile(r"^Max open files\s+(\d+)", re.MULTILINE)


class Limits(NamedTuple):
    """Files that a node may open, and those that it has open; None where that is not shown."""

    files_max: int
    files_open: int | None


def local_limits(state: ClusterState) -> dict[int, Limits]:
    """The limits of each node that runs here."""
    found = {}
    for node, disk in state.disks.items():
        if not _is_here(state.nodes[node].host):
            continue
        for folder in disk.folders:
            with contextlib.suppress(OSError, ValueError):
                pid = int((Path(folder) / PID_FILE).read_text())
                if (limits := _limits(pid)) is not None:
                    found[node] = limits
    return found


def _is_here(host: str) -> bool:
    """Whether the host is an address of this machine: only such a one can be bound."""
    try:
        family, kind, _, _, address = socket.getaddrinfo(host, 0, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind) as probe:
            probe.bind(address)
    except OSError:
        return False
    return True


def _limits(pid: int) -> Limits | None:
    told = _OPEN_FILES.search(Path(f"/proc/{pid}/limits").read_text())
    if told is None:
        return None
    try:
        opened = len(os.listdir(f"/proc/{pid}/fd"))
    except PermissionError:
        return Limits(int(told[1]), None)
    return Limits(int(told[1]), opened)
