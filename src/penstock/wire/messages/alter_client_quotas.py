"""AlterClientQuotas: set or remove quotas of users, client ids and addresses."""

from __future__ import annotations

from penstock.wire.apis import ApiKey
from penstock.wire.schema import Message, Struct, array, boolean, float64, int16, int32, string


class EntityData(Struct):
    entity_type: str = string("0+")
    entity_name: str | None = string("0+", nullable="0+")


class OpData(Struct):
    key: str = string("0+")
    value: float = float64("0+")
    remove: bool = boolean("0+")


class RequestEntryData(Struct):
    entity: list[EntityData] = array(EntityData, "0+")
    ops: list[OpData] = array(OpData, "0+")


class AlterClientQuotasRequest(
    Message, api_key=ApiKey.ALTER_CLIENT_QUOTAS, versions="0-1", flexible="1+"
):
    entries: list[RequestEntryData] = array(RequestEntryData, "0+")
    validate_only: bool = boolean("0+")


class ResponseEntryData(Struct):
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+")
    entity: list[EntityData] = array(EntityData, "0+")


class AlterClientQuotasResponse(
    Message, api_key=ApiKey.ALTER_CLIENT_QUOTAS, versions="0-1", flexible="1+"
):
    throttle_time_ms: int = int32("0+")
    entries: list[ResponseEntryData] = array(ResponseEntryData, "0+")
