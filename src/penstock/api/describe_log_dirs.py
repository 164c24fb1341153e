"""DescribeLogDirs (35), versions 1 to 5: how much the partitions take in the data folder.

A replica that was stopped, since it broke an invariant, is listed as a folder of its own that has
failed. Partitions that are not here are left out, as Kafka does; the metadata log is not listed.
"""

from __future__ import annotations

from penstock.api.registry import Request, handler
from penstock.base.errors import ApiError
from penstock.serving.services import Services
from penstock.wire.messages.describe_log_dirs import (
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)


@handler(DescribeLogDirsRequest, DescribeLogDirsResponse)
async def describe_log_dirs(
    services: Services, request: Request[DescribeLogDirsRequest]
) -> DescribeLogDirsResponse:
    try:
        results = await services.log_dirs.describe(request.principal, request.body.topics)
    except ApiError as e:
        return DescribeLogDirsResponse(error_code=e.code)
    return DescribeLogDirsResponse(results=results)
