"""The files that a process may open are shared out, and nothing is promised twice."""

from __future__ import annotations

import pytest

from penstock.config.broker_config import broker_config
from penstock.log.limits import OPEN_FILES_MAX, REGIONS_MAX
from penstock.net.admission import Admission
from penstock.node.descriptors import RESERVED_MAX, divided
from penstock.node.listening import connection_limits


@pytest.mark.parametrize("files", [64, 256, 1_024, 4_096, 20_000, 65_536, 2**31 - 1])
def test_all_have_some_and_a_reserve_is_left(files: int) -> None:
    found = divided(files)
    assert min(found) > 0
    assert files - sum(found) == min(RESERVED_MAX, files // 4)
    assert found.segments <= OPEN_FILES_MAX
    assert found.regions <= REGIONS_MAX


def test_connections_get_what_the_others_leave() -> None:
    assert divided(20_000) == (OPEN_FILES_MAX, REGIONS_MAX, 20_000 - 256 - 4_096 - 1_024)


@pytest.mark.parametrize(
    ("setting", "files", "most", "by"),
    [("50", 80, 50, "max.connections"), ("50", 40, 40, "ulimit -n"), (None, 40, 40, "ulimit -n")],
)
def test_the_lower_limit_counts(setting: str | None, files: int, most: int, by: str) -> None:
    config = broker_config({} if setting is None else {"max.connections": setting})
    admission = Admission(connection_limits(config, files))
    for _ in range(most):
        assert admission.refusal("PLAINTEXT", "127.0.0.1") == ""
        admission.entered("PLAINTEXT", "127.0.0.1")
    assert admission.refusal("PLAINTEXT", "127.0.0.1") == by
