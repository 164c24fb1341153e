"""What the audit log tells of a request to change the cluster: a table by type of request.

A row names the resources of a request, with what was asked for. It picks single fields and never
shows a message as a whole: salts, salted passwords and the keys of tokens are not picked, and
values of settings only for topics and groups, which have no secret ones. A request without a row is
told without resources, so that a new one is never missing. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, TypeAlias

from penstock.auth.audit import CREATE, DELETE, OTHER, UPDATE, Kind, Resource, Status, cut
from penstock.auth.types import Operation, PatternType, PermissionType, ResourceType
from penstock.base.errors import ErrorCode
from penstock.base.ids import uuid_text
from penstock.metadata.image import ResourceType as ConfigResource
from penstock.wire.messages.add_raft_voter import AddRaftVoterRequest
from penstock.wire.messages.alter_client_quotas import AlterClientQuotasRequest
from penstock.wire.messages.alter_configs import AlterConfigsRequest
from penstock.wire.messages.alter_partition_reassignments import AlterPartitionReassignmentsRequest
from penstock.wire.messages.alter_replica_log_dirs import AlterReplicaLogDirsRequest
from penstock.wire.messages.alter_role import AlterRoleRequest, RoleAction
from penstock.wire.messages.alter_share_group_offsets import AlterShareGroupOffsetsRequest
from penstock.wire.messages.alter_user_scram_credentials import AlterUserScramCredentialsRequest
from penstock.wire.messages.create_acls import CreateAclsRequest
from penstock.wire.messages.create_delegation_token import CreateDelegationTokenRequest
from penstock.wire.messages.create_partitions import CreatePartitionsRequest
from penstock.wire.messages.create_topics import CreateTopicsRequest
from penstock.wire.messages.delete_acls import DeleteAclsRequest
from penstock.wire.messages.delete_groups import DeleteGroupsRequest
from penstock.wire.messages.delete_records import DeleteRecordsRequest
from penstock.wire.messages.delete_share_group_offsets import DeleteShareGroupOffsetsRequest
from penstock.wire.messages.delete_topics import DeleteTopicsRequest
from penstock.wire.messages.elect_leaders import ElectLeadersRequest
from penstock.wire.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from penstock.wire.messages.offset_delete import OffsetDeleteRequest
from penstock.wire.messages.redrive import RedriveRequest
from penstock.wire.messages.remove_raft_voter import RemoveRaftVoterRequest
from penstock.wire.messages.unregister_broker import UnregisterBrokerRequest
from penstock.wire.messages.update_features import UpdateFeaturesRequest
from penstock.wire.schema import Message, Struct

Resources: TypeAlias = Callable[[Any, Any], Iterable[Resource]]
"""Those of a request and its response."""

_TOPIC: Final = "topic"
_GROUP: Final = "group"
_SHOWN_VALUES: Final = (ConfigResource.TOPIC, ConfigResource.GROUP)
_OPERATIONS: Final = ("set", "delete", "append", "subtract")  # of IncrementalAlterConfigs
_ROLE_ACTIONS: Final = {int(action): action.name.lower() for action in RoleAction}
_NAMES: Final = ("name", "topic_name", "topic", "resource_name", "user", "group_id", "feature")
"""Fields by which responses name what an error code is about."""


def told(request: Message, response: Message) -> tuple[Kind, Status, list[Resource], str]:
    """The activity, how it ended, what it was about, and the names of the errors."""
    kind, resources = _ROWS.get(type(request), (OTHER, _nothing))
    codes = {code for code in response.error_codes() if code}
    detail = ", ".join(sorted(_code_name(code) for code in codes))
    failed = dict(_failed(response))
    found = [_with_error(one, failed) for one in resources(request, response)]
    if not codes:
        status = Status.SUCCESS
    elif found and not all("error" in (one.data or {}) for one in found) and failed:
        status = Status.PARTIAL
    else:
        status = Status.FAILURE
    return kind, status, found, detail


def _code_name(code: int) -> str:
    try:
        return ErrorCode(code).name
    except ValueError:
        return str(code)


def _failed(part: Struct, name: str = "") -> Iterator[tuple[str, str]]:
    """What a response has an error for, by name."""
    name = next((str(v) for n in _NAMES if (v := getattr(part, n, None)) is not None), name)
    code = getattr(part, "error_code", 0)
    if code and name:
        yield name, _code_name(code)
    for field in part.FIELDS:
        value = getattr(part, field.name)
        if isinstance(value, list):
            for one in value:
                if isinstance(one, Struct):
                    yield from _failed(one, name)


def _with_error(resource: Resource, failed: Mapping[str, str]) -> Resource:
    error = failed.get(resource.name)
    name = cut(resource.name)
    if error is None:
        return resource._replace(name=name)
    return resource._replace(name=name, data={**(resource.data or {}), "error": error})


def _nothing(_: Any, __: Any) -> Iterable[Resource]:
    return ()


# -- topics and groups -------------------------------------------------------------------------


def _created_topics(request: CreateTopicsRequest, _: Any) -> Iterator[Resource]:
    for topic in request.topics:
        data = {
            "partitions": topic.num_partitions,
            "replication_factor": topic.replication_factor,
            "configs": [cut(f"{one.name}={one.value}") for one in topic.configs],
        }
        yield Resource(_TOPIC, topic.name, data | _checked_only(request))


def _deleted_topics(request: DeleteTopicsRequest, response: Any) -> Iterator[Resource]:
    names = {one.topic_id: one.name for one in response.responses if one.name is not None}
    for topic in request.topics:
        if topic.name is not None:
            yield Resource(_TOPIC, topic.name)
        else:
            id_text = uuid_text(topic.topic_id)
            yield Resource(_TOPIC, names.get(topic.topic_id, id_text), {"topic_id": id_text})
    for name in request.topic_names:
        yield Resource(_TOPIC, name)


def _more_partitions(request: CreatePartitionsRequest, _: Any) -> Iterator[Resource]:
    for topic in request.topics:
        yield Resource(_TOPIC, topic.name, {"partitions": topic.count} | _checked_only(request))


def _trimmed(request: DeleteRecordsRequest, _: Any) -> Iterator[Resource]:
    for topic in request.topics:
        upto = [f"{one.partition_index}:{one.offset}" for one in topic.partitions]
        yield Resource(_TOPIC, topic.name, {"before_offsets": upto})


def _moved(request: AlterPartitionReassignmentsRequest, _: Any) -> Iterator[Resource]:
    for topic in request.topics:
        moves = [f"{one.partition_index}:{one.replicas}" for one in topic.partitions]
        yield Resource(_TOPIC, topic.name, {"replicas": moves})


def _moved_folders(request: AlterReplicaLogDirsRequest, _: Any) -> Iterator[Resource]:
    for folder in request.dirs:
        for topic in folder.topics:
            yield Resource(_TOPIC, topic.name, {"partitions": list(topic.partitions)})


def _elected(request: ElectLeadersRequest, _: Any) -> Iterator[Resource]:
    for topic in request.topic_partitions or ():
        yield Resource(_TOPIC, topic.topic, {"partitions": list(topic.partitions)})


def _deleted_groups(request: DeleteGroupsRequest, _: Any) -> Iterator[Resource]:
    for name in request.groups_names:
        yield Resource(_GROUP, name)


def _deleted_offsets(request: OffsetDeleteRequest, _: Any) -> Iterator[Resource]:
    yield Resource(_GROUP, request.group_id, {"topics": [topic.name for topic in request.topics]})


def _moved_offsets(request: AlterShareGroupOffsetsRequest, _: Any) -> Iterator[Resource]:
    starts = [
        f"{topic.topic_name}-{partition.partition_index}={partition.start_offset}"
        for topic in request.topics
        for partition in topic.partitions
    ]
    yield Resource(_GROUP, request.group_id, {"starts": starts})


def _forgotten_offsets(request: DeleteShareGroupOffsetsRequest, _: Any) -> Iterator[Resource]:
    topics = [topic.topic_name for topic in request.topics]
    yield Resource(_GROUP, request.group_id, {"topics": topics})


def _redriven(request: RedriveRequest, _: Any) -> Iterator[Resource]:
    offsets = [
        f"{topic.name}-{partition.partition_index}:{one.first_offset}-{one.last_offset}"
        for topic in request.topics
        for partition in topic.partitions
        for one in partition.ranges
    ]
    yield Resource(_GROUP, request.group_id, {"offsets": offsets} | _checked_only(request))


# -- settings, users and rights ----------------------------------------------------------------


def _checked_only(request: Any) -> dict[str, bool]:
    return {"validate_only": True} if request.validate_only else {}


def _altered(request: Any, _: Any) -> Iterator[Resource]:
    for resource in request.resources:
        kind = resource.resource_type
        shown = kind in _SHOWN_VALUES
        changes = []
        for one in resource.configs:
            number = getattr(one, "config_operation", 0)
            operation = _OPERATIONS[number] if 0 <= number < len(_OPERATIONS) else str(number)
            value = f"={one.value}" if shown and one.value is not None else ""
            changes.append(cut(f"{operation} {one.name}{value}"))
        data = {"changes": changes} | _checked_only(request)
        yield Resource(_name_of(ConfigResource, kind), resource.resource_name, data)


def _users(request: AlterUserScramCredentialsRequest, _: Any) -> Iterator[Resource]:
    for deleted in request.deletions:
        yield Resource("user", deleted.name, {"change": "delete", "mechanism": deleted.mechanism})
    for made in request.upsertions:
        data = {"change": "set", "mechanism": made.mechanism, "iterations": made.iterations}
        yield Resource("user", made.name, data)


def _new_acls(request: CreateAclsRequest, _: Any) -> Iterator[Resource]:
    for acl in request.creations:
        data = {
            "pattern": _name_of(PatternType, acl.resource_pattern_type),
            "principal": acl.principal,
            "host": acl.host,
            "operation": _name_of(Operation, acl.operation),
            "permission": _name_of(PermissionType, acl.permission_type),
        }
        yield Resource(_name_of(ResourceType, acl.resource_type), acl.resource_name, data)


def _deleted_acls(request: DeleteAclsRequest, response: Any) -> Iterator[Resource]:
    results = response.filter_results
    for place, acl in enumerate(request.filters):
        data = {
            "pattern": _name_of(PatternType, acl.pattern_type_filter),
            "principal": acl.principal_filter,
            "host": acl.host_filter,
            "operation": _name_of(Operation, acl.operation),
            "permission": _name_of(PermissionType, acl.permission_type),
            "deleted": len(results[place].matching_acls) if place < len(results) else 0,
        }
        kind = _name_of(ResourceType, acl.resource_type_filter)
        yield Resource(kind, acl.resource_name_filter or "", data)


def _quotas(request: AlterClientQuotasRequest, _: Any) -> Iterator[Resource]:
    for entry in request.entries:
        name = ",".join(
            f"{one.entity_type}={one.entity_name or '<default>'}" for one in entry.entity
        )
        changes = [f"remove {op.key}" if op.remove else f"{op.key}={op.value}" for op in entry.ops]
        yield Resource("quota", name, {"changes": changes} | _checked_only(request))


def _token(_: CreateDelegationTokenRequest, response: Any) -> Iterator[Resource]:
    owner = f"{response.principal_type}:{response.principal_name}"
    yield Resource("delegation_token", response.token_id, {"owner": owner})


# -- the cluster -------------------------------------------------------------------------------


def _voter(request: AddRaftVoterRequest | RemoveRaftVoterRequest, _: Any) -> Iterator[Resource]:
    yield Resource("voter", str(request.voter_id))


def _broker(request: UnregisterBrokerRequest, _: Any) -> Iterator[Resource]:
    yield Resource("broker", str(request.broker_id))


def _features(request: UpdateFeaturesRequest, _: Any) -> Iterator[Resource]:
    for one in request.feature_updates:
        data = {"level": one.max_version_level} | _checked_only(request)
        yield Resource("feature", one.feature, data)


def _name_of(kinds: Any, number: int) -> str:
    try:
        return str(kinds(number).name).lower()
    except ValueError:
        return str(number)


def _role(request: AlterRoleRequest, _: Any) -> Iterator[Resource]:
    action = _ROLE_ACTIONS.get(request.action, str(request.action))
    members = [cut(member) for member in request.members]
    yield Resource("role", request.name, {"action": action, "members": members})


_ROWS: Final[Mapping[type[Message], tuple[Kind, Resources]]] = {
    AddRaftVoterRequest: (UPDATE, _voter),
    AlterClientQuotasRequest: (UPDATE, _quotas),
    AlterConfigsRequest: (UPDATE, _altered),
    AlterPartitionReassignmentsRequest: (UPDATE, _moved),
    AlterReplicaLogDirsRequest: (UPDATE, _moved_folders),
    AlterRoleRequest: (UPDATE, _role),
    AlterShareGroupOffsetsRequest: (UPDATE, _moved_offsets),
    AlterUserScramCredentialsRequest: (UPDATE, _users),
    CreateAclsRequest: (CREATE, _new_acls),
    CreateDelegationTokenRequest: (CREATE, _token),
    CreatePartitionsRequest: (UPDATE, _more_partitions),
    CreateTopicsRequest: (CREATE, _created_topics),
    DeleteAclsRequest: (DELETE, _deleted_acls),
    DeleteGroupsRequest: (DELETE, _deleted_groups),
    DeleteRecordsRequest: (DELETE, _trimmed),
    DeleteShareGroupOffsetsRequest: (DELETE, _forgotten_offsets),
    DeleteTopicsRequest: (DELETE, _deleted_topics),
    ElectLeadersRequest: (UPDATE, _elected),
    IncrementalAlterConfigsRequest: (UPDATE, _altered),
    OffsetDeleteRequest: (DELETE, _deleted_offsets),
    RedriveRequest: (UPDATE, _redriven),
    RemoveRaftVoterRequest: (UPDATE, _voter),
    UnregisterBrokerRequest: (UPDATE, _broker),
    UpdateFeaturesRequest: (UPDATE, _features),
}
