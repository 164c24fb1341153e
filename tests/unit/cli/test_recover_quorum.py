"""A stopped node becomes the only voter: what it writes is what the quorum's core then obeys."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from penstock.base.clock import SystemClock, SystemRng
from penstock.base.errors import StorageError
from penstock.base.ids import METADATA_TOPIC, METADATA_TOPIC_ID, TopicPartition, parse_uuid
from penstock.controlling.metadata_log import METADATA_LOG_CONFIG, MetadataLog
from penstock.log.checkpoints import read_meta_properties
from penstock.log.manager import LogManager
from penstock.node.quorum_recovery import EPOCH_STEP, StoppedNode
from penstock.raft.control_records import kraft_version, voters_record
from penstock.raft.effects import Append
from penstock.raft.quorum import Quorum
from penstock.raft.state import QuorumState
from penstock.raft.types import Endpoint, QuorumConfig, ReplicaKey
from penstock.raft.voters import VoterNode, VoterSet
from penstock.wire.records import build_batch

METADATA = TopicPartition(METADATA_TOPIC, 0)
ME = 3


@contextmanager
def metadata_log(folder: Path) -> Iterator[tuple[LogManager, MetadataLog]]:
    logs = LogManager(str(folder), lambda _: METADATA_LOG_CONFIG)
    try:
        yield logs, MetadataLog(logs.get_or_create(METADATA, METADATA_TOPIC_ID), SystemClock())
    finally:
        logs.close()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The folder of node 3, one of three voters, as it lies after a stop in epoch 7."""
    with metadata_log(tmp_path) as (logs, log):
        meta = logs.ensure_meta(ME, "the-cluster")
        keys = [ReplicaKey(i, bytes([i]) * 16) for i in (1, 2)]
        keys.append(ReplicaKey(ME, parse_uuid(meta["directory.id"])))
        voters = VoterSet(VoterNode(k, (Endpoint("PLAINTEXT", "h", 9000 + k.id),)) for k in keys)
        records = [kraft_version(1, 0), voters_record(voters, 0)]
        batch = build_batch(records, base_offset=0, control=True, partition_leader_epoch=7)
        log.append(Append(batch, 0, 1))
        log.write_state(QuorumState(8, 1).to_json())
    return tmp_path


def test_what_the_node_knows_is_told(folder: Path) -> None:
    node = StoppedNode(str(folder))
    try:
        assert node.survivor.cluster_id == "the-cluster"
        assert node.survivor.me.id == ME
        assert node.survivor.lost == [1, 2]
        assert (node.survivor.end_offset, node.survivor.epoch) == (2, 8)
    finally:
        node.close()


def test_the_node_leads_alone_afterwards(folder: Path) -> None:
    node = StoppedNode(str(folder))
    node.become_only_voter()
    node.close()
    meta = read_meta_properties(str(folder))
    assert meta is not None
    with metadata_log(folder) as (_, log):
        me = ReplicaKey(ME, parse_uuid(meta["directory.id"]))
        stored = log.stored()
        assert [list(voters.keys) for _, voters in stored.voter_sets][-1] == [me]
        config = QuorumConfig("the-cluster")
        here = [Endpoint("PLAINTEXT", "h", 9003)]
        quorum = Quorum(me, config, stored, log.read_state(), here, SystemRng())
        quorum.start(1)
        assert quorum.is_leader
        assert quorum.epoch > 8 + EPOCH_STEP


def test_looking_changes_nothing(folder: Path) -> None:
    StoppedNode(str(folder)).close()
    with metadata_log(folder) as (_, log):
        assert log.end_offset == 2
        assert log.read_state() == QuorumState(8, 1)


def test_a_running_node_and_a_wrong_folder_are_refused(folder: Path, tmp_path: Path) -> None:
    with metadata_log(folder), pytest.raises(StorageError, match="in use by another process"):
        StoppedNode(str(folder))
    with pytest.raises(StorageError, match="not the data folder of a node"):
        StoppedNode(str(tmp_path / f"none-{random.random()}"))
