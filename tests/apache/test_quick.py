"""A selection of Apache Kafka's integration tests that pass here without exception, in one JVM.

`make test-apache` runs all of them, and compares.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.apache import jvm

# Requests of groups and offsets, topics and a few whole flows of producers and consumers: what a
# change of ours is most likely to break.
QUICK = (
    "kafka.server.DescribeGroupsRequestTest",
    "kafka.server.HeartbeatRequestTest",
    "kafka.server.JoinGroupRequestTest",
    "kafka.server.OffsetFetchRequestTest",
)


@pytest.mark.slow
def test_a_selection_of_kafkas_own_tests_passes(tmp_path: Path) -> None:
    if reason := jvm.missing():
        pytest.skip(reason)
    outcomes = jvm.run(jvm.PENSTOCK, QUICK, tmp_path / "reports")
    assert {outcome.test.rpartition(".")[0] for outcome in outcomes} == set(QUICK)
    assert {o.test: o.error for o in outcomes if not o.passed} == {}
