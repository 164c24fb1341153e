"""AlterRole: one change of a role, ours. Kafka has no such API (docs/adr/0023)."""

from __future__ import annotations

from enum import IntEnum

from penstock.wire.apis import ApiKey
from penstock.wire.schema import Message, array, int8, int16, int32, string


class RoleAction(IntEnum):
    CREATE = 0
    DELETE = 1
    ADD_MEMBERS = 2
    REMOVE_MEMBERS = 3


class AlterRoleRequest(Message, api_key=ApiKey.ALTER_ROLE, versions="0", flexible="0+"):
    name: str = string("0+")
    action: int = int8("0+")
    members: list[str] = array(string, "0+")


class AlterRoleResponse(Message, api_key=ApiKey.ALTER_ROLE, versions="0", flexible="0+"):
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+")
