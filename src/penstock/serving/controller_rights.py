"""Who may have the active controller decide what: a table by type of request.

Asked on the active controller alone, with the principal that a broker has forwarded, and not for
what a node decides for itself. A request of a type without a row is refused. Some need a right to
the cluster as a whole; others name topics or resources, of which those are decided that the
principal has the right to, and the others are refused one by one: whether they exist or not.

While this node has not loaded the ACLs yet it is not the controller to anybody but super users:
others try again. Owned by the event loop's thread.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from typing import Any, Final, TypeAlias

from penstock.auth.principal import Principal
from penstock.auth.types import Operation, ResourceType
from penstock.base.errors import ApiError, ErrorCode
from penstock.base.ids import ZERO_UUID
from penstock.metadata.image import MetadataImage
from penstock.metadata.image import ResourceType as ConfigResource
from penstock.metadata.topic_control import unknown_topic
from penstock.net.turn import Turn
from penstock.serving.rights import DENIED, Rights
from penstock.wire.messages import alter_configs, incremental_alter_configs
from penstock.wire.messages.add_raft_voter import AddRaftVoterRequest
from penstock.wire.messages.allocate_producer_ids import AllocateProducerIdsRequest
from penstock.wire.messages.alter_client_quotas import AlterClientQuotasRequest
from penstock.wire.messages.alter_partition import AlterPartitionRequest
from penstock.wire.messages.alter_partition_reassignments import AlterPartitionReassignmentsRequest
from penstock.wire.messages.alter_role import AlterRoleRequest
from penstock.wire.messages.alter_user_scram_credentials import AlterUserScramCredentialsRequest
from penstock.wire.messages.broker_heartbeat import BrokerHeartbeatRequest
from penstock.wire.messages.broker_registration import BrokerRegistrationRequest
from penstock.wire.messages.create_acls import CreateAclsRequest
from penstock.wire.messages.create_delegation_token import CreateDelegationTokenRequest
from penstock.wire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsTopicResult,
)
from penstock.wire.messages.create_topics import (
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from penstock.wire.messages.delete_acls import DeleteAclsRequest
from penstock.wire.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicState,
)
from penstock.wire.messages.describe_quorum import DescribeQuorumRequest
from penstock.wire.messages.elect_leaders import ElectLeadersRequest
from penstock.wire.messages.expire_delegation_token import ExpireDelegationTokenRequest
from penstock.wire.messages.list_partition_reassignments import ListPartitionReassignmentsRequest
from penstock.wire.messages.remove_raft_voter import RemoveRaftVoterRequest
from penstock.wire.messages.renew_delegation_token import RenewDelegationTokenRequest
from penstock.wire.messages.unregister_broker import UnregisterBrokerRequest
from penstock.wire.messages.update_features import UpdateFeaturesRequest
from penstock.wire.schema import Message

Decide: TypeAlias = Callable[[Any], Awaitable[Any]]
"""Has a request decided, whoever it is from."""

NAMES_PER_CHECK: Final = 100
"""Names whose rights are looked up before the clock is checked."""
_DENIED: Final = ErrorCode.TOPIC_AUTHORIZATION_FAILED

_OF_CLUSTER: Final[Mapping[type[Message], Operation]] = {
    AddRaftVoterRequest: Operation.ALTER,
    AllocateProducerIdsRequest: Operation.CLUSTER_ACTION,
    AlterClientQuotasRequest: Operation.ALTER_CONFIGS,
    AlterPartitionReassignmentsRequest: Operation.ALTER,
    AlterPartitionRequest: Operation.CLUSTER_ACTION,
    AlterRoleRequest: Operation.ALTER,
    AlterUserScramCredentialsRequest: Operation.ALTER,
    BrokerHeartbeatRequest: Operation.CLUSTER_ACTION,
    BrokerRegistrationRequest: Operation.CLUSTER_ACTION,
    CreateAclsRequest: Operation.ALTER,
    DeleteAclsRequest: Operation.ALTER,
    DescribeQuorumRequest: Operation.DESCRIBE,
    ElectLeadersRequest: Operation.ALTER,
    ListPartitionReassignmentsRequest: Operation.DESCRIBE,
    RemoveRaftVoterRequest: Operation.ALTER,
    UnregisterBrokerRequest: Operation.ALTER,
    UpdateFeaturesRequest: Operation.ALTER,
}
"""What has to be allowed on the cluster, or the whole request is refused."""


class ControllerRights:
    def __init__(self, rights: Rights, image: MetadataImage) -> None:
        self._rights = rights
        self._image = image

    async def __call__(self, principal: Principal, request: Message, decide: Decide) -> Any:
        """The response to `request` as far as the principal may have it; `ApiError` if it is
        refused as a whole.
        """
        if not self._rights.is_loaded and not self._rights.sees_all(principal):
            raise ApiError(ErrorCode.NOT_CONTROLLER, "the ACLs are not known here yet")
        operation = _OF_CLUSTER.get(type(request))
        if operation is not None:
            self._rights.require_cluster(principal, operation)
            return await decide(request)
        part = _OF_PARTS.get(type(request))
        if part is None:
            raise ApiError(
                ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "no right allows this kind of request"
            )
        return await part(self, principal, request, decide)

    # -- topics --------------------------------------------------------------------------------

    async def _create_topics(
        self, principal: Principal, request: CreateTopicsRequest, decide: Decide
    ) -> CreateTopicsResponse:
        times = Counter(topic.name for topic in request.topics)
        # A name that is there twice is refused for that.
        once = [name for name, count in times.items() if count == 1]
        denied: Collection[str] = ()
        if not self._rights.cluster_shows(principal, Operation.CREATE):
            denied = await self._denied(principal, Operation.CREATE, once)
        response: CreateTopicsResponse = await decide(
            CreateTopicsRequest(
                topics=[topic for topic in request.topics if topic.name not in denied],
                timeout_ms=request.timeout_ms,
                validate_only=request.validate_only,
            )
        )
        made = [topic.name for topic in response.topics if not topic.error_code]
        hidden = await self._denied(principal, Operation.DESCRIBE_CONFIGS, made)
        for topic in response.topics:
            if topic.name in hidden:
                topic.topic_config_error_code = _DENIED
                topic.num_partitions = topic.replication_factor = -1
                topic.configs = []
        response.topics += [
            CreatableTopicResult(name=name, error_code=_DENIED, error_message=DENIED)
            for name in once
            if name in denied
        ]
        return response

    async def _delete_topics(
        self, principal: Principal, request: DeleteTopicsRequest, decide: Decide
    ) -> Any:
        wanted = [*request.topics, *(DeleteTopicState(name=name) for name in request.topic_names)]
        if self._rights.cluster_shows(principal, Operation.DELETE):
            return await decide(request)
        refused: list[DeletableTopicResult] = []
        left, turn = [], Turn()
        times = Counter((topic.name, topic.topic_id) for topic in wanted)
        for number, topic in enumerate(wanted, 1):
            result = None
            # What is there twice, or has both a name and an id, is refused for that.
            if times[topic.name, topic.topic_id] == 1:
                result = self._undeletable(principal, topic)
            if result is None:
                left.append(topic)
            else:
                refused.append(result)
            if number % NAMES_PER_CHECK == 0 and turn.is_over:
                await turn.next()
        response = await decide(DeleteTopicsRequest(topics=left, timeout_ms=request.timeout_ms))
        response.responses += refused
        return response

    def _undeletable(
        self, principal: Principal, topic: DeleteTopicState
    ) -> DeletableTopicResult | None:
        """The refusal; None for what is refused for another reason, or can be deleted."""
        by_id = topic.topic_id != ZERO_UUID
        if by_id == (topic.name is not None):
            return None
        name = topic.name
        if name is None:
            found = self._image.topics_by_id.get(topic.topic_id)
            if found is None:
                return _undeleted(None, topic, ErrorCode.UNKNOWN_TOPIC_ID, "no topic has this id")
            name = found.name
        seen = self._rights.topic(principal, Operation.DESCRIBE, name)
        deletable = self._rights.topic(principal, Operation.DELETE, name)
        if deletable and (by_id or seen):
            return None
        if seen and not by_id and name not in self._image.topics:
            unknown = unknown_topic(name)
            return _undeleted(name, topic, unknown.code, unknown.message)
        return _undeleted(name if seen or not by_id else None, topic, _DENIED, DENIED)

    async def _create_partitions(
        self, principal: Principal, request: CreatePartitionsRequest, decide: Decide
    ) -> Any:
        times = Counter(topic.name for topic in request.topics)
        once = [name for name, count in times.items() if count == 1]
        denied = await self._denied(principal, Operation.ALTER, once)
        response = await decide(
            CreatePartitionsRequest(
                topics=[topic for topic in request.topics if topic.name not in denied],
                timeout_ms=request.timeout_ms,
                validate_only=request.validate_only,
            )
        )
        response.results += [
            CreatePartitionsTopicResult(name=name, error_code=_DENIED, error_message=DENIED)
            for name in once
            if name in denied
        ]
        return response

    async def _denied(
        self, principal: Principal, operation: Operation, names: Iterable[str]
    ) -> set[str]:
        """Those of the topics that they may not do it with."""
        denied, turn = set(), Turn()
        for number, name in enumerate(names, 1):
            if not self._rights.topic(principal, operation, name):
                denied.add(name)
            if number % NAMES_PER_CHECK == 0 and turn.is_over:
                await turn.next()
        return denied

    # -- settings ------------------------------------------------------------------------------

    async def _alter_configs(
        self,
        principal: Principal,
        request: (
            alter_configs.AlterConfigsRequest
            | incremental_alter_configs.IncrementalAlterConfigsRequest
        ),
        decide: Decide,
    ) -> Any:
        allowed: list[Any] = []
        refused: list[tuple[Any, ErrorCode]] = []
        turn = Turn()
        resources: list[Any] = [*request.resources]
        for number, resource in enumerate(resources, 1):
            code = self._unalterable(principal, resource.resource_type, resource.resource_name)
            if code is None:
                allowed.append(resource)
            else:
                refused.append((resource, code))
            if number % NAMES_PER_CHECK == 0 and turn.is_over:
                await turn.next()
        response = await decide(
            type(request)(resources=allowed, validate_only=request.validate_only)
        )
        made: type[Any] = incremental_alter_configs.AlterConfigsResourceResponse
        if isinstance(request, alter_configs.AlterConfigsRequest):
            made = alter_configs.AlterConfigsResourceResponse
        response.responses += [
            made(
                error_code=code,
                error_message=DENIED,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
            )
            for resource, code in refused
        ]
        return response

    def _unalterable(self, principal: Principal, kind: int, name: str) -> ErrorCode | None:
        operation = Operation.ALTER_CONFIGS
        try:
            if kind == ConfigResource.TOPIC:
                self._rights.require_topic(principal, operation, name)
            elif kind == ConfigResource.GROUP:
                self._rights.require_group(principal, operation, name)
            else:
                self._rights.require_cluster(principal, operation)
        except ApiError as e:
            return e.code
        return None

    # -- tokens --------------------------------------------------------------------------------

    async def _create_token(
        self, principal: Principal, request: CreateDelegationTokenRequest, decide: Decide
    ) -> Any:
        owner = f"{request.owner_principal_type}:{request.owner_principal_name}"
        if request.owner_principal_name and owner != principal.text:
            self._rights.require(principal, Operation.CREATE_TOKENS, ResourceType.USER, owner)
        return await decide(request)

    async def _token_of_owner(self, _: Principal, request: Message, decide: Decide) -> Any:
        """Whose it is decides."""
        return await decide(request)


def _undeleted(
    name: str | None, topic: DeleteTopicState, code: ErrorCode, message: str
) -> DeletableTopicResult:
    return DeletableTopicResult(
        name=name, topic_id=topic.topic_id, error_code=code, error_message=message
    )


_Part: TypeAlias = Callable[[ControllerRights, Principal, Any, Decide], Awaitable[Any]]
_OF_PARTS: Final[Mapping[type[Message], _Part]] = {
    CreateTopicsRequest: ControllerRights._create_topics,
    DeleteTopicsRequest: ControllerRights._delete_topics,
    CreatePartitionsRequest: ControllerRights._create_partitions,
    alter_configs.AlterConfigsRequest: ControllerRights._alter_configs,
    incremental_alter_configs.IncrementalAlterConfigsRequest: ControllerRights._alter_configs,
    CreateDelegationTokenRequest: ControllerRights._create_token,
    ExpireDelegationTokenRequest: ControllerRights._token_of_owner,
    RenewDelegationTokenRequest: ControllerRights._token_of_owner,
}
"""What each part of a request needs."""
