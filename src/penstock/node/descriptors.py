"""How a node shares out the files that its process may open.

Segments, regions of them that are being sent, connections, and everything else (the metadata log,
other nodes, HTTP, checkpoints) all take descriptors. A refused connection is logged and the client
may try again; a log that cannot open its file cannot be written. So connections get what the others
leave.
"""

from __future__ import annotations

import resource
from contextlib import suppress
from typing import NamedTuple

from penstock.log.limits import OPEN_FILES_MAX, REGIONS_MAX

RESERVED_MAX = 256
"""For everything else."""


class Descriptors(NamedTuple):
    """How many may be open at once of each kind."""

    segments: int
    regions: int
    connections: int


def raise_limit() -> None:
    """Raise the limit to what the system allows: the default of shells is low."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(ValueError, OSError):  # where the limit is not to be believed, it stays
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def shared_out() -> Descriptors:
    """What the process may open, divided."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return divided(files) if files != resource.RLIM_INFINITY else divided(2**31 - 1)


def divided(files: int) -> Descriptors:
    left = files - min(RESERVED_MAX, files // 4)
    segments, regions = min(OPEN_FILES_MAX, left // 2), min(REGIONS_MAX, left // 8)
    return Descriptors(segments, regions, left - segments - regions)
