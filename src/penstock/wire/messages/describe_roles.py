"""DescribeRoles: the roles and their members, ours. Kafka has no such API (docs/adr/0023)."""

from __future__ import annotations

from penstock.wire.apis import ApiKey
from penstock.wire.schema import Message, Struct, array, int16, int32, string


class DescribeRolesRequest(Message, api_key=ApiKey.DESCRIBE_ROLES, versions="0", flexible="0+"):
    names: list[str] | None = array(string, "0+", nullable="0+")


class DescribedRole(Struct):
    name: str = string("0+")
    members: list[str] = array(string, "0+")


class DescribeRolesResponse(Message, api_key=ApiKey.DESCRIBE_ROLES, versions="0", flexible="0+"):
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+")
    roles: list[DescribedRole] = array(DescribedRole, "0+")
