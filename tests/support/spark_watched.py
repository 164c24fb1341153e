"""The source and the sink with a look at their Python workers: how much memory each task took.

`watched` makes a data source of its own name; the classes are made in a function, so that Spark
sends them to its workers as they are, and no worker has to find this module.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from penstock.spark.reader import PenstockReader
from penstock.spark.source import PenstockSource
from penstock.spark.writer import BatchWriter

NAME = "penstock_watched"


def watched(folder: Path) -> type[PenstockSource]:
    """A source and sink whose tasks leave in `folder` by how many bytes they made their worker
    grow at most, one file each.
    """

    def memory(field: str) -> int:
        lines = Path("/proc/self/status").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(field))

    def forget_the_peak() -> int:
        Path("/proc/self/clear_refs").write_text("5")
        return memory("VmRSS:")

    def note_growth(before: int) -> None:
        import uuid

        (folder / uuid.uuid4().hex).write_text(str(memory("VmHWM:") - before))

    class Reader(PenstockReader):
        def read(self, partition: Any) -> Iterator[Any]:
            before = forget_the_peak()
            yield from super().read(partition)
            note_growth(before)

    class Writer(BatchWriter):
        def write(self, iterator: Iterator[Any]) -> Any:
            before = forget_the_peak()
            done = super().write(iterator)
            note_growth(before)
            return done

    class Watched(PenstockSource):
        @classmethod
        def name(cls) -> str:
            return NAME

        def reader(self, schema: Any) -> Any:
            made: Any = super().reader(schema)
            made.__class__ = Reader
            return made

        def writer(self, schema: Any, overwrite: bool) -> Any:
            made: Any = super().writer(schema, overwrite)
            made.__class__ = Writer
            return made

    return Watched


def growths(folder: Path) -> list[int]:
    """What the tasks have left since the last call."""
    found = []
    for file in folder.iterdir():
        found.append(int(file.read_text()))
        file.unlink()
    return found
