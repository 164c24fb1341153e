"""The quorum's own records in the metadata log and its snapshots: to bytes and back."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from penstock.raft.types import Endpoint, ReplicaKey
from penstock.raft.voters import VoterNode, VoterSet
from penstock.wire.messages.control_records import Endpoint as WireEndpoint
from penstock.wire.messages.control_records import (
    KRaftVersionFeature,
    KRaftVersionRecord,
    LeaderChangeMessage,
    LeaderChangeVoter,
    SnapshotFooterRecord,
    SnapshotHeaderRecord,
    Voter,
    VotersRecord,
)
from penstock.wire.record_batch import BatchHeader
from penstock.wire.records import ControlType, Record, control_type, read_records
from penstock.wire.schema import Message

_KEY_VERSION = 0
_VERSION = 0
_LEADER_CHANGE_VERSION = 0
"""As Kafka 4.3 writes it: its tools read no other."""


def leader_change(
    leader_id: int, voters: Iterable[ReplicaKey], granting: Iterable[ReplicaKey], now_ms: int
) -> Record:
    message = LeaderChangeMessage(
        version=_LEADER_CHANGE_VERSION,
        leader_id=leader_id,
        voters=[LeaderChangeVoter(voter_id=key.id) for key in voters],
        granting_voters=[LeaderChangeVoter(voter_id=key.id) for key in granting],
    )
    return _record(ControlType.LEADER_CHANGE, message, _LEADER_CHANGE_VERSION, now_ms)


def kraft_version(version: int, now_ms: int) -> Record:
    message = KRaftVersionRecord(version=_VERSION, k_raft_version=version)
    return _record(ControlType.KRAFT_VERSION, message, _VERSION, now_ms)


def voters_record(voters: VoterSet, now_ms: int) -> Record:
    message = VotersRecord(version=_VERSION, voters=[_voter(node) for node in voters.nodes])
    return _record(ControlType.KRAFT_VOTERS, message, _VERSION, now_ms)


def _voter(node: VoterNode) -> Voter:
    low, high = node.kraft_versions
    return Voter(
        voter_id=node.key.id,
        voter_directory_id=node.key.directory_id,
        endpoints=[WireEndpoint(name=e.name, host=e.host, port=e.port) for e in node.endpoints],
        k_raft_version_feature=KRaftVersionFeature(
            min_supported_version=low, max_supported_version=high
        ),
    )


def snapshot_header(last_contained_log_timestamp: int, now_ms: int) -> Record:
    message = SnapshotHeaderRecord(
        version=_VERSION, last_contained_log_timestamp=last_contained_log_timestamp
    )
    return _record(ControlType.SNAPSHOT_HEADER, message, _VERSION, now_ms)


def snapshot_footer(now_ms: int) -> Record:
    message = SnapshotFooterRecord(version=_VERSION)
    return _record(ControlType.SNAPSHOT_FOOTER, message, _VERSION, now_ms)


def _record(kind: ControlType, message: Message, version: int, now_ms: int) -> Record:
    key = _KEY_VERSION.to_bytes(2, "big") + kind.to_bytes(2, "big")
    return Record(0, now_ms, key, message.encode(version))


def read_control(
    batch: bytes | memoryview, header: BatchHeader
) -> Iterator[tuple[int, int | VoterSet]]:
    """(offset, kraft.version or voter set) of what a control batch says about the quorum."""
    if not header.is_control:
        return
    for record in read_records(batch):
        kind = control_type(record)
        if kind is ControlType.KRAFT_VERSION:
            yield record.offset, KRaftVersionRecord.decode(record.value or b"", 0).k_raft_version
        elif kind is ControlType.KRAFT_VOTERS:
            yield record.offset, _voter_set(VotersRecord.decode(record.value or b"", 0))


def _voter_set(message: VotersRecord) -> VoterSet:
    return VoterSet(
        VoterNode(
            ReplicaKey(voter.voter_id, voter.voter_directory_id),
            tuple(Endpoint(e.name, e.host, e.port) for e in voter.endpoints),
            (
                voter.k_raft_version_feature.min_supported_version,
                voter.k_raft_version_feature.max_supported_version,
            ),
        )
        for voter in message.voters
    )
