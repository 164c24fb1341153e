"""Encryption at rest with real clients and processes: a cluster, compaction, Vault, settings."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from support.cluster import Cluster
from support.encrypted import files_with, key_file
from support.helpers import (
    NO_DUPLICATES,
    QUIET,
    admin,
    consumer,
    make_topic,
    produce_all,
    producer,
    read,
    take,
)
from support.keys import KEY_ID
from support.node import NodeProcess
from support.vault import TOKEN, Transit, vault
from support.waiting import CALL_SECONDS_MAX, eventually

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240), pytest.mark.penstock_only]

SECRET = b"a payload that is secret"


def set_key(node: NodeProcess, topic: str, key_id: str) -> None:
    """Alter the topic's setting."""
    entry = ConfigEntry(
        "penstock.encryption.key.id", key_id, incremental_operation=AlterConfigOpType.SET
    )
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    done = admin(node).incremental_alter_configs([resource])
    next(iter(done.values())).result(CALL_SECONDS_MAX)


def publish(node: NodeProcess, topic: str, *values: bytes, key: bytes = b"k") -> None:
    client = producer(node, enable_idempotence=True)
    produce_all(client, topic, [{"value": value, "key": key} for value in values])


def values(node: NodeProcess, topic: str, count: int) -> list[bytes]:
    return [m.value() for m in read(node, topic, count, check_crcs=True)]


def latest(node: NodeProcess, topic: str, until: bytes) -> dict[bytes, bytes]:
    """The last committed value of each key, up to that of `until`."""
    client = consumer(node, isolation_level="read_committed", check_crcs=True)
    client.assign([TopicPartition(topic, 0, 0)])
    found: dict[bytes, bytes] = {}
    while until not in found:
        [message] = take(client, 1)
        found[message.key()] = message.value()
    client.close()
    return found


# -- a cluster ---------------------------------------------------------------------------------


def test_each_node_of_a_cluster_encrypts_for_itself(tmp_path: Path) -> None:
    """Leaders die, others follow them; no two nodes have the same key."""
    each = {n: key_file(tmp_path / f"keys-{n}") for n in (1, 2, 3)}
    sent = [SECRET + b" %d" % i for i in range(3_000)]
    settings = {"metadata.log.max.record.bytes.between.snapshots": "2000"}
    with Cluster(3, tmp_path / "nodes", settings, each=each) as cluster:
        cluster.start()
        cluster.make_topic("t", partitions=1)
        failed: list[Any] = []
        client = Producer({"bootstrap.servers": cluster.bootstrap, **NO_DUPLICATES, **QUIET})
        for i, value in enumerate(sent):
            client.produce("t", value, on_delivery=lambda e, _: failed.append(e) if e else None)
            client.poll(0.001)
            if i in (1_000, 2_000):
                leader = cluster.leader("t", 0)
                cluster.kill(leader)
                eventually(lambda dead=leader: cluster.leader("t", 0) not in (-1, dead))
                cluster.start_node(leader)
        assert client.flush(60) == 0
        assert failed == []
        for n in range(20):  # enough metadata for a snapshot
            cluster.make_topic(f"more-{n}", partitions=1)
        cluster.wait_in_sync("t")
        node = cluster.nodes[cluster.leader("t", 0)]
        assert values(node, "t", len(sent)) == sent
        folders = [one.data_dir for one in cluster.nodes.values()]
        for folder in folders:
            metadata = folder / "__cluster_metadata-0"
            eventually(lambda at=metadata: list(at.glob("*.checkpoint")))
        cluster.stop_all()
        for folder in folders:
            assert files_with(folder, SECRET) == []
            assert files_with(folder / "__cluster_metadata-0", b"more-1") == []
        # A follower with a new disk has it all from the others.
        cluster.start()
        gone = cluster.nodes[2]
        cluster.kill(2)
        for path in sorted(gone.data_dir.rglob("*"), reverse=True):
            path.rmdir() if path.is_dir() else path.unlink()
        cluster.start_node(2)
        cluster.wait_in_sync("t")
        assert files_with(gone.data_dir, SECRET) == []


# -- one node ----------------------------------------------------------------------------------


