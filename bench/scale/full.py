"""A node whose descriptors have run out: how many connections it takes, and what it does then.

The node may open `files` files. It keeps some of them for its segments; connections are made one
after the other, until one is closed or not answered. Then those that the node has must be served as
before, logs that were not open among them; it must not burn a core over those that it cannot take,
say that it refuses them, and take new ones when others have gone. The load has processes of its
own, which have the same limit.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from tests.support.node import NodeProcess

from penstock.cli.bench.requests import FetchFrame, count_records, fetched_records

from .calls import Caller, ScaleError, topic_names
from .connections import LoadProcess, loads
from .nodes import (
    POLL_S,
    SPARE_FILES,
    address,
    allow_files,
    busy_cores,
    rss_mb,
    single_node,
    until,
)

SEGMENTS_SHARE = 4
"""There are so many files for one partition."""
FILL_S_MAX = 300.0
ANSWER_S_MAX = 5.0
"""A connection that has no answer for so long was not taken."""
AGAIN_S_MAX = 30.0
KNOCKS = 100
HANG_UP = 100
FETCH_BYTES = 64 * 1024


def full(root: Path, files: int, seconds: float) -> dict[str, Any]:
    """Connections to one node that may open `files` files."""
    if files > allow_files():
        raise ScaleError(f"a process may open {allow_files():,} files here")
    [topic] = topic_names(1)
    segments = files // SEGMENTS_SHARE
    per_load = allow_files() - SPARE_FILES
    with (
        single_node(root, files=files) as node,
        Caller(address(node)) as early,
        loads(-(-files // per_load)) as started,
    ):
        early.create([topic], segments)
        early.publish_each([topic], range(1, segments))
        found: dict[str, Any] = {"files": files, "segments": segments}
        found["open_files_before"] = node.open_files()
        began = time.perf_counter()
        used = _fill(node, started, per_load)
        found["connections"] = sum(count for _, count in used) + 1
        found["fill_s"] = round(time.perf_counter() - began, 1)
        found |= {"open_files": node.open_files(), "rss_mb": rss_mb(node)}
        found |= _while_full(node, early, topic, seconds)
        found |= _every_connection(used)
        found |= _again(node, used)
        found["lines_logged"] = _lines(node)
        if not node.running:
            raise ScaleError(f"the node has died: {node.log_tail()}")
    return found


def _fill(
    node: NodeProcess, started: list[LoadProcess], most: int
) -> list[tuple[LoadProcess, int]]:
    """Fills a node; the load processes that it took, with the connections of each."""
    used = []
    for number, load in enumerate(started):
        load.tell("fill", first=number * most, count=most, **_where(node))
        told = load.hear()
        used.append((load, int(told["connected"])))
        if told["full"]:
            return used
    raise ScaleError("the node takes more connections than it may open files")


def _while_full(node: NodeProcess, early: Caller, topic: str, seconds: float) -> dict[str, Any]:
    """What becomes of those who come; a message out and back on an old connection, by a log that
    was never open.
    """
    lines = _lines(node)
    taken = sum(_is_taken(node) for _ in range(KNOCKS))
    found: dict[str, Any] = {"knocks": KNOCKS, "knocks_taken": taken}
    found["full_cores"] = busy_cores([node], seconds)
    found["full_lines_logged"] = _lines(node) - lines
    began = time.perf_counter()
    early.publish_each([topic], [0])
    answer = early.send(FetchFrame(topic, 0, FETCH_BYTES, 0).at(0, 0))
    found["publish_and_fetch_ms"] = round(1000 * (time.perf_counter() - began), 2)
    found["messages_there"], _ = count_records(fetched_records(memoryview(answer.data)))
    return found


def _is_taken(node: NodeProcess) -> bool:
    """Whether a new connection is answered."""
    try:
        with Caller(address(node), ANSWER_S_MAX) as caller:
            caller.metadata([])
    except (ScaleError, OSError):
        return False
    return True


def _every_connection(used: list[tuple[LoadProcess, int]]) -> dict[str, Any]:
    answered = 0
    for load, _ in used:
        load.tell("greet")
        answered += int(load.hear()["answered"])
    return {"answered_when_full": answered + 1}


def _again(node: NodeProcess, used: list[tuple[LoadProcess, int]]) -> dict[str, Any]:
    """Some hang up; the seconds until who comes is answered."""
    load, count = used[-1]
    gone = min(HANG_UP, count)
    load.tell("hang_up", count=gone)
    load.hear()
    took = until(lambda: _is_taken(node), AGAIN_S_MAX, "a new connection to be taken", POLL_S)
    load.tell("fill", first=0, count=gone // 2, **_where(node))
    told = load.hear()
    if told["full"]:
        raise ScaleError(f"it takes {told['connected'] - count + gone} after {gone} have gone")
    return {"hung_up": gone, "taken_again_s": round(took, 3)}


def _where(node: NodeProcess) -> dict[str, Any]:
    return {"host": node.host, "port": node.port, "seconds": FILL_S_MAX, "wait_s": ANSWER_S_MAX}


def _lines(node: NodeProcess) -> int:
    """Lines that the node has logged."""
    return node.log_path.read_bytes().count(b"\n")
