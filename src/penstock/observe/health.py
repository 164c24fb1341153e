"""What a node says about itself when it is asked whether it lives and whether it serves."""

from __future__ import annotations

from typing import NamedTuple


class Health(NamedTuple):
    """The state behind `/healthz` (live) and `/readyz` (ready), with the reason for people."""

    live: bool
    ready: bool
    reason: str