def test_compaction_retention_times_and_transactions(fresh_node: Any, tmp_path: Path) -> None:
    node = fresh_node(
        settings={**key_file(tmp_path / "keys"), "log.cleaner.backoff.ms": "100"},
    )
    config = {
        "cleanup.policy": "compact",
        "segment.bytes": "1048576",
        "min.cleanable.dirty.ratio": "0.01",
    }
    topic = make_topic(node, "compacted", 1, config)
    filler = SECRET * 20_000
    for n in range(6):
        publish(node, topic, b"%d" % n + filler)
    publish(node, topic, b"last", key=b"other")
    eventually(lambda: node.metric("penstock_cleaner_runs_total") >= 1, 60)
    assert latest(node, topic, b"other") == {b"k": b"5" + filler, b"other": b"last"}
    client = producer(node, transactional_id="tx")
    client.init_transactions(20)
    for commit in (True, False):
        client.begin_transaction()
        client.produce(topic, SECRET, key=b"in a transaction, %d" % commit)
        client.flush()
        client.commit_transaction() if commit else client.abort_transaction()
    node.restart()
    client = producer(node)
    produce_all(client, topic, [{"key": b"end", "value": b""}])
    assert latest(node, topic, b"end") == {
        b"k": b"5" + filler,
        b"other": b"last",
        b"in a transaction, 1": SECRET,
        b"end": b"",
    }
    node.stop()
    assert files_with(node.data_dir, SECRET) == []


def test_a_topic_is_encrypted_from_the_next_batch_on(fresh_node: Any, tmp_path: Path) -> None:
    settings = key_file(tmp_path / "keys")
    del settings["penstock.encryption.key.id"]
    node = fresh_node(settings=settings)
    topic = make_topic(node, "t")
    publish(node, topic, b"open 1")
    set_key(node, topic, KEY_ID)
    publish(node, topic, SECRET, SECRET + b" 2")
    set_key(node, topic, "")
    publish(node, topic, b"open 2")
    expected = [b"open 1", SECRET, SECRET + b" 2", b"open 2"]
    assert values(node, topic, 4) == expected
    node.kill()
    node.start()
    assert values(node, topic, 4) == expected
    assert files_with(node.data_dir, SECRET) == []
    assert len(files_with(node.data_dir, b"open 2")) == 1


def test_a_topic_cannot_be_encrypted_where_there_are_no_keys(fresh_node: Any) -> None:
    node = fresh_node()
    for key_id, sentence in (("orders", "the node has no keys"), ("a/b", "the id of a key")):
        config = {"penstock.encryption.key.id": key_id}
        made = admin(node).create_topics([NewTopic("t", 1, 1, config=config)])
        with pytest.raises(Exception, match=sentence):
            made["t"].result(CALL_SECONDS_MAX)


def test_a_damaged_bit_is_not_served(fresh_node: Any, tmp_path: Path) -> None:
    node = fresh_node(settings=key_file(tmp_path / "keys"))
    topic = make_topic(node, "t")
    publish(node, topic, SECRET)
    node.stop()
    path = node.partition_dir(topic) / f"{0:020d}.log"
    data = bytearray(path.read_bytes())
    data[-20] ^= 1
    path.write_bytes(data)
    node.start()
    with pytest.raises(AssertionError):
        read(node, topic, 1, seconds=3, retries=0)
    assert node.metric("penstock_log_corrupt_reads_total") >= 1
    assert "an encrypted batch was damaged or changed" in node.log_tail()


def test_a_lost_key_stops_a_start_with_a_sentence_and_harms_nothing(
    fresh_node: Any, tmp_path: Path
) -> None:
    keys = tmp_path / "keys"
    node = fresh_node(settings=key_file(keys))
    topic = make_topic(node, "t")
    publish(node, topic, SECRET)
    kept = keys.read_text()
    node.kill()
    before = {p: p.read_bytes() for p in node.data_dir.rglob("*.log")}
    key_file(keys)
    node.launch()
    with pytest.raises(AssertionError):
        node.wait_ready()
    sentence = "key id 'orders', version 1 in the key file"
    assert sentence in node.log_tail()
    assert "is not the key that this was encrypted with" in node.log_tail()
    assert {p: p.read_bytes() for p in node.data_dir.rglob("*.log")} == before
    keys.write_text(kept)
    node.start()
    assert values(node, topic, 1) == [SECRET]
    for secret in (kept, keys.read_text()):
        assert secret.split("=", 1)[1].strip() not in node.log_tail()


