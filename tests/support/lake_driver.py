"""A driver program for tests: archives a topic and kills itself in the middle of a commit.

    python -m support.lake_driver BOOTSTRAP TOPIC FOLDER FORMAT

It dies by SIGKILL when the first of a batch's files is in its place in the table.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from penstock.spark.lake import delta_table, files, iceberg_table, parquet_table
from penstock.spark.lake.table import Staged
from penstock.spark.session import start_session
from support.spark_lake import Archive
from support.spark_settings import SETTINGS


def publish_and_die(folder: Path, staged: Sequence[Staged]) -> None:
    files.publish(folder, staged[:1])
    os.kill(os.getpid(), signal.SIGKILL)


def main(bootstrap: str, topic: str, folder: str, table_format: str) -> None:
    for module in (parquet_table, delta_table, iceberg_table):
        module.publish = publish_and_die
    session = start_session("lake", "local[2]", SETTINGS)
    node: Any = SimpleNamespace(bootstrap=bootstrap)
    Archive(session, node, topic, Path(folder)).run(table_format=table_format)


if __name__ == "__main__":
    main(*sys.argv[1:])
