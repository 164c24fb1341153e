"""The controller: every decision that changes cluster metadata, as `(records, response)`.

Pure: no I/O, no clock, no randomness of its own. Contract with the driver that owns it
(`controlling`, in the event loop's thread):

1. Call one decision method. It reads the image and does not change it. What can be large is
   decided in steps, between which the driver may do other work, but make no other decision.
2. Append the returned records to the metadata log as one batch. Nothing is decided if that fails.
3. Apply them to the controller's image (`replay`, in steps), before any other decision: the next
   one builds on them although they are not committed yet. Send the response when they are
   committed.
4. When the node is no longer the active controller, drop this object: its image may be ahead of
   what was committed.
5. Call `tick` at `next_deadline_ms`, and ask for that deadline again after every decision.
6. After the driver was blocked, call `held_up` before the next decision: brokers that were silent
   meanwhile were not heard because of the driver.

The image that brokers serve from is another one, to which only committed records are applied. A
controller starts with a copy of it. `now_ms` is always of a clock that never goes back
(`Clock.monotonic`), since sessions are measured with it; `wall_ms` is the time of day, by which
delegation tokens expire. The time of a broker's last heartbeat is
the only thing that a decision changes besides its records.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Final, NamedTuple, TypeAlias, TypeVar

from penstock.base.clock import Rng
from penstock.base.errors import ApiError, ErrorCode
from penstock.base.steps import Steps
from penstock.config.layers import BrokerSettings
from penstock.metadata import role_control
from penstock.metadata.acl_control import create_acls, delete_acls
from penstock.metadata.broker_control import BrokerControl
from penstock.metadata.config_control import Change, ConfigControl
from penstock.metadata.delta import MetadataDelta
from penstock.metadata.elr_feature import enabling
from penstock.metadata.feature_control import update_features
from penstock.metadata.features import new_cluster_levels
from penstock.metadata.image import MetadataImage, Partition
from penstock.metadata.liveness import EndedSession, Liveness
from penstock.metadata.partition_control import PartitionControl
from penstock.metadata.partition_index import PartitionIndex
from penstock.metadata.quota_control import alter_quotas
from penstock.metadata.reassignment_control import ReassignmentControl
from penstock.metadata.records import (
    ClearElrRecord,
    FeatureLevelRecord,
    MetadataRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RemoveTopicRecord,
)
from penstock.metadata.scram_control import alter_credentials
from penstock.metadata.token_control import TokenControl, TokenRules
from penstock.metadata.topic_control import (
    ELEMENTS_PER_STEP,
    Admit,
    CreateTopics,
    create_partitions,
    delete_topics,
    everything,
)
from penstock.metadata.topic_rules import TopicRules
from penstock.metadata.upkeep import Upkeep
from penstock.wire.messages import alter_configs as alter
from penstock.wire.messages import incremental_alter_configs as incremental
from penstock.wire.messages.allocate_producer_ids import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
)
from penstock.wire.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
)
from penstock.wire.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse
from penstock.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
)
from penstock.wire.messages.alter_role import AlterRoleRequest, AlterRoleResponse, RoleAction
from penstock.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
)
from penstock.wire.messages.broker_heartbeat import (
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
)
from penstock.wire.messages.broker_registration import (
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
)
from penstock.wire.messages.create_acls import CreateAclsRequest, CreateAclsResponse
from penstock.wire.messages.create_delegation_token import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from penstock.wire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
)
from penstock.wire.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from penstock.wire.messages.delete_acls import DeleteAclsRequest, DeleteAclsResponse
from penstock.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from penstock.wire.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse
from penstock.wire.messages.expire_delegation_token import (
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
)
from penstock.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from penstock.wire.messages.renew_delegation_token import (
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
)
from penstock.wire.messages.unregister_broker import (
    UnregisterBrokerRequest,
    UnregisterBrokerResponse,
)
from penstock.wire.messages.update_features import UpdateFeaturesRequest, UpdateFeaturesResponse

R = TypeVar("R")
Decision: TypeAlias = tuple[list[MetadataRecord], R]
Deciding: TypeAlias = Decision[R] | Steps[Decision[R]]
"""A decision, or the steps to a large one, during which no other is made."""

PRODUCER_ID_BLOCK_SIZE: Final = 1000


class Controller:
    """The decisions; `image` is the controller's own, ahead of what is committed."""

    def __init__(
        self,
        image: MetadataImage,
        settings: BrokerSettings,
        node_id: int,
        rng: Rng,
        *,
        cluster_id: str,
        now_ms: int,
        voters: Callable[[], Collection[int]],
        tokens: Callable[[], TokenRules] = TokenRules,
    ) -> None:
        """Becomes active at `now_ms`; `voters` returns the ids of the quorum's voters, `tokens` how
        delegation tokens are handled: by default there are none.
        """
        self.image = image
        self._settings = settings
        self._rng = rng
        self._voters = voters
        self._index = PartitionIndex(image)
        self.elr_elections_total = 0
        """Leaders that this controller has elected from eligible leader replicas."""
        self._liveness = Liveness(
            image, node_id, lambda: settings.config.broker_session_timeout_ms, now_ms
        )
        self._configs = ConfigControl(image, settings, node_id)
        self._rules = rules = TopicRules(image, settings)
        self._brokers = BrokerControl(
            image, self._index, self._liveness, rules, cluster_id, node_id
        )
        self._partitions = PartitionControl(image, rules)
        self._reassignments = ReassignmentControl(image, self._index, rules)
        self._upkeep = Upkeep(image, self._index, lambda: settings.config, rules, now_ms)
        self._tokens = TokenControl(image.security, tokens, rng, now_ms)

    def replay(
        self, records: Iterable[MetadataRecord], made: Sequence[Partition] = ()
    ) -> Steps[None]:
        """Applies decided records to the controller's image; nothing may be decided before it is
        done. `made` are the partitions of the PartitionRecords among them, if they are made.
        """
        delta, ready = MetadataDelta(), iter(made)
        for number, record in enumerate(records, 1):
            if number % ELEMENTS_PER_STEP == 0:
                yield
            if isinstance(record, PartitionRecord | PartitionChangeRecord):
                key = (record.topic_id, record.partition_id)
                old = self.image.partition(*key)
                is_made = made and isinstance(record, PartitionRecord)
                self.image.apply([record], delta, (next(ready),) if is_made else ())
                new = self.image.partition(*key)
                self._index.changed(key, old, new)
                if old is not None and new is not None and new.leader in old.elr:
                    self.elr_elections_total += 1
            elif isinstance(record, ClearElrRecord):
                eligible = [(key, self.image.partition(*key)) for key in self._index.eligible]
                self.image.apply([record], delta)
                for key, old in eligible:
                    self._index.changed(key, old, self.image.partition(*key))
            elif isinstance(record, RemoveTopicRecord):
                topic = self.image.topics_by_id[record.topic_id]
                self.image.apply([record], delta)
                for index, partition in enumerate(topic.partitions):
                    self._index.changed((topic.id, index), partition, None)
                    if index % ELEMENTS_PER_STEP == ELEMENTS_PER_STEP - 1:
                        yield
            else:
                self.image.apply([record], delta)
                self._upkeep.noticed(record)
                self._tokens.noticed(record)

    def bootstrap(self) -> Decision[None]:
        """The first records of a new cluster; none where the log has them already."""
        if self.image.features:
            return [], None
        levels: list[MetadataRecord] = [
            FeatureLevelRecord(name=name, feature_level=level)
            for name, level in new_cluster_levels().items()
        ]
        return [*levels, *enabling(self.image, self._rules)], None

    # -- time ----------------------------------------------------------------------------------

    def tick(self, now_ms: int, wall_ms: int) -> Decision[EndedSession | None]:
        """Fences a broker whose session has ended and answers which, or else does what upkeep is
        due.
        """
        overdue = self._liveness.overdue(now_ms)
        if overdue is not None:
            return self._brokers.fence(overdue.broker_id), overdue
        return self._upkeep.run(now_ms) or self._tokens.run(now_ms, wall_ms), None

    def held_up(self, ms: int, now_ms: int) -> None:
        """For `ms` up to now nothing could be heard: no session gets shorter by it."""
        self._liveness.held_up(ms, now_ms)

    def next_deadline_ms(self, now_ms: int) -> int | None:
        """When `tick` is to be called next, `now_ms` if at once; None while nothing is known to
        come.
        """
        deadlines = [
            self._liveness.next_end_ms(),
            self._upkeep.due_ms(),
            self._tokens.due_ms(),
        ]
        return min((max(now_ms, d) for d in deadlines if d is not None), default=None)

    # -- brokers -------------------------------------------------------------------------------

    def register_broker(
        self, request: BrokerRegistrationRequest, epoch: int, now_ms: int
    ) -> Decision[BrokerRegistrationResponse]:
        """Registers a broker; `epoch` is the log offset that the decision's first record gets."""
        records, granted = self._brokers.register(request, epoch, now_ms)
        return records, BrokerRegistrationResponse(broker_epoch=granted)

    def broker_heartbeat(
        self, request: BrokerHeartbeatRequest, now_ms: int, next_offset: int
    ) -> Decision[BrokerHeartbeatResponse]:
        """`next_offset` is the log offset that the decision's first record would get;
        `current_metadata_offset` in the request that of the last record the broker has applied.
        """
        return self._brokers.heartbeat(request, now_ms, next_offset)

    def broker_unreachable(
        self, broker_id: int, broker_epoch: int, since_ms: int, *, intact: bool = False
    ) -> Decision[bool]:
        """Nothing listens any more where the broker was, as was found out at `since_ms`: fences
        it, unless it has been heard from since; answers whether it did. `intact`: it has started
        again with all its data.
        """
        broker = self.image.brokers.get(broker_id)
        if broker is None or broker.epoch != broker_epoch or broker.fenced:
            return [], False
        if self._liveness.heard_from(broker) and self._liveness.last_heard_ms(broker) > since_ms:
            return [], False
        return self._brokers.fence(broker_id, intact=intact), True

    def unregister_broker(
        self, request: UnregisterBrokerRequest
    ) -> Decision[UnregisterBrokerResponse]:
        return self._brokers.unregister(request.broker_id), UnregisterBrokerResponse()

    def allocate_producer_ids(
        self, request: AllocateProducerIdsRequest
    ) -> Decision[AllocateProducerIdsResponse]:
        """Hands out a block of producer ids that nobody else will get."""
        self._brokers.check_epoch(request.broker_id, request.broker_epoch)
        first = self.image.next_producer_id
        record = ProducerIdsRecord(
            broker_id=request.broker_id,
            broker_epoch=request.broker_epoch,
            next_producer_id=first + PRODUCER_ID_BLOCK_SIZE,
        )
        response = AllocateProducerIdsResponse(
            producer_id_start=first, producer_id_len=PRODUCER_ID_BLOCK_SIZE
        )
        return [record], response

    def update_features(self, request: UpdateFeaturesRequest) -> Decision[UpdateFeaturesResponse]:
        return update_features(self.image, self._index, self._rules, request, self._voters())

    # -- partitions ----------------------------------------------------------------------------

    def alter_partition(self, request: AlterPartitionRequest) -> Decision[AlterPartitionResponse]:
        self._brokers.check_epoch(request.broker_id, request.broker_epoch)
        return self._partitions.alter(request)

    def elect_leaders(self, request: ElectLeadersRequest) -> Decision[ElectLeadersResponse]:
        return self._partitions.elect(request)

    def alter_partition_reassignments(
        self, request: AlterPartitionReassignmentsRequest
    ) -> Decision[AlterPartitionReassignmentsResponse]:
        return self._reassignments.alter(request)

    def list_partition_reassignments(
        self, request: ListPartitionReassignmentsRequest
    ) -> Decision[ListPartitionReassignmentsResponse]:
        return [], self._reassignments.list(request)

    # -- topics and settings -------------------------------------------------------------------

    def create_topics(
        self, request: CreateTopicsRequest, admit: Admit = everything
    ) -> Steps[Decision[CreateTopicsResponse]]:
        create = CreateTopics(self.image, self._settings, self._index.load(), self._rng, admit)
        response = yield from create.decide(request)
        return ([] if request.validate_only else create.records), response

    def delete_topics(
        self, request: DeleteTopicsRequest, admit: Admit = everything
    ) -> Steps[Decision[DeleteTopicsResponse]]:
        return delete_topics(self.image, request, admit)

    def create_partitions(
        self, request: CreatePartitionsRequest, admit: Admit = everything
    ) -> Steps[Decision[CreatePartitionsResponse]]:
        records, response = yield from create_partitions(
            self.image, self._index.load(), request, self._rng, admit
        )
        return ([] if request.validate_only else records), response

    def alter_configs(
        self, request: alter.AlterConfigsRequest
    ) -> Steps[Decision[alter.AlterConfigsResponse]]:
        def decide(resource: alter.AlterConfigsResource) -> list[MetadataRecord]:
            values = [(config.name, config.value) for config in resource.configs]
            return self._configs.replace(resource.resource_type, resource.resource_name, values)

        records, outcomes = yield from _each(request.resources, decide)
        responses = [
            alter.AlterConfigsResourceResponse(
                error_code=code, error_message=message, resource_type=kind, resource_name=name
            )
            for code, message, kind, name in outcomes
        ]
        response = alter.AlterConfigsResponse(responses=responses)
        return ([] if request.validate_only else records), response

    def incremental_alter_configs(
        self, request: incremental.IncrementalAlterConfigsRequest
    ) -> Steps[Decision[incremental.IncrementalAlterConfigsResponse]]:
        def decide(resource: incremental.AlterConfigsResource) -> list[MetadataRecord]:
            changes = [Change(c.name, c.config_operation, c.value) for c in resource.configs]
            return self._configs.change(resource.resource_type, resource.resource_name, changes)

        records, outcomes = yield from _each(request.resources, decide)
        responses = [
            incremental.AlterConfigsResourceResponse(
                error_code=code, error_message=message, resource_type=kind, resource_name=name
            )
            for code, message, kind, name in outcomes
        ]
        response = incremental.IncrementalAlterConfigsResponse(responses=responses)
        return ([] if request.validate_only else records), response

    # -- who may do what -----------------------------------------------------------------------

    def create_acls(self, request: CreateAclsRequest) -> Steps[Decision[CreateAclsResponse]]:
        return create_acls(self.image.security, request, self._rng)

    def delete_acls(self, request: DeleteAclsRequest) -> Steps[Decision[DeleteAclsResponse]]:
        return delete_acls(self.image.security, request)

    def alter_user_scram_credentials(
        self, request: AlterUserScramCredentialsRequest
    ) -> Steps[Decision[AlterUserScramCredentialsResponse]]:
        return alter_credentials(self.image.security, request)

    def alter_client_quotas(
        self, request: AlterClientQuotasRequest
    ) -> Steps[Decision[AlterClientQuotasResponse]]:
        return alter_quotas(self.image.security, request)

    def create_delegation_token(
        self, request: CreateDelegationTokenRequest, requester: str, wall_ms: int
    ) -> Decision[CreateDelegationTokenResponse]:
        """`requester` is a principal, `Type:name`, that may ask for it."""
        return self._tokens.create(request, requester, wall_ms)

    def renew_delegation_token(
        self, request: RenewDelegationTokenRequest, principal: str, wall_ms: int
    ) -> Decision[RenewDelegationTokenResponse]:
        return self._tokens.renew(request, principal, wall_ms)

    def expire_delegation_token(
        self, request: ExpireDelegationTokenRequest, principal: str, wall_ms: int
    ) -> Decision[ExpireDelegationTokenResponse]:
        return self._tokens.expire(request, principal, wall_ms)

    def alter_role(self, request: AlterRoleRequest) -> Decision[AlterRoleResponse]:
        """`ApiError` where it is refused."""
        name, members = request.name, request.members
        if request.action == RoleAction.CREATE:
            records, _ = self.create_role(name, members)
        elif request.action == RoleAction.DELETE:
            records, _ = self.delete_role(name)
        elif request.action == RoleAction.ADD_MEMBERS:
            records, _ = self.add_role_members(name, members)
        elif request.action == RoleAction.REMOVE_MEMBERS:
            records, _ = self.remove_role_members(name, members)
        else:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"no action has the number {request.action}")
        return records, AlterRoleResponse(error_message=None)

    def create_role(self, name: str, members: Sequence[str] = ()) -> Decision[None]:
        """Members are principals, `Type:name`."""
        return role_control.create_role(self.image, name, members), None

    def delete_role(self, name: str) -> Decision[None]:
        return role_control.delete_role(self.image, name), None

    def add_role_members(self, name: str, members: Sequence[str]) -> Decision[None]:
        return role_control.add_members(self.image, name, members), None

    def remove_role_members(self, name: str, members: Sequence[str]) -> Decision[None]:
        return role_control.remove_members(self.image, name, members), None


class _Outcome(NamedTuple):
    code: int
    message: str | None
    resource_type: int
    resource_name: str


_Resource = TypeVar("_Resource", alter.AlterConfigsResource, incremental.AlterConfigsResource)


def _each(
    resources: list[_Resource], decide: Callable[[_Resource], list[MetadataRecord]]
) -> Steps[tuple[list[MetadataRecord], list[_Outcome]]]:
    """Decides for each resource by itself; one that is named twice is refused."""
    records: list[MetadataRecord] = []
    outcomes: list[_Outcome] = []
    keys = [(resource.resource_type, resource.resource_name) for resource in resources]
    times = Counter(keys)
    for number, (key, resource) in enumerate(zip(keys, resources, strict=True), 1):
        if number % ELEMENTS_PER_STEP == 0:
            yield
        try:
            if times[key] > 1:
                raise ApiError(ErrorCode.INVALID_REQUEST, "the resource is in the request twice")
            records += decide(resource)
            outcomes.append(_Outcome(ErrorCode.NONE, None, *key))
        except ApiError as e:
            outcomes.append(_Outcome(e.code, e.message, *key))
    return records, outcomes
