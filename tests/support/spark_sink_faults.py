"""The sink with a death in it: a data source that kills its Python worker, or all of Spark, at one
request.

`Fault` says where; it is read from a file that is taken once, so that what Spark repeats gets
through. Only the counting of requests is added: everything else is the sink as it is.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from penstock.kafka import connection
from penstock.spark.source import PenstockSource
from penstock.spark.stream_writer import StreamWriter


class Fault(msgspec.Struct):
    """Dies at the `count`-th `request` (a message's class without "Request"), before it is sent or
    after; with it goes all of Spark, or only the Python worker.
    """

    request: str
    count: int = 1
    sent: bool = False
    whole_spark: bool = False


class Place:
    """The folder where the test and the processes of Spark meet.

    Every order has a number, since workers of a Spark that was killed live on for a moment: one
    that still looks for its own fault must not take the next one for it.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._ordered = 0
        self.jvm = folder / "jvm.pid"

    def order(self, fault: Fault) -> None:
        for old in self._folder.glob("fault-*.json"):
            old.unlink()
        self._ordered += 1
        new = self._folder / "fault.new"
        new.write_bytes(msgspec.json.encode(fault))
        new.rename(self._folder / f"fault-{self._ordered}.json")

    def happened(self) -> bool:
        """Whether what was ordered last has struck."""
        return (self._folder / f"fault-{self._ordered}.taken").exists()

    def peek(self) -> tuple[Path, Fault] | None:
        """What is ordered now, and the file that says so."""
        for file in self._folder.glob("fault-*.json"):
            with contextlib.suppress(FileNotFoundError):
                return file, msgspec.json.decode(file.read_bytes(), type=Fault)
        return None

    def die(self, file: Path, fault: Fault) -> None:
        """Only one process takes the fault; it does not come back from here."""
        try:
            file.rename(file.with_suffix(".taken"))
        except FileNotFoundError:
            return
        if fault.whole_spark:
            os.kill(int(self.jvm.read_text()), signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGKILL)


def with_fault(place: Place, work: Callable[[], Any]) -> Any:
    """Does `work`; the requests that it sends may be its last."""
    ordered = place.peek()
    if ordered is None:
        return work()
    file, fault = ordered
    send = connection.Connection.send
    seen = 0

    def counted(self: connection.Connection, request: Any, version: int) -> None:
        nonlocal seen
        here = type(request).__name__ == f"{fault.request}Request"
        seen += here
        if here and seen == fault.count and not fault.sent:
            place.die(file, fault)
        send(self, request, version)
        if here and seen == fault.count and fault.sent:
            place.die(file, fault)

    connection.Connection.send = counted  # type: ignore[method-assign]
    try:
        return work()
    finally:
        connection.Connection.send = send  # type: ignore[method-assign]


class MortalWriter(StreamWriter):
    place: Place

    def write(self, iterator: Iterator[Any]) -> Any:
        return with_fault(self.place, lambda: super(MortalWriter, self).write(iterator))

    def commit(self, messages: list[Any], batchId: int) -> None:  # noqa: N803
        with_fault(self.place, lambda: super(MortalWriter, self).commit(messages, batchId))


class MortalSink(PenstockSource):
    """The sink, found as `penstock_mortal`; its folder is in the environment."""

    @classmethod
    def name(cls) -> str:
        return "penstock_mortal"

    def streamWriter(self, schema: Any, overwrite: bool) -> MortalWriter:  # noqa: N802
        found = super().streamWriter(schema, overwrite)
        assert isinstance(found, StreamWriter)
        writer = MortalWriter(found._options)
        writer.place = Place(Path(os.environ["MORTAL_SINK_FOLDER"]))
        return writer
