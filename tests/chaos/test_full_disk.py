"""A full disk: writes are refused as storage errors, reads go on, and it heals with space."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import NewTopic

from penstock.base.errors import ErrorCode
from support.batches import batch, heads
from support.calls import RawTopic, fetch, find_topic, list_offset, produce
from support.helpers import admin, make_topic
from support.node import NodeProcess
from support.raw import RawClient
from support.waiting import eventually

pytestmark = pytest.mark.penstock_only  # Kafka gives up the whole directory instead

DISK_BYTES = 48 * 1024 * 1024
BALLAST_BYTES = 12 * 1024 * 1024
BATCH_BYTES = 500_000
HEAL_SECONDS_MAX = 40.0


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A directory whose `data` is a small volume of its own."""
    if os.geteuid() != 0 or shutil.which("mount") is None:
        pytest.skip("only root can mount a small volume")
    root = tmp_path / "small"
    data = root / "data"
    data.mkdir(parents=True)
    mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", str(data)]
    done = subprocess.run(mount, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"a small volume cannot be mounted here: {done.stderr.strip()}")
    yield root
    subprocess.run(["umount", "-l", str(data)], check=True)


def fill(client: RawClient, topic: RawTopic) -> tuple[int, int]:
    """Publishes until it is refused; how many batches went in, and the error."""
    for count in range(DISK_BYTES // BATCH_BYTES + 10):
        answer = produce(client, topic, batch([bytes([count % 256]) * BATCH_BYTES]))
        if answer.error_code != 0:
            return count, answer.error_code
    raise AssertionError("the disk never got full")


def read_all(client: RawClient, topic: RawTopic) -> list[int]:
    """The base offsets of everything stored."""
    found: list[int] = []
    end = list_offset(client, topic, -1).offset
    while len(found) < end:
        answer = fetch(client, topic, len(found))
        assert answer.error_code == 0
        batches = heads(answer.records)
        assert batches, f"nothing at offset {len(found)} of {end}"
        found += [head.base_offset for head in batches]
    return found


def test_a_full_disk(small_disk: Path, fresh_node: Callable[..., NodeProcess]) -> None:
    node = fresh_node(root=small_disk)
    ballast = node.data_dir / "ballast"
    with RawClient(node.host, node.port) as client:
        big = find_topic(client, make_topic(node, "big"))
        quiet = find_topic(client, make_topic(node, "quiet"))
        assert produce(client, quiet, batch([b"before"])).error_code == 0
        assert node.metric("penstock_log_dir_writable") == 1
        ballast.write_bytes(bytes(BALLAST_BYTES))

        stored, error = fill(client, big)
        assert error == ErrorCode.KAFKA_STORAGE_ERROR
        assert stored > 10

        # Reads go on, and say exactly what was acknowledged.
        assert read_all(client, big) == list(range(stored))
        assert read_all(client, quiet) == [0]
        assert node.metric("penstock_log_append_failures_total") >= 1
        assert node.metric("penstock_log_dir_writable") == 0
        assert node.running
        assert "space" in node.log_tail().lower()

        # What needs the disk is refused, or waits; nothing of it may bring the node down.
        admin(node).create_topics([NewTopic("during", 1, 1)])
        for _ in range(20):
            produce(client, big, batch([b"x" * BATCH_BYTES]))
        stored = list_offset(client, big, -1).offset
        assert read_all(client, big) == list(range(stored))

        ballast.unlink()
        eventually(
            lambda: produce(client, big, batch([b"after" * 1000])).error_code == 0, HEAL_SECONDS_MAX
        )
        assert produce(client, quiet, batch([b"after"])).error_code == 0
        eventually(lambda: node.metric("penstock_log_dir_writable") == 1)
        ends = [list_offset(client, topic, -1).offset for topic in (big, quiet)]
    node.restart()
    with RawClient(node.host, node.port) as client:
        assert [len(read_all(client, topic)) for topic in (big, quiet)] == ends
        make_topic(node, "later")
    node.stop()


def test_a_kill_on_a_full_disk(small_disk: Path, fresh_node: Callable[..., NodeProcess]) -> None:
    node = fresh_node(root=small_disk)
    ballast = node.data_dir / "ballast"
    with RawClient(node.host, node.port) as client:
        big = find_topic(client, make_topic(node, "big"))
        ballast.write_bytes(bytes(BALLAST_BYTES))
        stored, _ = fill(client, big)
    node.kill()
    ballast.unlink()
    node.start()
    with RawClient(node.host, node.port) as client:
        assert read_all(client, big)[:stored] == list(range(stored))
        assert produce(client, big, batch([b"after"])).error_code == 0
    node.stop()
