"""Requests that change the cluster, with an eye on them for the audit log.

They are told where the client is connected, when they are answered: one that this node passes on to
the active controller comes there in an Envelope, which is not told again. What the controller
denies is told there, by its rights.
"""

from __future__ import annotations

import inspect
from typing import Any, Final, cast

from penstock.api.registry import Api, Request
from penstock.base.steps import Steps
from penstock.net.turn import in_turns
from penstock.serving.audit_log import AuditLog
from penstock.serving.audited_requests import told
from penstock.wire.apis import ApiKey
from penstock.wire.schema import Message

_OF_BROKERS: Final = frozenset(
    {
        ApiKey.ALTER_REPLICA_LOG_DIRS,
        ApiKey.ALTER_SHARE_GROUP_OFFSETS,
        ApiKey.DELETE_GROUPS,
        ApiKey.DELETE_RECORDS,
        ApiKey.DELETE_SHARE_GROUP_OFFSETS,
        ApiKey.OFFSET_DELETE,
        ApiKey.REDRIVE,
    }
)
"""What changes something without the controller."""
_ONLY_ASK: Final = frozenset(
    {
        ApiKey.DESCRIBE_QUORUM,
        ApiKey.LIST_PARTITION_REASSIGNMENTS,
        ApiKey.DESCRIBE_DELEGATION_TOKEN,
    }
)


def changes_cluster(api: Api) -> bool:
    """Every request to the controller does, unless it is known only to ask."""
    return (api.on_controller and api.key not in _ONLY_ASK) or api.key in _OF_BROKERS


async def audited(audit: AuditLog, request: Request[Any], response: Any) -> Message:
    """What a handler has returned for `request`, when it is there and told."""
    if inspect.isawaitable(response):
        response = await response
    elif inspect.isgenerator(response):
        response = await in_turns(cast("Steps[Message]", response))
    found: Message = response
    kind, status, resources, detail = told(request.body, found)
    operation = type(request.body).__name__.removesuffix("Request")
    audit.managed(
        request.principal,
        operation,
        kind,
        status,
        resources,
        client_id=request.client_id,
        detail=detail,
    )
    return found
