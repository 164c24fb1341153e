"""What principals with few rights are answered: the same rows for a node and for Apache Kafka.

Each row has a user of its own, so that none has another one's rights. `there` and `also` are topics
with one partition, a group and a transactional id; `gone` is nothing. The codes are all that the
answer has, in their order of size, without zeros.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from penstock.auth.types import Operation, PatternType, PermissionType, ResourceType
from penstock.coordinator.share_state.answers import request_of
from penstock.wire.messages import add_partitions_to_txn as add_partitions
from penstock.wire.messages import alter_client_quotas as alter_quotas
from penstock.wire.messages import (
    alter_configs,
    delete_acls,
    delete_records,
    delete_topics,
    elect_leaders,
    incremental_alter_configs,
    leave_group,
    list_offsets,
)
from penstock.wire.messages import alter_partition_reassignments as reassign
from penstock.wire.messages import alter_replica_log_dirs as move
from penstock.wire.messages import alter_share_group_offsets as move_shares
from penstock.wire.messages import alter_user_scram_credentials as alter_scram
from penstock.wire.messages import create_acls as acls
from penstock.wire.messages import create_partitions as partitions
from penstock.wire.messages import create_topics as topics
from penstock.wire.messages import delete_share_group_offsets as forget_shares
from penstock.wire.messages import delete_share_group_state as states_gone
from penstock.wire.messages import describe_configs as configs
from penstock.wire.messages import describe_producers as producers
from penstock.wire.messages import describe_share_group_offsets as share_offsets
from penstock.wire.messages import describe_topic_partitions as paged
from penstock.wire.messages import initialize_share_group_state as states_begun
from penstock.wire.messages import metadata as meta
from penstock.wire.messages import offset_commit as commit
from penstock.wire.messages import offset_delete as offset_del
from penstock.wire.messages import offset_fetch as offsets
from penstock.wire.messages import offset_for_leader_epoch as epochs
from penstock.wire.messages import read_share_group_state as states_read
from penstock.wire.messages import read_share_group_state_summary as states_summed
from penstock.wire.messages import streams_group_heartbeat as streams
from penstock.wire.messages import txn_offset_commit as txn_commit
from penstock.wire.messages import write_share_group_state as states_written
from penstock.wire.messages import write_txn_markers as markers
from penstock.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from penstock.wire.messages.add_raft_voter import AddRaftVoterRequest
from penstock.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from penstock.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from penstock.wire.messages.delete_groups import DeleteGroupsRequest
from penstock.wire.messages.describe_acls import DescribeAclsRequest
from penstock.wire.messages.describe_client_quotas import DescribeClientQuotasRequest
from penstock.wire.messages.describe_cluster import DescribeClusterRequest
from penstock.wire.messages.describe_groups import DescribeGroupsRequest
from penstock.wire.messages.describe_log_dirs import DescribeLogDirsRequest
from penstock.wire.messages.describe_quorum import DescribeQuorumRequest
from penstock.wire.messages.describe_transactions import DescribeTransactionsRequest
from penstock.wire.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
)
from penstock.wire.messages.end_txn import EndTxnRequest
from penstock.wire.messages.find_coordinator import FindCoordinatorRequest
from penstock.wire.messages.heartbeat import HeartbeatRequest
from penstock.wire.messages.init_producer_id import InitProducerIdRequest
from penstock.wire.messages.join_group import JoinGroupRequest
from penstock.wire.messages.list_config_resources import ListConfigResourcesRequest
from penstock.wire.messages.list_groups import ListGroupsRequest
from penstock.wire.messages.list_partition_reassignments import ListPartitionReassignmentsRequest
from penstock.wire.messages.list_transactions import ListTransactionsRequest
from penstock.wire.messages.remove_raft_voter import RemoveRaftVoterRequest
from penstock.wire.messages.share_group_describe import ShareGroupDescribeRequest
from penstock.wire.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from penstock.wire.messages.streams_group_describe import StreamsGroupDescribeRequest
from penstock.wire.messages.sync_group import SyncGroupRequest
from penstock.wire.messages.unregister_broker import UnregisterBrokerRequest
from penstock.wire.messages.update_features import UpdateFeaturesRequest

from .batches import batch
from .calls import RawTopic, fetch_request, produce_request

Ids = Mapping[str, bytes]
"""Of the topics, by name."""

UNKNOWN_ID: Final = bytes(15) + b"x"
TOPIC_DENIED, GROUP_DENIED, CLUSTER_DENIED, TXN_DENIED = 29, 30, 31, 53
UNKNOWN_TOPIC, NOT_ATTEMPTED, NO_GROUP, UNKNOWN_TOPIC_ID = 3, 55, 69, 100
_TYPES = {
    "topic": ResourceType.TOPIC,
    "group": ResourceType.GROUP,
    "cluster": ResourceType.CLUSTER,
    "txn": ResourceType.TRANSACTIONAL_ID,
}


class Row(NamedTuple):
    label: str
    rules: str
    """`OPERATION type name`, one after the other by commas; with DENY before it, and with
    PREFIX before the name.
    """
    version: int
    request: Callable[[Ids], Any]
    codes: list[int]

    def creations(self, user: str) -> list[acls.AclCreation]:
        return [_creation(rule.split(), user) for rule in self.rules.split(",") if rule.strip()]


def _creation(words: list[str], user: str) -> acls.AclCreation:
    permission, pattern = PermissionType.ALLOW, PatternType.LITERAL
    if words[0] == "DENY":
        permission, words = PermissionType.DENY, words[1:]
    if words[-2] == "PREFIX":
        pattern = PatternType.PREFIXED
    kind = _TYPES[words[1]]
    return acls.AclCreation(
        resource_type=kind,
        resource_name="kafka-cluster" if kind is ResourceType.CLUSTER else words[-1],
        resource_pattern_type=pattern,
        principal=f"User:{user}",
        host="*",
        operation=Operation[words[0]],
        permission_type=permission,
    )


# -- requests --------------------------------------------------------------------------------------


def _raw(ids: Ids, name: str) -> RawTopic:
    return RawTopic(name, ids.get(name, UNKNOWN_ID))


def _produce(name: str, version: int = 9) -> Callable[[Ids], Any]:
    return lambda ids: produce_request(_raw(ids, name), batch([b"v"]), version, acks=1)


def _produce_in_transaction(name: str) -> Callable[[Ids], Any]:
    data = batch([b"v"], attributes=0x10, producer_id=1, producer_epoch=0, base_sequence=0)

    def made(ids: Ids) -> Any:
        request = produce_request(_raw(ids, name), data, 9, acks=1)
        request.transactional_id = "there"
        return request

    return made


def _fetch(*names: str, version: int = 12, **fields: Any) -> Callable[[Ids], Any]:
    return lambda ids: fetch_request([(_raw(ids, n), {0: 0}) for n in names], version, **fields)


def _same(request: Any) -> Callable[[Ids], Any]:
    return lambda _: request


def _metadata(*names: str, **how: Any) -> Callable[[Ids], Any]:
    wanted = [meta.MetadataRequestTopic(name=name) for name in names] or None
    how.setdefault("allow_auto_topic_creation", False)
    return _same(meta.MetadataRequest(topics=wanted, **how))


def _metadata_by_id(*names: str) -> Callable[[Ids], Any]:
    return lambda ids: meta.MetadataRequest(
        topics=[
            meta.MetadataRequestTopic(name=None, topic_id=ids.get(n, UNKNOWN_ID)) for n in names
        ],
        allow_auto_topic_creation=False,
    )


def _list_offsets(*names: str) -> Any:
    part = list_offsets.ListOffsetsPartition(partition_index=0, timestamp=-1)
    return _same(
        list_offsets.ListOffsetsRequest(
            replica_id=-1,
            topics=[list_offsets.ListOffsetsTopic(name=n, partitions=[part]) for n in names],
        )
    )


def _commit(*names: str, group: str = "there") -> Any:
    part = commit.OffsetCommitRequestPartition(partition_index=0, committed_offset=1)
    return _same(
        commit.OffsetCommitRequest(
            group_id=group,
            generation_id_or_member_epoch=-1,
            topics=[commit.OffsetCommitRequestTopic(name=n, partitions=[part]) for n in names],
        )
    )


def _commit_by_id(*names: str) -> Callable[[Ids], Any]:
    part = commit.OffsetCommitRequestPartition(partition_index=0, committed_offset=1)
    return lambda ids: commit.OffsetCommitRequest(
        group_id="there",
        generation_id_or_member_epoch=-1,
        topics=[
            commit.OffsetCommitRequestTopic(topic_id=ids.get(n, UNKNOWN_ID), partitions=[part])
            for n in names
        ],
    )


def _txn_commit(*names: str) -> Any:
    part = txn_commit.TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=1)
    return _same(
        txn_commit.TxnOffsetCommitRequest(
            transactional_id="there",
            group_id="there",
            producer_id=1,
            generation_id=-1,
            topics=[
                txn_commit.TxnOffsetCommitRequestTopic(name=n, partitions=[part]) for n in names
            ],
        )
    )


def _offset_fetch(*names: str) -> Any:
    wanted = [offsets.OffsetFetchRequestTopics(name=n, partition_indexes=[0]) for n in names]
    group = offsets.OffsetFetchRequestGroup(group_id="there", topics=wanted or None)
    return _same(offsets.OffsetFetchRequest(groups=[group]))


def _offset_delete(*names: str) -> Any:
    part = offset_del.OffsetDeleteRequestPartition(partition_index=0)
    return _same(
        offset_del.OffsetDeleteRequest(
            group_id="there",
            topics=[offset_del.OffsetDeleteRequestTopic(name=n, partitions=[part]) for n in names],
        )
    )


def _find(kind: int, *keys: str) -> Any:
    return _same(FindCoordinatorRequest(key_type=kind, coordinator_keys=list(keys)))


def _create(*names: str) -> Any:
    return _same(
        topics.CreateTopicsRequest(
            topics=[
                topics.CreatableTopic(name=n, num_partitions=1, replication_factor=1) for n in names
            ],
            validate_only=True,
        )
    )


def _delete(*names: str) -> Any:
    wanted = [delete_topics.DeleteTopicState(name=name) for name in names]
    return _same(delete_topics.DeleteTopicsRequest(topics=wanted, timeout_ms=5_000))


def _delete_by_id(*names: str) -> Callable[[Ids], Any]:
    return lambda ids: delete_topics.DeleteTopicsRequest(
        topics=[
            delete_topics.DeleteTopicState(topic_id=ids.get(name, UNKNOWN_ID)) for name in names
        ],
        timeout_ms=5_000,
    )


def _delete_records(*names: str) -> Any:
    part = delete_records.DeleteRecordsPartition(partition_index=0, offset=0)
    return _same(
        delete_records.DeleteRecordsRequest(
            topics=[delete_records.DeleteRecordsTopic(name=n, partitions=[part]) for n in names],
            timeout_ms=5_000,
        )
    )


def _epochs(*names: str) -> Any:
    part = epochs.OffsetForLeaderPartition(partition=0, current_leader_epoch=-1, leader_epoch=0)
    return _same(
        epochs.OffsetForLeaderEpochRequest(
            replica_id=-1,
            topics=[epochs.OffsetForLeaderTopic(topic=n, partitions=[part]) for n in names],
        )
    )


def _add_partitions(*names: str) -> Any:
    wanted = [add_partitions.AddPartitionsToTxnTopic(name=n, partitions=[0]) for n in names]
    return _same(
        add_partitions.AddPartitionsToTxnRequest(
            v3_and_below_transactional_id="there",
            v3_and_below_producer_id=77,
            v3_and_below_topics=wanted,
        )
    )


def _add_for_node() -> Any:
    topic = add_partitions.AddPartitionsToTxnTopic(name="there", partitions=[0])
    wanted = add_partitions.AddPartitionsToTxnTransaction(transactional_id="there", topics=[topic])
    return _same(add_partitions.AddPartitionsToTxnRequest(transactions=[wanted]))


def _markers() -> Any:
    topic = markers.WritableTxnMarkerTopic(name="there", partition_indexes=[0])
    return _same(
        markers.WriteTxnMarkersRequest(
            markers=[markers.WritableTxnMarker(producer_id=77, topics=[topic])]
        )
    )


def _share_states(module: Any, kind: type[Any]) -> Any:
    named = module.PartitionData(partition=0)
    return _same(request_of(kind, "there", {UNKNOWN_ID: [named]}))


_RESOURCES: Final = ((2, "also"), (4, "1"), (32, "there"))


def _describe_configs() -> Any:
    return _same(
        configs.DescribeConfigsRequest(
            resources=[
                configs.DescribeConfigsResource(resource_type=kind, resource_name=name)
                for kind, name in _RESOURCES
            ]
        )
    )


def _alter_configs(module: Any, request: Any) -> Any:
    return _same(
        request(
            resources=[
                module.AlterConfigsResource(resource_type=kind, resource_name=name)
                for kind, name in _RESOURCES
            ]
        )
    )


def _create_partitions(*names: str) -> Any:
    wanted = [partitions.CreatePartitionsTopic(name=n, count=2, assignments=None) for n in names]
    return _same(
        partitions.CreatePartitionsRequest(topics=wanted, timeout_ms=5_000, validate_only=True)
    )


def _producers(*names: str) -> Any:
    wanted = [producers.TopicRequest(name=name, partition_indexes=[0]) for name in names]
    return _same(producers.DescribeProducersRequest(topics=wanted))


def _paged(*names: str) -> Any:
    wanted = [paged.TopicRequest(name=name) for name in names]
    return _same(paged.DescribeTopicPartitionsRequest(topics=wanted))


def _joins(*names: str, group: str = "there") -> Any:
    return _same(
        ConsumerGroupHeartbeatRequest(
            group_id=group,
            member_id="member-1",
            rebalance_timeout_ms=10_000,
            subscribed_topic_names=list(names),
            topic_partitions=[],
        )
    )


def _shares(*names: str, group: str = "there") -> Any:
    return _same(
        ShareGroupHeartbeatRequest(
            group_id=group, member_id="member-1", subscribed_topic_names=list(names)
        )
    )


def _streams(*names: str, changelog: str | None = None, group: str = "there") -> Any:
    logs = [] if changelog is None else [streams.TopicInfo(name=changelog)]
    only = streams.Subtopology(
        subtopology_id="0", source_topics=list(names), state_changelog_topics=logs
    )
    return _same(
        streams.StreamsGroupHeartbeatRequest(
            group_id=group,
            member_id="member-1",
            rebalance_timeout_ms=1_000,
            topology=streams.Topology(epoch=1, subtopologies=[only]),
            active_tasks=[],
            standby_tasks=[],
            warmup_tasks=[],
        )
    )


def _share_offsets(*names: str) -> Any:
    topics = [share_offsets.DescribeShareGroupOffsetsRequestTopic(topic_name=n, partitions=[0])
              for n in names]  # fmt: skip
    group = share_offsets.DescribeShareGroupOffsetsRequestGroup(group_id="new", topics=topics)
    return _same(share_offsets.DescribeShareGroupOffsetsRequest(groups=[group]))


def _move_shares(*names: str) -> Any:
    start = move_shares.AlterShareGroupOffsetsRequestPartition(partition_index=9, start_offset=0)
    topics = [move_shares.AlterShareGroupOffsetsRequestTopic(topic_name=n, partitions=[start])
              for n in names]  # fmt: skip
    return _same(move_shares.AlterShareGroupOffsetsRequest(group_id="new", topics=topics))


def _forget_shares(*names: str) -> Any:
    topics = [forget_shares.DeleteShareGroupOffsetsRequestTopic(topic_name=n) for n in names]
    return _same(forget_shares.DeleteShareGroupOffsetsRequest(group_id="there", topics=topics))


def _elect() -> Any:
    wanted = elect_leaders.TopicPartitions(topic="there", partitions=[0])
    return _same(elect_leaders.ElectLeadersRequest(topic_partitions=[wanted], timeout_ms=5_000))


def _reassign() -> Any:
    part = reassign.ReassignablePartition(partition_index=0, replicas=[1])
    topic = reassign.ReassignableTopic(name="there", partitions=[part])
    return _same(reassign.AlterPartitionReassignmentsRequest(topics=[topic], timeout_ms=5_000))


def _move() -> Any:
    topic = move.AlterReplicaLogDirTopic(name="there", partitions=[0])
    return _same(
        move.AlterReplicaLogDirsRequest(
            dirs=[move.AlterReplicaLogDir(path="/nowhere", topics=[topic])]
        )
    )


def _quota() -> Any:
    return alter_quotas.AlterClientQuotasRequest(
        entries=[
            alter_quotas.RequestEntryData(
                entity=[alter_quotas.EntityData(entity_type="user", entity_name="x")],
                ops=[alter_quotas.OpData(key="producer_byte_rate", value=1e12)],
            )
        ],
        validate_only=True,
    )


_ANY_ACL = {
    "resource_type_filter": 1,
    "resource_name_filter": None,
    "pattern_type_filter": 1,
    "principal_filter": None,
    "host_filter": None,
    "operation": 1,
    "permission_type": 1,
}
_RULE = acls.AclCreation(
    resource_type=2, resource_name="a", principal="User:a", host="*", operation=3, permission_type=3
)
_IN_TXN = "WRITE txn there, READ group there, READ topic there"

ROWS: Final = [
    Row("produce", "WRITE topic there", 9, _produce("there"), []),
    Row("produce denied", "READ topic there", 9, _produce("there"), [TOPIC_DENIED]),
    Row("produce missing", "", 9, _produce("gone"), [TOPIC_DENIED]),
    Row("produce in a transaction", "WRITE topic there, DESCRIBE txn there", 9,
        _produce_in_transaction("there"), [TXN_DENIED]),
    Row("fetch as a replica", "ALL topic there", 12, _fetch("there", "also", replica_id=1),
        [TOPIC_DENIED] * 2),
    Row("fetch", "READ topic there", 12, _fetch("there", "also", "gone"), [TOPIC_DENIED] * 2),
    Row("fetch by id", "READ topic there", 16, _fetch("there", "also", "gone", version=16),
        [TOPIC_DENIED, UNKNOWN_TOPIC_ID]),
    Row("fetch, deny wins", "ALL topic *, DENY READ topic PREFIX the", 12, _fetch("there", "also"),
        [TOPIC_DENIED]),
    Row("list offsets", "DESCRIBE topic there", 7, _list_offsets("there", "gone"), [TOPIC_DENIED]),
    Row("list offsets, implied", "WRITE topic PREFIX th", 7, _list_offsets("there", "also"),
        [TOPIC_DENIED]),
    Row("metadata", "DESCRIBE topic there", 9, _metadata("there", "also", "gone"),
        [TOPIC_DENIED] * 2),
    Row("metadata missing", "DESCRIBE topic gone", 9, _metadata("gone"), [UNKNOWN_TOPIC]),
    Row("metadata of all", "READ topic there", 9, _metadata(), []),
    Row("metadata of all, none seen", "", 9, _metadata(), []),
    Row("metadata by id", "DESCRIBE topic there", 12, _metadata_by_id("there", "also", "gone"),
        [TOPIC_DENIED, UNKNOWN_TOPIC_ID]),
    Row("metadata, no right to create", "DESCRIBE topic gone", 9,
        _metadata("gone", allow_auto_topic_creation=True), [TOPIC_DENIED]),
    Row("metadata, operations", "READ topic there, ALTER_CONFIGS topic there", 9,
        _metadata("there", include_topic_authorized_operations=True,
                  include_cluster_authorized_operations=True), []),
    Row("metadata, operations of the cluster", "DESCRIBE cluster, CREATE cluster", 9,
        _metadata(include_cluster_authorized_operations=True), []),
    Row("pages, named", "DESCRIBE topic there", 0, _paged("there", "also", "gone"),
        [TOPIC_DENIED] * 2),
    Row("pages, all", "DESCRIBE topic there, WRITE topic there", 0, _paged(), []),
    Row("commit", "READ group there, READ topic there", 9, _commit("there", "also", "gone"),
        [TOPIC_DENIED] * 2),
    Row("commit by id", "READ group there, READ topic there", 10,
        _commit_by_id("there", "also", "gone"), [TOPIC_DENIED, UNKNOWN_TOPIC_ID]),
    Row("commit, all denied", "READ group there", 9, _commit("also", "gone"), [TOPIC_DENIED] * 2),
    Row("commit, no group", "READ topic there", 9, _commit("there"), [GROUP_DENIED]),
    Row("offsets", "DESCRIBE group there, DESCRIBE topic there", 8,
        _offset_fetch("there", "also", "gone"), [TOPIC_DENIED] * 2),
    Row("offsets of all", "READ group there, DESCRIBE topic there", 8, _offset_fetch(), []),
    Row("offsets, no group", "DESCRIBE topic there", 8, _offset_fetch("there"), [GROUP_DENIED]),
    Row("find groups", "DESCRIBE group there", 4, _find(0, "there", "gone"), [GROUP_DENIED]),
    Row("find transactions", "WRITE txn there", 4, _find(1, "there", "gone"), [TXN_DENIED]),
    Row("find share", "", 6, _find(2, "there"), [CLUSTER_DENIED]),
    Row("join", "DESCRIBE group there", 5,
        _same(JoinGroupRequest(group_id="there", session_timeout_ms=10_000)), [GROUP_DENIED]),
    Row("sync", "", 3, _same(SyncGroupRequest(group_id="there")), [GROUP_DENIED]),
    Row("heartbeat", "", 3, _same(HeartbeatRequest(group_id="there")), [GROUP_DENIED]),
    Row("leave", "", 4,
        _same(leave_group.LeaveGroupRequest(
            group_id="there", members=[leave_group.MemberIdentity(member_id="m")])),
        [GROUP_DENIED]),
    Row("describe groups", "DESCRIBE group there, DELETE group there", 4,
        _same(DescribeGroupsRequest(
            groups=["there", "gone"], include_authorized_operations=True)),
        [GROUP_DENIED]),
    Row("list groups", "DESCRIBE group there", 4, _same(ListGroupsRequest()), []),
    Row("list groups, none seen", "", 4, _same(ListGroupsRequest()), []),
    Row("list groups of the cluster", "DESCRIBE cluster", 4, _same(ListGroupsRequest()), []),
    Row("delete groups", "READ group there", 2,
        _same(DeleteGroupsRequest(groups_names=["there", "gone"])), [GROUP_DENIED] * 2),
    Row("delete offsets", "DELETE group there", 0, _offset_delete("there", "gone"),
        [TOPIC_DENIED] * 2),
    Row("delete offsets, no group", "READ group there, READ topic there", 0,
        _offset_delete("there"), [GROUP_DENIED]),
    Row("modern join", "READ group new", 1, _joins("there", group="new"), [TOPIC_DENIED]),
    Row("modern join, no group", "READ topic there", 1, _joins("there", group="new"),
        [GROUP_DENIED]),
    Row("modern describe", "DESCRIBE group modern", 0,
        _same(ConsumerGroupDescribeRequest(group_ids=["modern", "gone"])),
        [TOPIC_DENIED, GROUP_DENIED]),
    Row("share join", "READ group there, DESCRIBE topic there", 1, _shares("there", "also"),
        [TOPIC_DENIED]),
    Row("share join, no group", "READ topic there", 1, _shares("there", group="new"),
        [GROUP_DENIED]),
    Row("share describe", "DESCRIBE topic there", 1,
        _same(ShareGroupDescribeRequest(group_ids=["there"])), [GROUP_DENIED]),
    Row("streams join", "READ group there, DESCRIBE topic there", 0, _streams("there", "also"),
        [TOPIC_DENIED]),
    Row("streams join, changelog", "READ group there, DESCRIBE topic there", 0,
        _streams("there", changelog="also"), [TOPIC_DENIED]),
    Row("streams join, no group", "READ topic there", 0, _streams("there", group="new"),
        [GROUP_DENIED]),
    Row("streams describe", "DESCRIBE topic there", 0,
        _same(StreamsGroupDescribeRequest(group_ids=["there"])), [GROUP_DENIED]),
    Row("share offsets", "DESCRIBE group new, DESCRIBE topic there", 1,
        _share_offsets("there", "also"), [TOPIC_DENIED]),
    Row("share offsets, no group", "DESCRIBE topic there", 1, _share_offsets("there"),
        [GROUP_DENIED]),
    Row("move shares", "READ group new, READ topic there", 0, _move_shares("there", "also"),
        [UNKNOWN_TOPIC, TOPIC_DENIED]),
    Row("move shares, no group", "ALL topic there, DELETE group new", 0, _move_shares("there"),
        [GROUP_DENIED]),
    Row("forget shares", "DELETE group there, READ topic there", 0,
        _forget_shares("there", "also"), [NO_GROUP]),
    Row("forget shares, no group", "READ group there, READ topic there", 0,
        _forget_shares("there"), [GROUP_DENIED]),
    Row("create topics", "CREATE topic PREFIX new-", 7, _create("new-1", "gone"),
        [TOPIC_DENIED] * 2),
    Row("create topics, settings seen", "CREATE cluster, DESCRIBE_CONFIGS topic new-2", 7,
        _create("new-1", "new-2"), [TOPIC_DENIED]),
    Row("create what exists", "", 7, _create("there"), [TOPIC_DENIED]),
    Row("delete topics", "DESCRIBE topic there, DESCRIBE topic gone", 6,
        _delete("there", "also", "gone"), [UNKNOWN_TOPIC, TOPIC_DENIED, TOPIC_DENIED]),
    Row("delete topics by id", "DESCRIBE topic there", 6, _delete_by_id("there", "also", "gone"),
        [TOPIC_DENIED, TOPIC_DENIED, UNKNOWN_TOPIC_ID]),
    Row("delete records", "DELETE topic there", 2, _delete_records("there", "also"),
        [TOPIC_DENIED]),
    Row("create partitions", "ALTER topic there", 3, _create_partitions("there", "also", "gone"),
        [TOPIC_DENIED] * 2),
    Row("init", "", 4, _same(InitProducerIdRequest(transactional_id=None)), [CLUSTER_DENIED]),
    Row("init, by a topic", "WRITE topic PREFIX x", 4,
        _same(InitProducerIdRequest(transactional_id=None)), []),
    Row("init, by the cluster", "IDEMPOTENT_WRITE cluster", 4,
        _same(InitProducerIdRequest(transactional_id=None)), []),
    Row("init, all denied", "WRITE topic xy, DENY WRITE topic PREFIX x", 4,
        _same(InitProducerIdRequest(transactional_id=None)), [CLUSTER_DENIED]),
    Row("init transactions", "DESCRIBE txn there", 4,
        _same(InitProducerIdRequest(transactional_id="there", transaction_timeout_ms=60_000)),
        [TXN_DENIED]),
    Row("epochs", "DESCRIBE topic there", 4, _epochs("there", "also"), [TOPIC_DENIED]),
    Row("epochs of nodes", "CLUSTER_ACTION cluster", 4, _epochs("there", "also"), []),
    Row("add partitions", "WRITE txn there, WRITE topic there", 3,
        _add_partitions("there", "also", "__consumer_offsets"),
        [TOPIC_DENIED, TOPIC_DENIED, NOT_ATTEMPTED]),
    Row("add partitions, no transaction", "WRITE topic there", 3, _add_partitions("there", "also"),
        [TXN_DENIED] * 2),
    Row("add partitions as a node", "ALL txn there, ALL topic there", 4, _add_for_node(),
        [CLUSTER_DENIED]),
    Row("add offsets", "WRITE txn there", 3,
        _same(AddOffsetsToTxnRequest(transactional_id="there", group_id="there")), [GROUP_DENIED]),
    Row("add offsets, no transaction", "READ group there", 3,
        _same(AddOffsetsToTxnRequest(transactional_id="there", group_id="there")), [TXN_DENIED]),
    Row("end", "DESCRIBE txn there", 3, _same(EndTxnRequest(transactional_id="there")),
        [TXN_DENIED]),
    Row("markers", "DESCRIBE cluster", 1, _markers(), [CLUSTER_DENIED]),
    Row("begin share states", "ALL group there, DESCRIBE cluster", 0,
        _share_states(states_begun, states_begun.InitializeShareGroupStateRequest),
        [CLUSTER_DENIED]),
    Row("read share states", "ALL group there", 0,
        _share_states(states_read, states_read.ReadShareGroupStateRequest), [CLUSTER_DENIED]),
    Row("write share states", "ALL group there", 1,
        _share_states(states_written, states_written.WriteShareGroupStateRequest),
        [CLUSTER_DENIED]),
    Row("forget share states", "ALL group there", 0,
        _share_states(states_gone, states_gone.DeleteShareGroupStateRequest), [CLUSTER_DENIED]),
    Row("begins of share states", "ALL group there", 1,
        _share_states(states_summed, states_summed.ReadShareGroupStateSummaryRequest),
        [CLUSTER_DENIED]),
    Row("commit in a transaction", _IN_TXN, 3, _txn_commit("also", "gone"), [TOPIC_DENIED] * 2),
    Row("commit in a transaction, no group", "WRITE txn there", 3, _txn_commit("there"),
        [GROUP_DENIED]),
    Row("commit in a transaction, none", "READ group there, READ topic there", 3,
        _txn_commit("there"), [TXN_DENIED]),
    Row("describe transactions", "DESCRIBE txn there", 0,
        _same(DescribeTransactionsRequest(transactional_ids=["there", "gone"])), [TXN_DENIED]),
    Row("list transactions", "DESCRIBE txn there", 0, _same(ListTransactionsRequest()), []),
    Row("list transactions, none seen", "DESCRIBE cluster", 0, _same(ListTransactionsRequest()),
        []),
    Row("producers", "READ topic also", 0, _producers("there", "also", "gone"), [TOPIC_DENIED] * 2),
    Row("describe settings", "", 4, _describe_configs(),
        [TOPIC_DENIED, GROUP_DENIED, CLUSTER_DENIED]),
    Row("alter settings", "", 2, _alter_configs(alter_configs, alter_configs.AlterConfigsRequest),
        [TOPIC_DENIED, GROUP_DENIED, CLUSTER_DENIED]),
    Row("alter single settings", "ALTER_CONFIGS group there", 1,
        _alter_configs(
            incremental_alter_configs, incremental_alter_configs.IncrementalAlterConfigsRequest),
        [TOPIC_DENIED, CLUSTER_DENIED]),
    Row("what has settings", "DESCRIBE cluster", 1, _same(ListConfigResourcesRequest()),
        [CLUSTER_DENIED]),
    Row("describe acls", "", 3, _same(DescribeAclsRequest(**_ANY_ACL)), [CLUSTER_DENIED]),
    Row("create acls", "DESCRIBE cluster", 3, _same(acls.CreateAclsRequest(creations=[_RULE])),
        [CLUSTER_DENIED]),
    Row("delete acls", "DESCRIBE cluster", 3,
        _same(delete_acls.DeleteAclsRequest(filters=[delete_acls.DeleteAclsFilter(**_ANY_ACL)])),
        [CLUSTER_DENIED]),
    Row("describe quotas", "", 1, _same(DescribeClientQuotasRequest()), [CLUSTER_DENIED]),
    Row("describe quotas, allowed", "DESCRIBE_CONFIGS cluster", 1,
        _same(DescribeClientQuotasRequest()), []),
    Row("alter quotas", "DESCRIBE_CONFIGS cluster", 1, _same(_quota()), [CLUSTER_DENIED]),
    Row("alter quotas, allowed", "ALTER_CONFIGS cluster", 1, _same(_quota()), []),
    Row("describe credentials", "", 0, _same(DescribeUserScramCredentialsRequest(users=[])),
        [CLUSTER_DENIED]),
    Row("alter credentials", "DESCRIBE cluster", 0,
        _same(alter_scram.AlterUserScramCredentialsRequest(
            deletions=[alter_scram.ScramCredentialDeletion(name="x", mechanism=1)])),
        [CLUSTER_DENIED]),
    Row("log folders", "ALTER_CONFIGS cluster", 4, _same(DescribeLogDirsRequest(topics=None)),
        [CLUSTER_DENIED]),
    Row("move log folders", "DESCRIBE cluster", 2, _move(), [CLUSTER_DENIED]),
    Row("elect", "CLUSTER_ACTION cluster", 2, _elect(), [CLUSTER_DENIED] * 2),
    Row("reassign", "DESCRIBE cluster", 0, _reassign(), [CLUSTER_DENIED] * 2),
    Row("list reassignments", "", 0,
        _same(ListPartitionReassignmentsRequest(topics=None, timeout_ms=5_000)), [CLUSTER_DENIED]),
    Row("quorum", "", 1, _same(DescribeQuorumRequest()), [CLUSTER_DENIED]),
    Row("features", "DESCRIBE cluster", 1, _same(UpdateFeaturesRequest(timeout_ms=5_000)),
        [CLUSTER_DENIED]),
    Row("unregister", "DESCRIBE cluster", 0, _same(UnregisterBrokerRequest(broker_id=9)),
        [CLUSTER_DENIED]),
    Row("add a voter", "DESCRIBE cluster", 0,
        _same(AddRaftVoterRequest(voter_id=9, timeout_ms=5_000)), [CLUSTER_DENIED]),
    Row("remove a voter", "DESCRIBE cluster", 0, _same(RemoveRaftVoterRequest(voter_id=9)),
        [CLUSTER_DENIED]),
    Row("cluster", "ALTER cluster", 0,
        _same(DescribeClusterRequest(include_cluster_authorized_operations=True)), []),
    Row("cluster, operations hidden", "CREATE cluster", 0,
        _same(DescribeClusterRequest(include_cluster_authorized_operations=True)), []),
]  # fmt: skip
USERS: Final = {row.label: f"u{number}" for number, row in enumerate(ROWS)}


# -- the world -------------------------------------------------------------------------------------


def codes(answer: Any) -> list[int]:
    """Every error code in an answer, wherever it stands."""
    found = []
    for field in answer.FIELDS:
        value = getattr(answer, field.name)
        if field.name.endswith("error_code") and value:
            found.append(int(value))
        for inner in value if isinstance(value, list) else [value]:
            if hasattr(inner, "FIELDS"):
                found += codes(inner)
    return sorted(found)


def rules() -> acls.CreateAclsRequest:
    """What the users of all rows are allowed."""
    return acls.CreateAclsRequest(
        creations=[rule for row in ROWS for rule in row.creations(USERS[row.label])]
    )


_MADE = [
    topics.CreatableTopic(name=name, num_partitions=1, replication_factor=1)
    for name in ("there", "also")
]
WORLD: Final = [
    (topics.CreateTopicsRequest(topics=_MADE, timeout_ms=10_000), 7),
    (_find(0, "there", "modern")({}), 4),
    (_find(1, "there")({}), 4),
    (_commit("there", "also")({}), 9),
    (InitProducerIdRequest(transactional_id="there", transaction_timeout_ms=60_000), 4),
    (_joins("also", group="modern")({}), 1),
    (rules(), 3),
]
"""Asked by a super user one after the other, each until it has no error."""
ALL_TOPICS: Final = meta.MetadataRequest(topics=None)
