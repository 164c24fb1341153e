"""DescribeConfigs (32), versions 1 to 4: settings of topics, brokers, groups and subscriptions to
clients' metrics, with sources and synonyms.

A topic, broker, group or subscription (be there one of the last two or not) has all its settings
described, the broker without a name the cluster-wide dynamic ones. Those of Kafka's that have no
effect here are described too; their documentation says so. The chain of synonyms begins with what
is in force. Unlike Kafka, a coarser synonym (`log.retention.hours` for `retention.ms`) is shown
also when only it is set, since then it is the source.
"""

from __future__ import annotations

from penstock.api.registry import Request, handler
from penstock.auth.principal import Principal
from penstock.base.errors import ApiError
from penstock.base.steps import Steps
from penstock.config.layers import ConfigEntry
from penstock.serving.services import Services
from penstock.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)

RESOURCES_AT_ONCE_MAX = 4
"""All settings of a broker take about two milliseconds, those of a topic a quarter of one."""


@handler(DescribeConfigsRequest, DescribeConfigsResponse, at_once_max=RESOURCES_AT_ONCE_MAX)
def describe_configs(
    services: Services, request: Request[DescribeConfigsRequest]
) -> Steps[DescribeConfigsResponse]:
    response = DescribeConfigsResponse()
    for resource in request.body.resources:
        response.results.append(_described(services, request.principal, resource, request.body))
        yield
    return response


def _described(
    services: Services,
    principal: Principal,
    resource: DescribeConfigsResource,
    body: DescribeConfigsRequest,
) -> DescribeConfigsResult:
    result = DescribeConfigsResult(
        resource_type=resource.resource_type, resource_name=resource.resource_name
    )
    try:
        entries = services.settings.describe(
            principal, resource.resource_type, resource.resource_name
        )
    except ApiError as e:
        result.error_code, result.error_message = e.code, e.message
        return result
    wanted = set(resource.configuration_keys or ())
    result.configs = [
        _config(entry, body) for entry in entries if not wanted or entry.name in wanted
    ]
    return result


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
