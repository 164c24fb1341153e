"""`make bench-peers` in small: real servers, a few workloads, one round, and what it writes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from support import reference

ROOT = Path(__file__).resolve().parents[2]
RUN_SECONDS_MAX = 280
PUBLISH = "publish 100 B, one per request, 1 connection, acks=1"
PUBLISH_SYNCED = "publish 100 B, one per request, 1 connection, fsync before ack"
COLD = "consume 1 KB from disk (cold), 12 s old"
FAN_OUT = "fan-out of 1 KB to 5 groups"
PACED = "end to end, 1,000 messages/s of 100 B, one per request"
START = "start until the first answer"


def measure(out: Path, *only: str, **environment: str) -> tuple[dict[str, Any], str]:
    """Runs the real command; peers.json and what it printed."""
    command = [sys.executable, "-m", "bench.peers", "--runs", "1", "--seconds", "0.2"]
    command += ["--peers", "penstock,kafka", "--touch-memory", "0"]
    command += ["--dir", str(out / "data"), "--out", str(out)]
    for text in only:
        command += ["--only", text]
    done = subprocess.run(
        command,
        cwd=ROOT,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=RUN_SECONDS_MAX,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert list((out / "data").iterdir()) == [], "servers' folders are removed"
    return json.loads((out / "peers.json").read_text()), done.stdout


def figures(found: dict[str, Any], workload: str, peer: str) -> dict[str, float]:
    [entry] = found["values"][workload][peer]
    assert "figures" in entry, entry
    result: dict[str, float] = entry["figures"]
    return result


@pytest.mark.peers
def test_penstock_alone_and_a_peer_that_is_missing(tmp_path: Path) -> None:
    only = (START, "idle for", PUBLISH, PUBLISH_SYNCED, COLD, FAN_OUT, PACED)
    nowhere = tmp_path / "no-jars"
    found, page = measure(tmp_path, *only, PENSTOCK_KAFKA_LIBS=str(nowhere))
    assert str(nowhere) in found["peers"]["Apache Kafka"]["missing"]
    assert "| Apache Kafka | missing: " in page
    assert {peer for peers in found["values"].values() for peer in peers} == {"Penstock"}
    assert figures(found, START, "Penstock")["s"] > 0
    published = figures(found, PUBLISH, "Penstock")
    assert published["per_s"] > 0
    assert 0 < published["ack_p50_ms"] <= published["ack_p99_ms"]
    assert figures(found, PUBLISH_SYNCED, "Penstock")["per_s"] > 0
    assert figures(found, COLD, "Penstock")["per_s"] > 0
    assert figures(found, FAN_OUT, "Penstock")["per_s"] > 0
    paced = figures(found, PACED, "Penstock")
    assert bool(paced["kept"]) == (paced["reached_per_s"] >= 950)
    assert "flush.messages=1" in found["peers"]["Penstock"]["durability_fsync"]
    assert page == (tmp_path / "peers.md").read_text() + "\n"


@pytest.mark.peers
@pytest.mark.java
def test_kafka_beside_it(tmp_path: Path) -> None:
    if reason := reference.missing():
        pytest.skip(reason)
    found, page = measure(tmp_path, START, PUBLISH)
    ours, theirs = (figures(found, START, peer)["s"] for peer in ("Penstock", "Apache Kafka"))
    [start_row] = [line for line in page.splitlines() if line.startswith(f"| {START} |")]
    assert start_row.count("x |") == 1, "a ratio stands beside Kafka's figure only"
    [goal] = [line for line in page.splitlines() if line.startswith(f"| {START}, s |")]
    assert ("| yes |" in goal) == (ours / theirs <= 0.2)
    assert figures(found, PUBLISH, "Apache Kafka")["per_s"] > 0
    plots = {path.name for path in tmp_path.glob("*.svg")}
    assert {"peers-throughput.svg", "peers-latency.svg", "peers-resources.svg"} >= plots
    assert "peers-throughput.svg" in plots
    assert "Apache Kafka" in (tmp_path / "peers-resources.svg").read_text()


def test_what_is_not_in_the_catalogue_is_refused() -> None:
    command = [sys.executable, "-m", "bench.peers"]
    for options, why in (
        (["--only", "no such thing"], "no workload has 'no such thing'"),
        (["--peers", "nobody"], "no peer has 'nobody' in its name"),
    ):
        done = subprocess.run(
            [*command, *options], cwd=ROOT, capture_output=True, text=True, check=False
        )
        assert done.returncode == 1
        assert why in done.stderr