def test_a_rotation_while_the_node_runs(fresh_node: Any, tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    settings = {**key_file(keys), "penstock.encryption.rewrap.interval.ms": "200"}
    node = fresh_node(settings=settings)
    topic = make_topic(node, "t")
    publish(node, topic, SECRET)
    log = (node.partition_dir(topic) / f"{0:020d}.log").read_bytes()
    keys.write_text(keys.read_text() + key_file_entry(tmp_path / "more"))

    def only_the_new_one() -> bool:
        old = node.metric("penstock_encrypted_segments", key_id=KEY_ID, version="1")
        return not old and node.metric("penstock_encrypted_segments", version="2") >= 2

    eventually(only_the_new_one, 30)
    publish(node, topic, SECRET + b" 2")
    keys.write_text(keys.read_text().splitlines()[1] + "\n")  # the old version is given up
    node.restart()
    assert values(node, topic, 2) == [SECRET, SECRET + b" 2"]
    assert (node.partition_dir(topic) / f"{0:020d}.log").read_bytes().startswith(log)


def key_file_entry(path: Path) -> str:
    key_file(path, 2)
    return path.read_text()


# -- Vault -------------------------------------------------------------------------------------


@pytest.fixture
def vault_settings(tmp_path: Path) -> Iterator[tuple[dict[str, str], Transit]]:
    token = tmp_path / "token"
    token.write_text(TOKEN)
    with vault() as (url, transit):
        settings = {
            "penstock.encryption.provider": "vault",
            "penstock.encryption.vault.address": url,
            "penstock.encryption.vault.token.file": str(token),
        }
        transit.answer("POST", "/v1/transit/keys/node", {})
        transit.answer("POST", "/v1/transit/keys/orders", {})
        yield settings, transit


def test_a_node_with_its_keys_in_vault(
    fresh_node: Any, vault_settings: tuple[dict[str, str], Transit]
) -> None:
    settings, transit = vault_settings
    node = fresh_node(settings={**settings, "penstock.encryption.key.id": "node"})
    topic = make_topic(node, "t", 1, {"penstock.encryption.key.id": "orders"})
    publish(node, topic, SECRET)
    # Without Vault what is open is read and written.
    transit.down = True
    publish(node, topic, SECRET + b" 2")
    assert values(node, topic, 2) == [SECRET, SECRET + b" 2"]
    node.kill()
    node.launch()
    with pytest.raises(AssertionError):
        node.wait_ready()
    assert "key id 'node', version 1 cannot be had: Vault at http://127" in node.log_tail()
    transit.down = False
    node.start()
    assert values(node, topic, 2) == [SECRET, SECRET + b" 2"]
    # A key that Vault has lost: the topic is refused, the node serves.
    lost = transit.keys.pop("orders")
    node.restart()
    with pytest.raises(AssertionError):
        read(node, topic, 1, seconds=3)
    transit.keys["orders"] = lost
    assert values(node, topic, 2) == [SECRET, SECRET + b" 2"]
    node.stop()
    assert files_with(node.data_dir, SECRET) == []
    assert TOKEN not in node.log_tail()


def test_writes_are_refused_while_there_is_no_key_and_go_on_when_there_is(
    fresh_node: Any, vault_settings: tuple[dict[str, str], Transit]
) -> None:
    settings, transit = vault_settings
    node = fresh_node(settings=settings)
    transit.down = True
    topic = make_topic(node, "t", 1, {"penstock.encryption.key.id": "orders"})
    client = producer(node, enable_idempotence=True)
    answers: list[Any] = []
    client.produce(topic, SECRET, on_delivery=lambda error, _: answers.append(error))
    deadline = time.monotonic() + 2
    while time.monotonic() < deadline:
        client.poll(0.1)
    assert answers == []  # it is refused with an error that librdkafka tries again after
    transit.down = False
    assert client.flush(CALL_SECONDS_MAX) == 0
    assert answers == [None]
    assert values(node, topic, 1) == [SECRET]
    assert files_with(node.data_dir, SECRET) == []
