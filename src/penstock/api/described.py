"""What the Describe handlers of all but classic groups share: groups described in one answer."""

from __future__ import annotations

from typing import Any

from penstock.api.groups import to_shard
from penstock.api.registry import Request
from penstock.api.shards import together
from penstock.base.errors import ErrorCode
from penstock.serving.services import Services


async def describe_each(
    services: Services,
    request: Request[Any],
    response: type[Any],
    described: type[Any],
    *,
    is_served: bool,
) -> Any:
    """The `response` with a description of each group of the request, or with what refuses it."""
    group_ids = request.body.group_ids
    if not is_served:
        code = ErrorCode.UNSUPPORTED_VERSION
        return response(groups=[described(group_id=id_, error_code=code) for id_ in group_ids])
    unnamed = [
        described(group_id="", error_code=ErrorCode.INVALID_GROUP_ID)
        for group_id in group_ids
        if not group_id
    ]
    asked = type(request.body)
    answers = await together(
        to_shard(services, request, group_id, asked(group_ids=[group_id]), response)
        for group_id in group_ids
        if group_id
    )
    groups = unnamed + [group for answer in answers for group in answer.groups]
    if request.body.include_authorized_operations:
        for group in groups:
            if not group.error_code:
                group.authorized_operations = services.groups.operations(
                    request.principal, group.group_id
                )
    return response(groups=groups)
