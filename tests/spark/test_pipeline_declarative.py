"""The example of Spark Declarative Pipelines, run from start to finish, twice."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from pathlib import Path

import pytest

from support.helpers import TopicMaker, produce_all, producer
from support.pipelines import SPARK, Pipelines
from support.process import BrokerProcess
from support.spark_sink import values

# One flow at a time, and patience: Spark gives a Python process ten seconds to come up.
CALM = (
    *("--conf", "spark.sql.pipelines.execution.maxConcurrentFlows=1"),
    *("--conf", "spark.sql.pipelines.maxFlowRetryAttempts=10"),
)
EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "pipelines" / "orders"


def order(node: BrokerProcess, topic: str, numbers: range) -> None:
    """Every third one costs nothing, which is no order."""
    orders = [{"id": str(n), "country": "NO", "amount": float(n % 3)} for n in numbers]
    produce_all(producer(node), topic, [{"value": json.dumps(o)} for o in orders])


def ids(found: Counter[bytes]) -> Counter[int]:
    return Counter({int(json.loads(value)["id"]): times for value, times in found.items()})


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_the_example_runs_and_goes_on(
    node: BrokerProcess, topic: TopicMaker, tmp_path: Path
) -> None:
    source, checked, refused = topic(partitions=2), topic(partitions=2), topic()
    shutil.copytree(EXAMPLE, tmp_path / "orders")
    pipelines = Pipelines(tmp_path, node)
    given = {"topic": source, "to": checked, "refused": refused}
    names = [word for key, value in given.items() for word in ("--set", f"{key}={value}")]
    for upto in (30, 60):
        order(node, source, range(upto - 30, upto))
        with pipelines.start("run", "orders", *names, *SPARK, *CALM) as run:
            assert run.wait() == 0, run.told() + pipelines.log("orders")
            assert {p["query"] for p in run.of("progress")} >= {"good_orders", "bad_orders"}
            assert run.of("flow")[-1]["text"] == "Run is COMPLETED."
        assert ids(values(node, checked)) == Counter(n for n in range(upto) if n % 3)
        assert ids(values(node, refused)) == Counter(n for n in range(upto) if not n % 3)
    tables = tmp_path / "orders" / "spark-warehouse"
    assert {path.name for path in tables.iterdir()} == {"all_orders", "revenue"}
