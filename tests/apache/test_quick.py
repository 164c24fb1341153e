"""A selection of Apache Kafka's integration tests that pass here without exception.

They take turns, by class (`support/rotation.py`). `make test-apache` runs all, and compares.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.apache import jvm

# Offsets, those in transactions, and members that leave: every version of requests that the others
# use as well. Members of share groups.
QUICK = (
    "kafka.server.LeaveGroupRequestTest",
    "kafka.server.OffsetFetchRequestTest",
    "kafka.server.ShareGroupDescribeRequestTest",
    "kafka.server.ShareGroupHeartbeatRequestTest",
    "kafka.server.TxnOffsetCommitRequestTest",
)
SECONDS_MAX = 600


@pytest.mark.timeout(SECONDS_MAX)
@pytest.mark.slow
@pytest.mark.parametrize("name", QUICK)
def test_a_selection_of_kafkas_own_tests_passes(tmp_path: Path, name: str) -> None:
    if reason := jvm.missing():
        pytest.skip(reason)
    outcomes = jvm.run(jvm.PENSTOCK, [name], tmp_path / "reports")
    assert {outcome.test.rpartition(".")[0] for outcome in outcomes} == {name}
    assert {o.test: o.error for o in outcomes if not o.passed} == {}
