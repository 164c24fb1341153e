"""A controller with its log, and random commands for it: what a driver does, without a driver."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from hypothesis import strategies as st

from penstock.base.ids import Uuid
from penstock.base.steps import at_once
from penstock.config.layers import BrokerSettings
from penstock.metadata.controller import Controller, Decision
from penstock.metadata.delta import MetadataDelta
from penstock.metadata.features import SUPPORTED_FEATURES
from penstock.metadata.image import MetadataImage, Partition, ResourceType
from penstock.metadata.records import (
    ELIGIBLE_LEADER_REPLICAS_VERSION,
    METADATA_VERSION,
    MetadataRecord,
    decode_record,
    encode_record,
)
from penstock.metadata.security_records import ROLES_VERSION
from penstock.metadata.token_control import TokenRules
from penstock.wire.messages import alter_client_quotas as quotas
from penstock.wire.messages import alter_partition as isr
from penstock.wire.messages import alter_partition_reassignments as reassign
from penstock.wire.messages import alter_user_scram_credentials as scram
from penstock.wire.messages import broker_registration as registration
from penstock.wire.messages import create_acls, delete_acls
from penstock.wire.messages import create_topics as topics
from penstock.wire.messages import elect_leaders as elect
from penstock.wire.messages import incremental_alter_configs as configs
from penstock.wire.messages import update_features as features
from penstock.wire.messages.allocate_producer_ids import AllocateProducerIdsRequest
from penstock.wire.messages.broker_heartbeat import BrokerHeartbeatRequest
from penstock.wire.messages.create_delegation_token import CreateDelegationTokenRequest
from penstock.wire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from penstock.wire.messages.delete_topics import DeleteTopicsRequest
from penstock.wire.messages.expire_delegation_token import ExpireDelegationTokenRequest
from penstock.wire.messages.unregister_broker import UnregisterBrokerRequest

Watch: TypeAlias = Callable[[dict[tuple[Uuid, int], Partition], list[MetadataRecord], str], None]
"""Called after each decision with the partitions before it, its records and its kind."""
BROKERS = 4
UNCLEAN = "unclean.leader.election.enable"
MIN_ISR = "min.insync.replicas"


class CountingRng:
    def __init__(self) -> None:
        self.count = 0

    def uuid(self) -> bytes:
        self.count += 1
        return self.count.to_bytes(16, "big")

    def below(self, n: int) -> int:
        self.count += 1
        return self.count % n


def directory(broker: int, disk: int = 0) -> Uuid:
    return (1000 + 10 * broker + disk).to_bytes(16, "big")


class Rig:
    """`run` makes one decision: its records go through their encoding into log and image."""

    def __init__(self, settings: dict[str, str] | None = None) -> None:
        self.log: list[bytes] = []
        self.now_ms = 0
        self.image = MetadataImage()
        self.settings = BrokerSettings(settings or {})
        self.rng = CountingRng()
        self.watch: Watch | None = None
        self.take_over()
        self.take(self.controller.bootstrap())

    def take_over(self) -> None:
        self.controller = Controller(
            self.image,
            self.settings,
            1,
            self.rng,
            cluster_id="c",
            now_ms=self.now_ms,
            voters=lambda: [b for b in self.image.brokers if b == 1],
            tokens=lambda: TokenRules(b"key", 9_000, 6_000, 3_000),
        )

    def take(self, decision: Decision[Any], kind: str = "") -> Any:
        """Takes a decision into the log; `kind` where it may do what others may not."""
        records, response = decision
        before = self.partitions() if self.watch else {}
        level = self.image.metadata_version
        values = [encode_record(record, level) for record in records]
        self.log += values
        at_once(self.controller.replay(map(decode_record, values)))
        if self.watch:
            self.watch(before, records, kind)
        return response

    def replayed(self) -> MetadataImage:
        image = MetadataImage()
        image.apply(map(decode_record, self.log), MetadataDelta())
        return image

    def partitions(self) -> dict[tuple[Uuid, int], Partition]:
        return {
            (topic.id, index): partition
            for topic in self.image.topics.values()
            for index, partition in enumerate(topic.partitions)
        }

    def epoch(self, broker: int) -> int:
        return self.image.brokers[broker].epoch if broker in self.image.brokers else -1

    # -- commands ------------------------------------------------------------------------------

    def register(self, broker: int, disk: int = 0, *, intact: bool = False) -> Any:
        request = registration.BrokerRegistrationRequest(
            broker_id=broker,
            cluster_id="c",
            incarnation_id=self.rng.uuid(),
            features=[
                registration.Feature(
                    name=name, min_supported_version=low, max_supported_version=high
                )
                for name, (low, high) in SUPPORTED_FEATURES.items()
            ],
            rack=f"rack{broker % 2}",
            log_dirs=[directory(broker, disk)],
            previous_broker_epoch=self.epoch(broker) if intact else -1,
        )
        return self.take(self.controller.register_broker(request, len(self.log), self.now_ms))

    def heartbeat(self, broker: int, **wishes: Any) -> Any:
        request = BrokerHeartbeatRequest(
            broker_id=broker,
            broker_epoch=self.epoch(broker),
            current_metadata_offset=len(self.log) - 1,
            **wishes,
        )
        decision = self.controller.broker_heartbeat(request, self.now_ms, len(self.log))
        return self.take(decision)

    def unreachable(self, broker: int) -> Any:
        epoch = self.epoch(broker)
        return self.take(self.controller.broker_unreachable(broker, epoch, self.now_ms))

    def restart(self, broker: int, disk: int) -> None:
        """Killed, noticed, and back after a loss of power, with its disk or another one."""
        self.unreachable(broker)
        self.register(broker, disk)
        self.heartbeat(broker)

    def restart_intact(self, broker: int) -> None:
        """Killed, noticed, and back with its data."""
        known = self.image.brokers.get(broker)
        self.unreachable(broker)
        disk = 0 if known is None else int(known.log_dirs == (directory(broker, 1),))
        self.register(broker, disk, intact=True)
        self.heartbeat(broker)

    def unregister(self, broker: int) -> Any:
        request = UnregisterBrokerRequest(broker_id=broker)
        return self.take(self.controller.unregister_broker(request))

    def tick(self, wait_ms: int) -> Any:
        self.now_ms += wait_ms
        return self.take(self.controller.tick(self.now_ms, self.now_ms))

    def create(self, name: str, partitions: int, factor: int, **overrides: str) -> Any:
        topic = topics.CreatableTopic(
            name=name,
            num_partitions=partitions,
            replication_factor=factor,
            configs=[topics.CreatableTopicConfig(name=k, value=v) for k, v in overrides.items()],
        )
        request = topics.CreateTopicsRequest(topics=[topic])
        return self.take(at_once(self.controller.create_topics(request)))

    def delete(self, name: str) -> Any:
        request = DeleteTopicsRequest(topic_names=[name])
        return self.take(at_once(self.controller.delete_topics(request)))

    def grow(self, name: str, count: int) -> Any:
        topic = CreatePartitionsTopic(name=name, count=count, assignments=None)
        request = CreatePartitionsRequest(topics=[topic])
        return self.take(at_once(self.controller.create_partitions(request)))

    def configure(self, kind: int, name: str, setting: str, value: str | None) -> Any:
        change = configs.AlterableConfig(
            name=setting, config_operation=1 if value is None else 0, value=value
        )
        resource = configs.AlterConfigsResource(
            resource_type=kind, resource_name=name, configs=[change]
        )
        request = configs.IncrementalAlterConfigsRequest(resources=[resource])
        return self.take(at_once(self.controller.incremental_alter_configs(request)))

    def alter_isr(self, name: str, index: int, mask: int) -> Any:
        """As its leader asks: those of the replicas that `mask` chooses, and the leader."""
        topic = self.image.topics.get(name)
        if topic is None or index >= len(topic.partitions):
            return None
        partition = topic.partitions[index]
        members = [
            b for i, b in enumerate(partition.replicas) if mask >> i & 1 or b == partition.leader
        ]
        data = isr.RequestPartitionData(
            partition_index=index,
            leader_epoch=partition.leader_epoch,
            partition_epoch=partition.partition_epoch,
            new_isr_with_epochs=[
                isr.BrokerState(broker_id=b, broker_epoch=self.epoch(b)) for b in members
            ],
        )
        if partition.leader < 0:
            return None
        request = isr.AlterPartitionRequest(
            broker_id=partition.leader,
            broker_epoch=self.epoch(partition.leader),
            topics=[isr.RequestTopicData(topic_id=topic.id, partitions=[data])],
        )
        return self.take(self.controller.alter_partition(request), kind="alter_isr")

    def elect(self, kind: int) -> Any:
        request = elect.ElectLeadersRequest(election_type=kind, topic_partitions=None)
        return self.take(self.controller.elect_leaders(request), kind=f"elect {kind}")

    def reassign(self, name: str, index: int, replicas: list[int] | None) -> Any:
        wanted = reassign.ReassignablePartition(partition_index=index, replicas=replicas)
        request = reassign.AlterPartitionReassignmentsRequest(
            topics=[reassign.ReassignableTopic(name=name, partitions=[wanted])]
        )
        return self.take(self.controller.alter_partition_reassignments(request))

    def move(self, name: str, index: int, replicas: list[int]) -> None:
        """A reassignment whose replicas are all in sync at once."""
        self.reassign(name, index, replicas)
        self.alter_isr(name, index, mask=255)

    def feature(self, level: int, name: str = METADATA_VERSION) -> Any:
        update = features.FeatureUpdateKey(
            feature=name,
            max_version_level=level,
            upgrade_type=1 if level > self.image.features.get(name, 0) else 3,
        )
        request = features.UpdateFeaturesRequest(feature_updates=[update])
        return self.take(self.controller.update_features(request))

    def producer_ids(self, broker: int) -> Any:
        request = AllocateProducerIdsRequest(broker_id=broker, broker_epoch=self.epoch(broker))
        return self.take(self.controller.allocate_producer_ids(request))

    def cordon(self, broker: int, cordoned: bool) -> Any:
        known = self.image.brokers.get(broker)
        folders = list(known.log_dirs) if known is not None and cordoned else []
        return self.heartbeat(broker, cordoned_log_dirs=folders)

    def create_acl(self, name: str, pattern: int, principal: str, operation: int) -> Any:
        acl = create_acls.AclCreation(
            resource_type=2,
            resource_name=name,
            resource_pattern_type=pattern,
            principal=principal,
            host="*",
            operation=operation,
            permission_type=3,
        )
        request = create_acls.CreateAclsRequest(creations=[acl])
        return self.take(at_once(self.controller.create_acls(request)))

    def delete_acls(self, name: str, pattern: int, principal: str | None) -> Any:
        wanted = delete_acls.DeleteAclsFilter(
            resource_type_filter=1,
            resource_name_filter=name,
            pattern_type_filter=pattern,
            principal_filter=principal,
            host_filter=None,
            operation=1,
            permission_type=1,
        )
        request = delete_acls.DeleteAclsRequest(filters=[wanted])
        return self.take(at_once(self.controller.delete_acls(request)))

    def set_password(self, user: str, mechanism: int, password: bytes) -> Any:
        change = scram.ScramCredentialUpsertion(
            name=user,
            mechanism=mechanism,
            iterations=4096,
            salt=b"salt",
            salted_password=password,
        )
        request = scram.AlterUserScramCredentialsRequest(upsertions=[change])
        return self.take(at_once(self.controller.alter_user_scram_credentials(request)))

    def delete_password(self, user: str, mechanism: int) -> Any:
        change = scram.ScramCredentialDeletion(name=user, mechanism=mechanism)
        request = scram.AlterUserScramCredentialsRequest(deletions=[change])
        return self.take(at_once(self.controller.alter_user_scram_credentials(request)))

    def create_token(self, owner: str) -> Any:
        request = CreateDelegationTokenRequest(
            owner_principal_type="User", owner_principal_name=owner
        )
        return self.take(
            self.controller.create_delegation_token(request, "User:admin", self.now_ms)
        )

    def end_token(self, owner: str) -> None:
        """Ends a new token at once."""
        made = self.create_token(owner)
        request = ExpireDelegationTokenRequest(hmac=made.hmac, expiry_time_period_ms=-1)
        self.take(self.controller.expire_delegation_token(request, f"User:{owner}", self.now_ms))

    def quota(self, entity: dict[str, str | None], key: str, value: float | None) -> Any:
        entry = quotas.RequestEntryData(
            entity=[quotas.EntityData(entity_type=k, entity_name=v) for k, v in entity.items()],
            ops=[quotas.OpData(key=key, value=value or 0.0, remove=value is None)],
        )
        request = quotas.AlterClientQuotasRequest(entries=[entry])
        return self.take(at_once(self.controller.alter_client_quotas(request)))

    def create_role(self, name: str) -> Any:
        return self.take(self.controller.create_role(name))

    def delete_role(self, name: str) -> Any:
        return self.take(self.controller.delete_role(name))

    def join_role(self, name: str, members: list[str]) -> Any:
        return self.take(self.controller.add_role_members(name, members))

    def leave_role(self, name: str, members: list[str]) -> Any:
        return self.take(self.controller.remove_role_members(name, members))


names = st.sampled_from(["a", "b", "c.d", "c_d"])
brokers = st.integers(1, BROKERS)
targets = st.lists(brokers, min_size=1, max_size=4, unique=True)


def command(name: str, *arguments: st.SearchStrategy[Any]) -> st.SearchStrategy[tuple[Any, ...]]:
    return st.tuples(st.just(name), *arguments)


people = st.sampled_from(["User:a", "User:b", "Role:r"])
members = st.lists(st.sampled_from(["User:a", "User:b", "User:c"]), max_size=3)
entities = st.dictionaries(
    st.sampled_from(["user", "client-id"]), st.none() | st.sampled_from(["a", "b"]), min_size=1
)
security_commands = st.one_of(
    command("create_acl", names, st.integers(3, 4), people, st.integers(2, 4)),
    command("create_acl", names, st.integers(3, 4), people, st.integers(2, 4)),
    command("delete_acls", names, st.integers(1, 4), st.none() | people),
    command("set_password", names, st.integers(1, 2), st.sampled_from([b"1", b"2"])),
    command("delete_password", names, st.integers(1, 2)),
    command("create_token", names),
    command("end_token", names),
    command("tick", st.sampled_from([100, 3000, 6000])),
    command(
        "quota",
        entities,
        st.sampled_from(["producer_byte_rate", "request_percentage"]),
        st.none() | st.sampled_from([1.0, 2.0]),
    ),
    command("create_role", st.sampled_from(["r", "s"])),
    command("create_role", st.sampled_from(["r", "s"])),
    command("delete_role", st.sampled_from(["r", "s"])),
    command("join_role", st.sampled_from(["r", "s"]), members),
    command("leave_role", st.sampled_from(["r", "s"]), members),
    command("roles", st.integers(0, 1)),
    command("take_over"),
)
commands = st.lists(
    st.one_of(
        command("register", brokers, st.integers(0, 1)),
        command("restart", brokers, st.integers(0, 1)),
        command("restart_intact", brokers),
        command("heartbeat", brokers),
        command("heartbeat", brokers),
        command("shut_down", brokers),
        command("fence", brokers),
        command("unreachable", brokers),
        command("unregister", brokers),
        command("tick", st.sampled_from([100, 3000, 6000, 300_000])),
        command("take_over"),
        command("create", names, st.integers(1, 4), st.integers(1, 4)),
        command("delete", names),
        command("grow", names, st.integers(1, 6)),
        command("unclean", names, st.booleans()),
        command("min_isr", st.none() | names, st.integers(1, 3)),
        command("elr", st.integers(0, 1)),
        command("alter_isr", names, st.integers(0, 3), st.integers(0, 15)),
        command("alter_isr", names, st.integers(0, 3), st.integers(0, 15)),
        command("elect", st.integers(0, 1)),
        command("reassign", names, st.integers(0, 3), st.none() | targets),
        command("move", names, st.integers(0, 2), targets),
        command("feature", st.integers(29, 30)),
        command("cordon", brokers, st.booleans()),
        command("producer_ids", brokers),
    ),
    max_size=40,
)


def run(rig: Rig, command: tuple[Any, ...]) -> None:
    """Runs one of `commands`."""
    match command:
        case ("shut_down", broker):
            rig.heartbeat(broker, want_shut_down=True)
        case ("fence", broker):
            rig.heartbeat(broker, want_fence=True)
        case ("unclean", name, allowed):
            value = str(allowed).lower()
            rig.configure(ResourceType.TOPIC, name, UNCLEAN, value)
        case ("min_isr", None, replicas):
            rig.configure(ResourceType.BROKER, "", MIN_ISR, str(replicas))
        case ("min_isr", name, replicas):
            rig.configure(ResourceType.TOPIC, name, MIN_ISR, str(replicas))
        case ("elr", level):
            rig.feature(level, ELIGIBLE_LEADER_REPLICAS_VERSION)
        case ("roles", level):
            rig.feature(level, ROLES_VERSION)
        case ("take_over",):
            rig.take_over()
        case (name, *arguments):
            getattr(rig, name)(*arguments)


def started() -> Rig:
    """Four brokers that are alive, a topic of three replicas and one without a second."""
    rig = Rig()
    for broker in range(1, BROKERS + 1):
        rig.register(broker)
        rig.heartbeat(broker)
    rig.configure(ResourceType.BROKER, "", MIN_ISR, "2")
    rig.create("a", 3, 3)
    rig.create("b", 4, 1)
    return rig


def records_of(rig: Rig) -> list[MetadataRecord]:
    return [decode_record(value) for value in rig.log]
