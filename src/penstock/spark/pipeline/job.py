"""What the parent tells the child, and the names of what the child reports.

A job is one line of JSON on the child's stdin, so that no password of it is seen among the
machine's processes. Stdin then stays open: when it ends, the parent is gone, and the child stops.
Events are lines of JSON on a pipe of their own, since stdout belongs to the pipeline.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any, Final, Self

STARTED: Final = "started"
WORKING: Final = "working"
PROGRESS: Final = "progress"
FLOW: Final = "flow"
FAILED: Final = "failed"
STOPPED: Final = "stopped"
"""Told to stop, and did so before its work was at its natural end."""

BATCH_END_S_MAX: Final = 60.0
"""How long a running micro-batch may take to end when the pipeline is stopped."""


@dataclass(frozen=True)
class Job:
    name: str
    file: str
    is_declarative: bool
    settings: dict[str, str]
    master: str
    spark: dict[str, str]

    def line(self) -> bytes:
        return json.dumps(asdict(self)).encode() + b"\n"

    @classmethod
    def of(cls, line: bytes) -> Self:
        found: dict[str, Any] = json.loads(line)
        return cls(**found)
