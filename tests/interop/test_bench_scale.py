"""`python -m bench.scale` at sizes of a few: every part gives its figures."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from penstock.node.descriptors import divided

pytest.importorskip("confluent_kafka", reason="bench.scale needs confluent-kafka")

ROOT = Path(__file__).resolve().parents[2]
SECONDS_MAX = 240.0


def scale(out: Path, part: str, size: int) -> list[dict[str, Any]]:
    """The rows of one part at one size."""
    command = [sys.executable, "-m", "bench.scale", "--only", part, "--max", str(size)]
    command += ["--seconds", "0.5", "--out", str(out), "--dir", str(out)]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=SECONDS_MAX, check=False
    )
    assert done.returncode == 0, done.stderr
    found = json.loads((out / "scale.json").read_text())
    assert part in (out / "scale.md").read_text()
    rows: list[dict[str, Any]] = found["parts"][part]
    assert not [row for row in rows if "failed" in row], done.stderr
    return rows


def test_partitions_live_through_kill_and_stop(tmp_path: Path) -> None:
    [row] = scale(tmp_path, "partitions", 20)
    assert (row["topics"], row["partitions"]) == (2, 20)
    assert row["list_bytes"] > 20 * 20
    assert row["rss_mb"] > 0
    assert row["recovered_s"] >= 0


def test_one_topic_is_shared_by_a_group(tmp_path: Path) -> None:
    [row] = scale(tmp_path, "one topic", 40)
    assert row["consumer_moved_too_many"] == 0
    assert row["metadata_bytes"] > 40 * 20


def test_three_nodes_fail_over(tmp_path: Path) -> None:
    [row] = scale(tmp_path, "three nodes", 30)
    assert row["leader_partitions_moved"] > 0
    assert row["controller_failover_last_s"] >= row["controller_failover_first_s"] > 0


def test_every_message_of_every_producer_arrives_at_its_consumer(tmp_path: Path) -> None:
    [row] = scale(tmp_path, "active connections", 20)
    assert row["received"] == row["sent"] == 60
    assert row["end_to_end_max_ms"] > 0


def test_idle_connections_are_counted(tmp_path: Path) -> None:
    [row] = scale(tmp_path, "idle connections", 50)
    assert row["nodes"] == 1
    assert row["tcp_sockets"] >= 100


def test_a_full_node_serves_whom_it_has_and_takes_others_when_some_have_gone(
    tmp_path: Path,
) -> None:
    [row] = scale(tmp_path, "a full node", 300)
    assert (row["files"], row["segments"]) == (300, 75)
    assert row["connections"] == divided(300).connections == 85
    assert row["answered_when_full"] == row["connections"]
    assert row["knocks_taken"] == 0
    assert row["full_lines_logged"] > 0
    assert row["messages_there"] == 1
    assert row["taken_again_s"] >= 0


def test_a_size_that_fails_is_recorded_with_its_reason_and_ends_the_series(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "bench.scale", "--only", "one topic", "--max", "3000"]
    command += ["--out", str(tmp_path), "--dir", str(tmp_path / "missing")]
    subprocess.run(command, cwd=ROOT, capture_output=True, timeout=SECONDS_MAX, check=True)
    [row] = json.loads((tmp_path / "scale.json").read_text())["parts"]["one topic"]
    assert "missing" in row["failed"]
    assert "failed" in (tmp_path / "scale.md").read_text()
    assert not os.path.exists(tmp_path / "scale-one-topic.svg")
