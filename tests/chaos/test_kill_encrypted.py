"""kill -9 under load on a node whose data is encrypted: as without, and nothing plain on disk."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from chaos.test_kill import FLUSH_SECONDS_MAX, PARTITIONS, PRODUCERS, SEED, Load, check, read_back
from support.encrypted import files_with, key_file
from support.helpers import make_topic
from support.process import BrokerProcess

ROUNDS = 4


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_kill_under_load(
    fresh_node: Any, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    record_property("PENSTOCK_KILL_SEED", SEED)
    moments = random.Random(SEED)
    node: BrokerProcess = fresh_node(settings=key_file(tmp_path / "keys", 1, 2))
    topic = make_topic(node, "secret-topic", PARTITIONS, {"segment.bytes": "1048576"})
    loads = [Load(i, node.bootstrap, topic, "none") for i in range(PRODUCERS)]
    for load in loads:
        load.start()
    for _ in range(ROUNDS):
        time.sleep(moments.uniform(0.2, 1.2))
        node.kill()
        node.start()
    for load in loads:
        load.done.set()
    for load in loads:
        load.join(FLUSH_SECONDS_MAX + 10)
        assert not load.is_alive()
    assert all(load.acked for load in loads)
    check(loads, read_back(node, topic))
    node.restart()
    check(loads, read_back(node, topic))
    node.stop()
    assert files_with(node.data_dir, b"x" * 40) == []
    # What is encrypted, and what is not, are where they are thought to be.
    assert files_with(node.data_dir, b"secret-topic") == ["recovery-point-offset-checkpoint"]
