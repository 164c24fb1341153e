"""DeleteGroups (42), versions 0 to 2: forget groups without members, with their offsets."""

from __future__ import annotations

from penstock.api.groups import to_shard
from penstock.api.registry import Request, handler
from penstock.api.shards import together
from penstock.serving.services import Services
from penstock.wire.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse


@handler(DeleteGroupsRequest, DeleteGroupsResponse)
async def delete_groups(
    services: Services, request: Request[DeleteGroupsRequest]
) -> DeleteGroupsResponse:
    # A name that is given twice is deleted, and answered, once.
    names = dict.fromkeys(request.body.groups_names)
    answers = await together(
        to_shard(
            services,
            request,
            name,
            DeleteGroupsRequest(groups_names=[name]),
            DeleteGroupsResponse,
        )
        for name in names
    )
    return DeleteGroupsResponse(results=[r for answer in answers for r in answer.results])
