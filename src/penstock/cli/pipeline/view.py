"""What a run shows: a live table for people, plain lines for pipes, JSON lines for programs.

Text goes to stderr and what the pipeline prints to stdout, so that a report of a pipeline can be
piped on. With JSON stdout carries one object per line and nothing else. On a terminal each query
has one line, drawn anew with every micro-batch; into a pipe a query writes at most one line in
LINE_S.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from penstock.cli.options import Format
from penstock.cli.output import bytes_text, plural, remark
from penstock.cli.values import duration_text
from penstock.spark.pipeline.supervise import View

LINE_S = 10.0


def progress_text(line: dict[str, Any]) -> str:
    """One micro-batch in words."""
    behind = line["lag_rows"]
    parts = [
        f"{line['query']}: batch {line['batch']}",
        plural(line["rows"], "row"),
        f"{line['rows_per_s']:,.0f} rows/s",
        f"took {duration_text(int(line['batch_ms'] or 0))}",
        "lag unknown" if behind is None else f"lag {behind:,} rows",
    ]
    if line["state_rows"]:
        parts.append(f"state {line['state_rows']:,} rows, {bytes_text(line['state_bytes'])}")
    return " · ".join(parts)


def working_text(name: str, line: dict[str, Any]) -> str:
    """Work under way in words."""
    tasks = f"{line['tasks_done']:,} of {plural(line['tasks'], 'task')} done"
    return f"{name}: at work · {tasks} · for {duration_text(int(line['seconds'] * 1000))}"


class JsonView:
    """Events as they come."""

    def __init__(self, name: str) -> None:
        self._name = name

    def progress(self, line: dict[str, Any]) -> None:
        self._print("progress", line)

    def working(self, line: dict[str, Any]) -> None:
        self._print("working", line)

    def note(self, event: str, text: str, **more: Any) -> None:
        self._print(event, {"text": text, **more})

    def output(self, line: str) -> None:
        remark(line)

    def _print(self, event: str, fields: dict[str, Any]) -> None:
        text = json.dumps({"event": event, "pipeline": self._name, **fields}, ensure_ascii=False)
        print(text, flush=True)


class PlainView:
    """Lines for a pipe or a log."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._shown_at_s: dict[str, float] = {}
        self._progress_at_s = -LINE_S

    def progress(self, line: dict[str, Any]) -> None:
        self._progress_at_s = time.monotonic()
        self._seldom(line["query"], progress_text(line))

    def working(self, line: dict[str, Any]) -> None:
        """Only while there is no progress to be seen."""
        if time.monotonic() - self._progress_at_s >= LINE_S:
            self._seldom("", working_text(self._name, line))

    def _seldom(self, about: str, text: str) -> None:
        now_s = time.monotonic()
        if now_s - self._shown_at_s.get(about, -LINE_S) >= LINE_S:
            self._shown_at_s[about] = now_s
            remark(text)

    def note(self, event: str, text: str, **more: Any) -> None:
        remark(note_text(self._name, event, text))

    def output(self, line: str) -> None:
        print(line, flush=True)


def note_text(name: str, event: str, text: str) -> str:
    """An event in words."""
    return f"error: {name}: {text}" if event == "failed" else f"{name}: {text}"


@contextmanager
def view_for(output: Format, name: str) -> Iterator[View]:
    """The view that suits whoever watches."""
    if output is Format.JSON:
        yield JsonView(name)
    elif not sys.stderr.isatty():
        yield PlainView(name)
    else:
        from penstock.cli.pipeline.live_view import live_view

        with live_view(name) as view:
            yield view
