"""The node's log: lines on stderr, aligned text for people or JSON for machines.

Fields are passed as `extra`: `log.warning("the disk is full", extra={"topic": name})` ends as
`topic=name` in text and as a member in JSON. The names of `logging.LogRecord`'s own attributes,
such as `name` and `args`, cannot be used for fields.

A log call never waits for stderr: the line is put into a queue of `QUEUED_LINES_MAX` lines that
one daemon thread, owned by the `LogWriter`, writes. When stderr is not read and the queue is full,
lines are dropped, counted, and the count is logged as soon as lines flow again.
Invariant: one record is one line, but for a traceback in text; what a client sent cannot forge one.
"""

from __future__ import annotations

import json
import logging
import queue
import threading
import time
from collections import OrderedDict
from datetime import UTC, datetime
from typing import TextIO

QUEUED_LINES_MAX = 10_000
CLOSE_TIMEOUT_S = 2.0
ALARM_KEYS_MAX = 1_000

_OWN_ATTRIBUTES = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
_COLOURS = {"DEBUG": "2", "WARNING": "33", "ERROR": "31", "CRITICAL": "1;31"}


def _fields(record: logging.LogRecord) -> dict[str, object]:
    """What the caller passed as `extra`."""
    return {k: v for k, v in vars(record).items() if k not in _OWN_ATTRIBUTES}


def _time(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"


def _text_value(value: object) -> str:
    text = str(value)
    return text if text.isprintable() and not any(c in ' "=' for c in text) and text else repr(text)


class TextFormatter(logging.Formatter):
    """`time LEVEL logger: message key=value`, the level in colour when a person watches."""

    def __init__(self, *, colour: bool) -> None:
        super().__init__()
        self._colour = colour

    def format(self, record: logging.LogRecord) -> str:
        level = f"{record.levelname:<8}"
        if self._colour and record.levelname in _COLOURS:
            level = f"\x1b[{_COLOURS[record.levelname]}m{level}\x1b[0m"
        fields = "".join(f" {k}={_text_value(v)}" for k, v in _fields(record).items())
        message = record.getMessage()
        if not message.isprintable():
            message = repr(message)[1:-1]
        line = f"{_time(record)} {level} {record.name}: {message}{fields}"
        if record.exc_info:
            line += "\n" + self.formatException(record.exc_info)
        return line


class JsonFormatter(logging.Formatter):
    """One JSON object on one line; what JSON has no form for is written as its text."""

    def format(self, record: logging.LogRecord) -> str:
        members: dict[str, object] = {
            "time": _time(record),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        for name, value in _fields(record).items():
            members.setdefault(name, value)
        if record.exc_info:
            members["exception"] = self.formatException(record.exc_info)
        return json.dumps(members, default=str)


class LogWriter(logging.Handler):
    """Formats on the caller's thread, writes on its own."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__()
        self._stream = stream
        self._lines: queue.Queue[str | None] = queue.Queue(QUEUED_LINES_MAX)
        self._refused = 0  # lines that found the queue full; changed under the handler's lock
        self._reported = 0  # how many of them were logged; only the writing thread uses it
        self._unwritten = 0  # lines that stderr refused; only the writing thread uses it
        self._thread = threading.Thread(target=self._run, name="penstock-log", daemon=True)
        self._thread.start()

    def emit(self, record: logging.LogRecord) -> None:
        try:
            line = self.format(record)
        except Exception:
            self.handleError(record)
            return
        try:
            self._lines.put_nowait(line)
        except queue.Full:
            self._refused += 1

    @property
    def dropped(self) -> int:
        """How many lines were logged and not written."""
        return self._refused + self._unwritten

    def close(self) -> None:
        """Write what is queued, waiting no longer than `CLOSE_TIMEOUT_S` for it."""
        if self._thread.is_alive():
            try:
                self._lines.put(None, timeout=CLOSE_TIMEOUT_S)
            except queue.Full:
                return  # nobody reads stderr: the daemon thread ends with the process
            self._thread.join(CLOSE_TIMEOUT_S)
        super().close()

    def _run(self) -> None:
        while (line := self._lines.get()) is not None:
            self._write(line)
            if self._refused > self._reported and self._lines.empty():
                self._report_refused()

    def _report_refused(self) -> None:
        count = self._refused - self._reported
        self._reported += count
        note = "log lines were dropped because stderr was not read"
        fields = {"name": __name__, "levelname": "WARNING", "msg": note, "lines": count}
        self._write(self.format(logging.makeLogRecord(fields)))

    def _write(self, line: str) -> None:
        try:
            self._stream.write(line + "\n")
            self._stream.flush()
        except (OSError, ValueError):
            self._unwritten += 1  # stderr is closed: it cannot be logged


def set_up_logging(*, level: str, form: str, stream: TextIO) -> LogWriter:
    """Send everything that is logged in this process to `stream`; close the writer at the end.

    `level` and `form` are the settings `penstock.log.level` and `penstock.log.format`.
    """
    writer = LogWriter(stream)
    writer.setFormatter(
        JsonFormatter() if form == "json" else TextFormatter(colour=stream.isatty())
    )
    logging.getLogger().handlers[:] = [writer]
    set_level(level)
    return writer


def set_level(level: str) -> None:
    """Show nothing less severe than `level`: debug, info, warning or error."""
    logging.getLogger().setLevel(level.upper())


class Alarm:
    """Keeps a repeated error from flooding the log.

    `raised` logs an error the first time and then at most once per interval for each key, with the
    number of times it was silent.
    """

    def __init__(
        self, log: logging.Logger, *, interval_s: float = 30.0, level: int = logging.ERROR
    ) -> None:
        self._log = log
        self._level = level
        self._interval_s = interval_s
        self._active: OrderedDict[str, tuple[float, int]] = OrderedDict()

    def raised(self, key: str, message: str, **fields: object) -> None:
        now = time.monotonic()
        last, silent = self._active.get(key, (None, 0))
        if last is not None and now - last < self._interval_s:
            self._active[key] = (last, silent + 1)
            return
        self._active[key] = (now, 0)
        if len(self._active) > ALARM_KEYS_MAX:
            self._active.popitem(last=False)
        if silent:
            fields["repeated"] = silent
        self._log.log(self._level, message, extra=fields)
