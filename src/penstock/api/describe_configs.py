"""DescribeConfigs (32), versions 1 to 4: settings of topics, brokers and groups, with sources and
synonyms.

A topic, broker or group (be there one or not) has all its settings described, the broker without a
name the cluster-wide dynamic ones. The chain of synonyms begins with what is in force. Unlike
Kafka, a coarser synonym (`log.retention.hours` for `retention.ms`) is shown also when only it is
set, since then it is the source.
"""

from __future__ import annotations

from penstock.api.registry import Request, handler
from penstock.base.errors import ApiError, ErrorCode
from penstock.config.layers import ConfigEntry
from penstock.metadata.config_control import check_group_name, unsupported_resource
from penstock.metadata.image import ResourceType
from penstock.metadata.names import check_topic_name
from penstock.serving.broker import Broker
from penstock.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)


@handler(DescribeConfigsRequest, DescribeConfigsResponse)
def describe_configs(
    broker: Broker, request: Request[DescribeConfigsRequest]
) -> DescribeConfigsResponse:
    body = request.body
    return DescribeConfigsResponse(results=[_described(broker, r, body) for r in body.resources])


def _described(
    broker: Broker, resource: DescribeConfigsResource, body: DescribeConfigsRequest
) -> DescribeConfigsResult:
    result = DescribeConfigsResult(
        resource_type=resource.resource_type, resource_name=resource.resource_name
    )
    try:
        entries = _entries(broker, resource.resource_type, resource.resource_name)
    except ApiError as e:
        result.error_code, result.error_message = e.code, e.message
        return result
    wanted = set(resource.configuration_keys or ())
    result.configs = [
        _config(entry, body) for entry in entries if not wanted or entry.name in wanted
    ]
    return result


def _entries(broker: Broker, resource_type: int, name: str) -> list[ConfigEntry]:
    if resource_type == ResourceType.TOPIC:
        check_topic_name(name)
        broker.replicas.topic(name)
        return broker.settings.describe_topic(broker.metadata.topic_config(name))
    if resource_type == ResourceType.GROUP:
        check_group_name(name)
        return broker.settings.describe_group(broker.metadata.config(resource_type, name))
    if resource_type != ResourceType.BROKER:
        raise unsupported_resource(resource_type)
    if not name:
        return broker.settings.describe_cluster()
    if name != str(broker.node_id):
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            f"{name!r} is not the broker that was asked: ask it itself, or ask this one as "
            f"{broker.node_id}",
        )
    return broker.settings.describe_broker()


def _config(entry: ConfigEntry, body: DescribeConfigsRequest) -> DescribeConfigsResourceResult:
    return DescribeConfigsResourceResult(
        name=entry.name,
        value=entry.value,
        read_only=entry.read_only,
        config_source=entry.source,
        is_sensitive=entry.sensitive,
        synonyms=[
            DescribeConfigsSynonym(name=name, value=value, source=source)
            for name, value, source in (entry.synonyms if body.include_synonyms else ())
        ],
        config_type=entry.type,
        documentation=entry.documentation if body.include_documentation else None,
    )
