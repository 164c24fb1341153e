"""What the active controller decides, asked over the wire."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from penstock.base.errors import ErrorCode
from penstock.metadata.features import SUPPORTED_FEATURES
from penstock.wire.messages import alter_partition as isr
from penstock.wire.messages import alter_partition_reassignments as reassign
from penstock.wire.messages import alter_replica_log_dirs as folders
from penstock.wire.messages import broker_registration as registration
from penstock.wire.messages import elect_leaders as elect
from penstock.wire.messages import update_features as features
from penstock.wire.messages.allocate_producer_ids import AllocateProducerIdsRequest
from penstock.wire.messages.api_versions import ApiVersionsRequest
from penstock.wire.messages.broker_heartbeat import BrokerHeartbeatRequest
from penstock.wire.messages.describe_log_dirs import DescribeLogDirsRequest
from penstock.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from penstock.wire.messages.list_partition_reassignments import ListPartitionReassignmentsRequest
from penstock.wire.messages.unregister_broker import UnregisterBrokerRequest
from unit.net.served import run
from unit.serving.rig import Peer, Rig, running

OTHER = 2
FOLDER = b"d" * 16


def with_node(tmp_path: Path, test: Callable[[Rig, Peer], Awaitable[None]]) -> None:
    async def main() -> None:
        async with running(tmp_path) as rig:
            await rig.topic("t", 2)
            await test(rig, await rig.peer())

    run(main)


def registration_of(rig: Rig, run_id: bytes) -> registration.BrokerRegistrationRequest:
    """Another broker, which exists only in the metadata."""
    return registration.BrokerRegistrationRequest(
        broker_id=OTHER,
        cluster_id=rig.broker.cluster.id,
        incarnation_id=run_id,
        listeners=[registration.Listener(name="PLAINTEXT", host="127.0.0.1", port=1)],
        features=[
            registration.Feature(name=name, min_supported_version=low, max_supported_version=high)
            for name, (low, high) in SUPPORTED_FEATURES.items()
        ],
        log_dirs=[FOLDER],
    )


async def registered(rig: Rig, peer: Peer) -> int:
    """The epoch of the other broker, unfenced."""
    answer = await peer.call(registration_of(rig, b"1" * 16), 4)
    assert answer.error_code == 0
    beat = await heartbeat(peer, answer.broker_epoch)
    assert (beat.error_code, beat.is_fenced, beat.is_caught_up) == (0, False, True)
    epoch: int = answer.broker_epoch
    return epoch


async def heartbeat(peer: Peer, epoch: int, **wishes: Any) -> Any:
    wishes = {"current_metadata_offset": epoch, **wishes}
    return await peer.call(BrokerHeartbeatRequest(broker_id=OTHER, broker_epoch=epoch, **wishes), 2)


def test_a_broker_registers_lives_and_is_forgotten(tmp_path: Path) -> None:
    async def test(rig: Rig, peer: Peer) -> None:
        wrong = registration_of(rig, b"1" * 16)
        wrong.cluster_id = "another"
        answer = await peer.call(wrong, 4)
        assert answer.error_code == ErrorCode.INCONSISTENT_CLUSTER_ID
        epoch = await registered(rig, peer)
        assert rig.broker.metadata.brokers[OTHER].epoch == epoch
        another = registration_of(rig, b"2" * 16)
        another.log_dirs = [b"e" * 16]
        answer = await peer.call(another, 4)
        assert answer.error_code == ErrorCode.DUPLICATE_BROKER_REGISTRATION
        assert (await heartbeat(peer, epoch - 1)).error_code == ErrorCode.STALE_BROKER_EPOCH
        ids = await peer.call(AllocateProducerIdsRequest(broker_id=OTHER, broker_epoch=epoch), 0)
        assert (ids.error_code, ids.producer_id_len) == (0, 1000)
        stale = AllocateProducerIdsRequest(broker_id=OTHER, broker_epoch=epoch + 1)
        assert (await peer.call(stale, 0)).error_code == ErrorCode.STALE_BROKER_EPOCH
        goes = await heartbeat(peer, epoch, want_shut_down=True)
        assert (goes.error_code, goes.should_shut_down, goes.is_fenced) == (0, True, True)
        forget = UnregisterBrokerRequest(broker_id=OTHER)
        assert (await peer.call(forget, 0)).error_code == 0
        assert OTHER not in rig.broker.metadata.brokers
        again = await peer.call(forget, 0)
        assert again.error_code == ErrorCode.BROKER_ID_NOT_REGISTERED
        assert again.error_message == "broker 2 is not registered"

    with_node(tmp_path, test)


def reassignment(topic: str, replicas: list[int] | None) -> Any:
    partition = reassign.ReassignablePartition(partition_index=0, replicas=replicas)
    return reassign.AlterPartitionReassignmentsRequest(
        topics=[reassign.ReassignableTopic(name=topic, partitions=[partition])]
    )


def test_a_partition_is_moved_by_its_leader_and_back(tmp_path: Path) -> None:
    async def test(rig: Rig, peer: Peer) -> None:
        epoch = await registered(rig, peer)
        image = rig.broker.metadata
        topic_id, me = image.topics["t"].id, rig.broker.node_id

        async def error(request: Any) -> int:
            answer = await peer.call(request, 1)
            code: int = answer.responses[0].partitions[0].error_code
            return code

        nobody = reassignment("t", [9])
        assert await error(nobody) == ErrorCode.INVALID_REPLICA_ASSIGNMENT
        assert await error(reassignment("t", None)) == ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
        assert await error(reassignment("t", [me, OTHER])) == 0
        listed = await peer.call(ListPartitionReassignmentsRequest(topics=None), 0)
        assert [(t.name, p.adding_replicas) for t in listed.topics for p in t.partitions] == [
            ("t", [OTHER])
        ]

        def in_sync(broker_epoch: int) -> isr.AlterPartitionRequest:
            partition = image.topics["t"].partitions[0]
            data = isr.RequestPartitionData(
                partition_index=0,
                leader_epoch=partition.leader_epoch,
                partition_epoch=partition.partition_epoch,
                new_isr_with_epochs=[
                    isr.BrokerState(broker_id=me, broker_epoch=image.brokers[me].epoch),
                    isr.BrokerState(broker_id=OTHER, broker_epoch=broker_epoch),
                ],
            )
            return isr.AlterPartitionRequest(
                broker_id=me,
                broker_epoch=image.brokers[me].epoch,
                topics=[isr.RequestTopicData(topic_id=topic_id, partitions=[data])],
            )

        refused = await peer.call(in_sync(epoch + 1), 3)
        assert refused.topics[0].partitions[0].error_code == ErrorCode.INELIGIBLE_REPLICA
        done = (await peer.call(in_sync(epoch), 3)).topics[0].partitions[0]
        assert (done.error_code, done.isr) == (0, [me, OTHER])
        assert image.topics["t"].partitions[0].adding == ()
        stale = in_sync(epoch)
        stale.broker_epoch += 1
        assert (await peer.call(stale, 3)).error_code == ErrorCode.STALE_BROKER_EPOCH
        assert await error(reassignment("t", [me])) == 0
        assert image.topics["t"].partitions[0].replicas == (me,)

    with_node(tmp_path, test)


@pytest.mark.parametrize("version", [0, 1, 2])
def test_elections(tmp_path: Path, version: int) -> None:
    async def test(rig: Rig, peer: Peer) -> None:
        wanted = [elect.TopicPartitions(topic="t", partitions=[0, 9])]
        answer = await peer.call(elect.ElectLeadersRequest(topic_partitions=wanted), version)
        assert answer.error_code == 0
        codes = [p.error_code for p in answer.replica_election_results[0].partition_result]
        assert codes == [ErrorCode.ELECTION_NOT_NEEDED, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
        answer = await peer.call(elect.ElectLeadersRequest(topic_partitions=None), version)
        assert [r.partition_result for r in answer.replica_election_results] == [[]]
        if version:
            strange = elect.ElectLeadersRequest(election_type=7, topic_partitions=wanted)
            answer = await peer.call(strange, version)
            assert answer.error_code == ErrorCode.INVALID_REQUEST
            results = answer.replica_election_results[0].partition_result
            assert {p.error_code for p in results} == {ErrorCode.INVALID_REQUEST}

    with_node(tmp_path, test)


@pytest.mark.parametrize("version", [0, 1, 2])
def test_features_are_finalised_apart(tmp_path: Path, version: int) -> None:
    async def test(rig: Rig, peer: Peer) -> None:
        async def level() -> int:
            answer = await peer.call(ApiVersionsRequest(), 0)
            assert answer.error_code == 0
            return rig.broker.metadata.metadata_version

        def update(to: int, kind: int) -> features.UpdateFeaturesRequest:
            key = features.FeatureUpdateKey(feature="metadata.version", max_version_level=to)
            if version:
                key.upgrade_type = kind
            else:
                key.allow_downgrade = kind > 1
            return features.UpdateFeaturesRequest(feature_updates=[key])

        refused = await peer.call(update(29, 1), version)
        assert refused.error_code == ErrorCode.INVALID_UPDATE_VERSION
        assert "ask for a downgrade" in (refused.error_message or "")
        assert refused.results == []
        done = await peer.call(update(29, 2), version)
        assert done.error_code == 0
        assert [r.feature for r in done.results] == ["metadata.version"] * (version < 2)
        assert await level() == 29
        assert (await peer.call(update(30, 1), version)).error_code == 0
        assert await level() == 30

    with_node(tmp_path, test)


def test_a_replica_stays_in_the_only_data_folder(tmp_path: Path) -> None:
    async def test(rig: Rig, peer: Peer) -> None:
        def to(path: str, *indexes: int) -> folders.AlterReplicaLogDir:
            topics = [folders.AlterReplicaLogDirTopic(name="t", partitions=list(indexes))]
            return folders.AlterReplicaLogDir(path=path, topics=topics)

        dirs = [to(rig.broker.logs.data_dir, 0, 7), to("/elsewhere", 1)]
        answer = await peer.call(folders.AlterReplicaLogDirsRequest(dirs=dirs), 2)
        assert [(p.partition_index, p.error_code) for p in answer.results[0].partitions] == [
            (0, ErrorCode.NONE),
            (7, ErrorCode.REPLICA_NOT_AVAILABLE),
            (1, ErrorCode.LOG_DIR_NOT_FOUND),
        ]

    with_node(tmp_path, test)


def test_a_cordoned_folder_is_shown(tmp_path: Path) -> None:
    async def test(rig: Rig, peer: Peer) -> None:
        async def cordoned() -> bool:
            answer = await peer.call(DescribeLogDirsRequest(topics=None), 5)
            shown: bool = answer.results[0].is_cordoned
            return shown

        assert not await cordoned()
        config = AlterableConfig(name="cordoned.log.dirs", value="*")
        resource = AlterConfigsResource(
            resource_type=4, resource_name=str(rig.broker.node_id), configs=[config]
        )
        answer = await peer.call(IncrementalAlterConfigsRequest(resources=[resource]), 1)
        assert answer.responses[0].error_code == 0
        assert await cordoned()

    with_node(tmp_path, test)
