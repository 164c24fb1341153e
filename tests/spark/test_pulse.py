"""A pipeline at work is seen to be, before any micro-batch is over."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from penstock.spark.pipeline import pulse
from support.waiting import eventually

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql import SparkSession

SEEN_S_MAX = 120.0


def test_tasks_are_counted_while_they_run(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pulse, "PULSE_S", 0.05)
    end = str(tmp_path / "end")

    def until_told(frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        while not Path(end).exists():
            time.sleep(0.05)
        yield from frames

    rows = spark.range(4, numPartitions=2).mapInPandas(until_told, "id long")
    work = threading.Thread(target=rows.collect)
    seen: list[dict[str, Any]] = []
    pulse.start_pulse(spark.sparkContext, seen.append)
    work.start()
    try:
        eventually(lambda: any(line["tasks"] == 2 for line in seen), SEEN_S_MAX)
        assert all(line["tasks_done"] == 0 for line in seen if line["tasks"] == 2)
    finally:
        Path(end).touch()
        work.join()
    eventually(lambda: pulse.tasks(spark.sparkContext) is None, SEEN_S_MAX)
