"""A driver program for tests: copies a topic to another through the mortal sink.

    python -m support.spark_sink_driver BOOTSTRAP FROM TO CHECKPOINT [FAULT.json ...]

Each fault is run with its own checkpoint below CHECKPOINT and its own output topic TO-i; without
faults the checkpoint and the topic are used as they are. A task may be repeated three times.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import msgspec

from penstock.spark.session import start_session
from support.spark_settings import SETTINGS
from support.spark_sink_faults import Fault, MortalSink, Place
from support.spark_source import run_to_end

ROWS_PER_BATCH = "40"
QUIET = SETTINGS | {"spark.log.level": "OFF"}


def main(bootstrap: str, source: str, target: str, checkpoint: str, *faults: str) -> None:
    place = Place(Path(os.environ["MORTAL_SINK_FOLDER"]))
    session = start_session("mortal", "local[2,4]", QUIET)
    pid = session._jvm.java.lang.ProcessHandle.current().pid()  # type: ignore[union-attr]
    place.jvm.write_text(str(pid))
    session.dataSource.register(MortalSink)
    rows = (
        session.readStream.format("penstock")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", source)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", ROWS_PER_BATCH)
        .load()
        .select("key", "value")
    )

    def copy(topic: str, progress: str) -> None:
        writer = (
            rows.writeStream.format("penstock_mortal")
            .option("kafka.bootstrap.servers", bootstrap)
            .option("topic", topic)
            .option("checkpointLocation", progress)
            .trigger(availableNow=True)
        )
        run_to_end(writer.start)

    for number, text in enumerate(faults):
        place.order(msgspec.json.decode(text, type=Fault))
        copy(f"{target}-{number}", f"{checkpoint}/{number}")
        assert place.happened(), f"{text} did not happen"
        print("survived", text, flush=True)
    if not faults:
        copy(target, checkpoint)
        print("done", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
