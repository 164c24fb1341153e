"""ListGroups (16), versions 0 to 5: the groups that this node coordinates, by state and type.

While a shard is being loaded the answer is COORDINATOR_LOAD_IN_PROGRESS, since its groups are not
known yet.
"""

from __future__ import annotations

from penstock.api.groups import to_all_shards
from penstock.api.registry import Request, handler
from penstock.api.shards import together
from penstock.base.errors import ErrorCode
from penstock.serving.services import Services
from penstock.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse


@handler(ListGroupsRequest, ListGroupsResponse)
async def list_groups(
    services: Services, request: Request[ListGroupsRequest]
) -> ListGroupsResponse:
    answers = await together(to_all_shards(services, request, ListGroupsResponse))
    for answer in answers:
        # A shard that has moved to another node is asked there.
        if answer.error_code not in (ErrorCode.NONE, ErrorCode.NOT_COORDINATOR):
            return ListGroupsResponse(error_code=answer.error_code)
    return ListGroupsResponse(groups=[group for answer in answers for group in answer.groups])
