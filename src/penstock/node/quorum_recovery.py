"""Makes a stopped node the only voter of its metadata quorum, when the others are lost permanently.

A quorum without a majority can decide nothing, not even to remove the lost voters; a person has to
decide that. It is written as the quorum itself would write it: a voters record at the end of the
node's metadata log, in an epoch that no other voter can have used. The node then leads alone when
it is started, and others join it as usual.

What it costs: whatever a majority without this node had committed, and this node had not fetched,
is lost. A voter that comes back with its old folder may hold such records and would contradict this
one; it has to come back with an empty folder.

The folder is locked meanwhile, so that a running node cannot be recovered. One thread, no loop.
"""

from __future__ import annotations

import os
from typing import NamedTuple

from penstock.base.clock import SystemClock
from penstock.base.errors import StorageError
from penstock.base.ids import METADATA_TOPIC, TopicPartition, parse_uuid
from penstock.controlling.metadata_log import MetadataLog, metadata_log_config
from penstock.keys.data_keys import DataKeys
from penstock.log.checkpoints import read_meta_properties
from penstock.log.environment import LogEnvironment
from penstock.log.flush import flush
from penstock.log.manager import LogManager
from penstock.log.rewrapping import key_files
from penstock.raft.control_records import voters_record
from penstock.raft.effects import Append
from penstock.raft.state import QuorumState
from penstock.raft.types import ReplicaKey
from penstock.raft.voters import VoterNode, VoterSet
from penstock.wire.records import build_batch

EPOCH_STEP = 1000
"""How far the epoch is raised: the lost voters may have held elections that this node missed, but
never so many.
"""
_METADATA = TopicPartition(METADATA_TOPIC, 0)


class Survivor(NamedTuple):
    """What a stopped node knows of its quorum."""

    cluster_id: str
    me: ReplicaKey
    voters: VoterSet
    end_offset: int
    epoch: int

    @property
    def lost(self) -> list[int]:
        """The voters that would be removed."""
        return [key.id for key in self.voters.keys if key != self.me]


class StoppedNode:
    """The folder of a node that does not run, held until `close`."""

    def __init__(self, data_dir: str, keys: DataKeys | None = None, key_id: str = "") -> None:
        """`keys` and the `penstock.encryption.key.id` of the node, if its metadata is encrypted."""
        meta = read_meta_properties(data_dir)
        if meta is None:
            raise StorageError(
                f"{data_dir} is not the data folder of a node: it has no meta.properties"
            )
        self._clock = SystemClock()
        env = LogEnvironment(keys=keys or DataKeys())
        env.keys.prefetch(
            found.key_file.wrapped for found in key_files([os.path.join(data_dir, str(_METADATA))])
        )
        self._logs = LogManager(data_dir, lambda _: metadata_log_config(key_id), env)
        try:
            self._log = self._metadata_log(data_dir)
            self.survivor = self._inspect(meta)
        except BaseException:
            self._logs.close()
            raise

    def _metadata_log(self, data_dir: str) -> MetadataLog:
        log = self._logs.get(_METADATA)
        if log is None:
            raise StorageError(f"{data_dir} has no metadata log: the node never joined a cluster")
        return MetadataLog(log, self._clock)

    def _inspect(self, meta: dict[str, str]) -> Survivor:
        stored = self._log.stored()
        if not stored.voter_sets:
            raise StorageError(
                f"{self._logs.data_dir} names no voters: the node never joined a cluster"
            )
        state = self._log.read_state() or QuorumState()
        last_epoch = stored.epochs[-1][0] if stored.epochs else stored.start.epoch
        return Survivor(
            meta["cluster.id"],
            ReplicaKey(int(meta["node.id"]), parse_uuid(meta["directory.id"])),
            stored.voter_sets[-1][1],
            stored.end_offset,
            max(state.leader_epoch, last_epoch),
        )

    def become_only_voter(self) -> None:
        """The epoch first: until the record is on disk, too, nothing has changed."""
        survivor = self.survivor
        epoch = survivor.epoch + EPOCH_STEP
        self._log.write_state(QuorumState(epoch).to_json())
        known = survivor.voters.node(survivor.me.id)
        # If the address of the node is not known yet, it records it once it leads.
        endpoints = () if known is None else known.endpoints
        voters = VoterSet([VoterNode(survivor.me, endpoints)])
        batch = build_batch(
            [voters_record(voters, self._clock.now_ms())],
            base_offset=survivor.end_offset,
            control=True,
            partition_leader_epoch=epoch,
        )
        self._log.append(Append(batch, survivor.end_offset, survivor.end_offset))
        flush(self._log.log)

    def close(self) -> None:
        self._logs.close()
