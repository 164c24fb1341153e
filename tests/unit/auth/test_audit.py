"""The events of the audit log: their shape, their limits, and that no text gets out of its line."""

from __future__ import annotations

import json
from typing import Any

from penstock.auth.audit import (
    CREATE,
    LOG_STARTED,
    LOGON,
    READ,
    RESOURCES_PER_EVENT_MAX,
    TEXT_CHARS_MAX,
    AuditEvent,
    Origin,
    Resource,
    Status,
    encode,
)
from penstock.auth.principal import NOBODY, Principal

ANN = Principal("User", "ann", "10.0.0.7")
HERE = Origin(3, "1.2.3", "run")


def shown(event: AuditEvent) -> dict[str, Any]:
    line = encode(event, 17, HERE)
    assert b"\n" not in line
    assert line.isascii()
    found: dict[str, Any] = json.loads(line)
    return found


def test_what_an_api_activity_says() -> None:
    topic = Resource("topic", "t", {"partitions": 3})
    event = AuditEvent(
        "management",
        CREATE,
        "CreateTopics",
        Status.FAILURE,
        ANN,
        1_000,
        (topic,),
        client_id="app",
        detail="TOPIC_ALREADY_EXISTS",
    )
    assert shown(event) == {
        "class_uid": 6003,
        "class_name": "API Activity",
        "category_uid": 6,
        "category_name": "Application Activity",
        "activity_id": 1,
        "activity_name": "Create",
        "type_uid": 600301,
        "severity_id": 3,
        "severity": "Medium",
        "status_id": 2,
        "status": "Failure",
        "status_detail": "TOPIC_ALREADY_EXISTS",
        "time": 1_000,
        "metadata": {
            "version": "1.3.0",
            "product": {"name": "Penstock", "vendor_name": "Penstock", "version": "1.2.3"},
            "uid": "3-run-17",
            "sequence": 17,
        },
        "actor": {
            "user": {"name": "ann", "uid": "User:ann", "type_id": 1, "type": "User"},
            "app_name": "app",
        },
        "api": {"operation": "CreateTopics"},
        "src_endpoint": {"ip": "10.0.0.7"},
        "resources": [{"type": "topic", "name": "t", "data": {"partitions": 3}}],
        "unmapped": {"category": "management", "node_id": 3},
    }


def test_a_login_names_its_user_and_protocol() -> None:
    fields = {"auth_protocol": "PLAIN", "auth_protocol_id": 99}
    event = AuditEvent("authentication", LOGON, "", Status.SUCCESS, ANN, 5, fields=fields)
    found = shown(event)
    assert (found["class_uid"], found["type_uid"], found["status_id"]) == (3002, 300201, 1)
    assert found["user"]["name"] == "ann"
    assert found["auth_protocol"] == "PLAIN"
    assert "actor" not in found


def test_the_log_tells_of_itself_without_a_user() -> None:
    found = shown(AuditEvent("management", LOG_STARTED, "", Status.SUCCESS, NOBODY, 5))
    assert found["class_uid"] == 6002
    assert not {"actor", "user", "src_endpoint"} & set(found)


def test_what_happens_again_is_counted() -> None:
    event = AuditEvent("denied", READ, "read", Status.FAILURE, ANN, 10, (Resource("topic", "t"),))
    event.again(20)
    event.again(30)
    found = shown(event)
    assert (found["count"], found["start_time"], found["end_time"]) == (3, 10, 30)


def test_names_with_control_characters_stay_in_their_line() -> None:
    name = 'x"}\n{"forged":1}\r\0\x1b[2J\u2028é'
    who = Principal("User", name, "::1")
    resources = (Resource("topic", name, {"a": name}),)
    found = shown(
        AuditEvent(
            "denied", READ, "read", Status.FAILURE, who, 1, resources, client_id=name, detail=name
        )
    )
    assert found["actor"]["user"]["name"] == name
    assert found["actor"]["app_name"] == name
    assert found["resources"] == [{"type": "topic", "name": name, "data": {"a": name}}]


def test_long_texts_and_lists_are_cut() -> None:
    long = "x" * 100_000
    who = Principal(long, long)
    data = {"text": long, "list": [long] * 1_000}
    event = AuditEvent(
        "denied",
        READ,
        "read",
        Status.FAILURE,
        who,
        1,
        (Resource("topic", long, data),),
        client_id=long,
        detail=long,
    )
    found = shown(event)
    cut = "x" * TEXT_CHARS_MAX + "..."
    assert found["resources"][0]["name"] == cut
    assert found["resources"][0]["data"]["text"] == cut
    assert found["resources"][0]["data"]["list"] == [cut] * RESOURCES_PER_EVENT_MAX
    assert found["actor"]["user"]["name"] == found["actor"]["app_name"] == cut
    assert found["status_detail"] == cut
