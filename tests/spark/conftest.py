"""One SparkSession for all tests of this folder: to start one takes seconds."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from penstock.spark.session import start_session
from support.spark_settings import SETTINGS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TEST_SECONDS_MAX = 480
"""A time-out that strikes within a call to the JVM breaks the session, and with it every test that
comes after: so it is for what hangs, not for a machine that is busy.
"""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if item.path.is_relative_to(here) and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(TEST_SECONDS_MAX))


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Spark on two threads of this machine."""
    place: Path = tmp_path_factory.mktemp("spark")
    more = {
        "spark.local.dir": str(place),
        "spark.sql.warehouse.dir": str(place / "warehouse"),
        "spark.task.maxFailures": "1",
    }
    session = start_session("penstock-tests", "local[2]", SETTINGS | more)
    yield session
    session.stop()
