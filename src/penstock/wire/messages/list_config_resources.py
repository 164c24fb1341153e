"""ListConfigResources: the resources that have settings (in version 0: client metrics only)."""

from __future__ import annotations

from penstock.wire.apis import ApiKey
from penstock.wire.schema import Message, Struct, array, int8, int16, int32, string


class ListConfigResourcesRequest(
    Message, api_key=ApiKey.LIST_CONFIG_RESOURCES, versions="0-1", flexible="0+"
):
    resource_types: list[int] = array(int8, "1+")


class ConfigResource(Struct):
    resource_name: str = string("0+")
    resource_type: int = int8("1+", default=16, ignorable=True)


class ListConfigResourcesResponse(
    Message, api_key=ApiKey.LIST_CONFIG_RESOURCES, versions="0-1", flexible="0+"
):
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    config_resources: list[ConfigResource] = array(ConfigResource, "0+")
