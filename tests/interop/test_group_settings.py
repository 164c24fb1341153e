"""Settings of groups, as Apache Kafka takes and shows them (`--target kafka`)."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.base.errors import ErrorCode as E
from penstock.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from penstock.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from penstock.wire.messages.list_config_resources import ListConfigResourcesRequest
from support.group_calls import beat, connected
from support.groups import SESSION_SECONDS
from support.helpers import TopicMaker
from support.process import BrokerProcess
from support.raw import RawClient
from support.waiting import eventually

GROUP = 32
SET, DELETE, APPEND = 0, 1, 2
OF_GROUP, OF_FILE, DEFAULT = 8, 4, 5
SESSION, HEARTBEAT, ASSIGNMENT = (
    "consumer.session.timeout.ms",
    "consumer.heartbeat.interval.ms",
    "consumer.assignment.interval.ms",
)


def alter(client: RawClient, group: str, name: str, value: str | None, op: int = SET) -> int:
    change = AlterableConfig(name=name, config_operation=op, value=value)
    resource = AlterConfigsResource(resource_type=GROUP, resource_name=group, configs=[change])
    [answer] = client.call(IncrementalAlterConfigsRequest(resources=[resource]), 1).responses
    return int(answer.error_code)


def described(client: RawClient, group: str) -> Any:
    resource = DescribeConfigsResource(resource_type=GROUP, resource_name=group)
    request = DescribeConfigsRequest(resources=[resource], include_synonyms=True)
    [answer] = client.call(request, 4).results
    return answer


def shown(client: RawClient, group: str, name: str) -> tuple[str, int, list[tuple[str, str, int]]]:
    """The value, its source, and what lies beneath."""
    [found] = [c for c in described(client, group).configs if c.name == name]
    return found.value, found.config_source, [(s.name, s.value, s.source) for s in found.synonyms]


def with_settings(client: RawClient) -> set[str]:
    answer = client.call(ListConfigResourcesRequest(resource_types=[GROUP]), 1)
    return {resource.resource_name for resource in answer.config_resources}


def test_a_groups_settings_are_set_shown_and_deleted(
    group_node: BrokerProcess, group_id: str
) -> None:
    with connected(group_node, group_id) as client:
        below = [
            (f"group.{HEARTBEAT}", "200", OF_FILE),
            (f"group.{HEARTBEAT}", "5000", DEFAULT),
        ]
        assert shown(client, group_id, HEARTBEAT) == ("200", OF_FILE, below)
        assert group_id not in with_settings(client)
        assert alter(client, group_id, HEARTBEAT, "300") == 0
        mine = [(HEARTBEAT, "300", OF_GROUP), *below]
        eventually(lambda: shown(client, group_id, HEARTBEAT) == ("300", OF_GROUP, mine))
        assert group_id in with_settings(client)
        assert alter(client, group_id, HEARTBEAT, None, DELETE) == 0
        eventually(lambda: shown(client, group_id, HEARTBEAT) == ("200", OF_FILE, below))
        eventually(lambda: group_id not in with_settings(client))


@pytest.mark.parametrize(
    ("name", "value", "op", "code"),
    [
        (SESSION, "499", SET, E.INVALID_CONFIG),
        (SESSION, "60001", SET, E.INVALID_CONFIG),
        (SESSION, "soon", SET, E.INVALID_CONFIG),
        (SESSION, "-1", SET, E.INVALID_CONFIG),
        (SESSION, None, SET, E.INVALID_REQUEST),
        (SESSION, "1000", APPEND, E.INVALID_CONFIG),
        (HEARTBEAT, "99", SET, E.INVALID_CONFIG),
        (HEARTBEAT, "15001", SET, E.INVALID_CONFIG),
        (HEARTBEAT, "2000", SET, E.INVALID_CONFIG),
        (ASSIGNMENT, "-1", SET, E.INVALID_CONFIG),
        (ASSIGNMENT, "15001", SET, E.INVALID_CONFIG),
        (ASSIGNMENT, "0", SET, E.NONE),
        ("nonsense", "1", SET, E.INVALID_CONFIG),
        ("nonsense", None, DELETE, E.NONE),
    ],
)
def test_values_in_and_out_of_bounds(
    group_node: BrokerProcess, group_id: str, name: str, value: str | None, op: int, code: E
) -> None:
    with RawClient(group_node.host, group_node.port) as client:
        assert alter(client, group_id, name, value, op) == code


def test_a_group_has_a_name(group_node: BrokerProcess) -> None:
    with RawClient(group_node.host, group_node.port) as client:
        assert alter(client, "", SESSION, "1000") == E.INVALID_REQUEST
        assert described(client, "").error_code == E.INVALID_REQUEST
        assert alter(client, "any name/at all", ASSIGNMENT, "10") == 0


def test_members_are_told_and_watched_by_the_groups_own_times(
    group_node: BrokerProcess, group_topic: TopicMaker, group_id: str
) -> None:
    topic = group_topic()
    with connected(group_node, group_id) as client:
        assert alter(client, group_id, HEARTBEAT, "350") == 0
        eventually(lambda: shown(client, group_id, HEARTBEAT)[0] == "350")
        answer = beat(client, group_id, "m", 0, subscribed_topic_names=[topic])
        assert (answer.error_code, answer.heartbeat_interval_ms) == (0, 350)
        assert alter(client, group_id, SESSION, "600") == 0
        eventually(lambda: shown(client, group_id, SESSION)[0] == "600")
        assert beat(client, group_id, "m", answer.member_epoch).error_code == 0

        def gone() -> bool:
            other = beat(client, group_id, "other", 0, subscribed_topic_names=[topic])
            return bool(other.assignment and other.assignment.topic_partitions)

        # The other gets the only partition when the first is given up.
        eventually(gone, SESSION_SECONDS)
