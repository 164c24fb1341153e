"""The queue of the audit log: what is told as one, dropped, refused, tried again and flushed."""

from __future__ import annotations

import asyncio
import functools
import json
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from penstock.auth.audit import CREATE, RESOURCES_PER_EVENT_MAX, Resource, Status
from penstock.auth.principal import Principal
from penstock.auth.types import Operation, ResourceType
from penstock.base.clock import SystemClock
from penstock.base.errors import ApiError, ErrorCode
from penstock.config.broker_audit import AUTHENTICATION, CONSUME, MANAGEMENT, PUBLISH, AuditSettings
from penstock.serving import audit_log
from penstock.serving.audit_log import AuditLog

ANN = Principal("User", "ann", "10.0.0.7")
NODE = Principal("User", "node", "10.0.0.1")
SECONDS_MAX = 10.0


def on_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    @functools.wraps(test)
    def run(**fixtures: Any) -> None:
        asyncio.run(test(**fixtures))

    return run


class Topic:
    """Takes events unless it fails."""

    def __init__(self) -> None:
        self.lines: list[dict[str, Any]] = []
        self.batches: list[int] = []
        self.fails = False
        self.tries = 0

    async def write(self, values: list[bytes]) -> None:
        self.tries += 1
        if self.fails:
            raise ApiError(ErrorCode.NOT_ENOUGH_REPLICAS)
        self.batches.append(sum(map(len, values)))
        self.lines += map(json.loads, values)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("LINGER_S", "RETRY_S", "RETRY_S_MAX"):
        monkeypatch.setattr(audit_log, name, 0.001)


def made(topic: Topic, **settings: Any) -> AuditLog:
    settings = {f"penstock_audit_{name}": value for name, value in settings.items()}
    return AuditLog(AuditSettings(**settings), 1, "run", topic.write, SystemClock())


def deny(audit: AuditLog, name: str, who: Principal = ANN) -> None:
    audit.denied(who, Operation.WRITE, ResourceType.TOPIC, name)


def create(audit: AuditLog, *names: str) -> None:
    resources = [Resource("topic", name) for name in names]
    audit.managed(ANN, "CreateTopics", CREATE, Status.SUCCESS, resources)


async def until(condition: Any) -> None:
    async with asyncio.timeout(SECONDS_MAX):
        while not condition():
            await asyncio.sleep(0.001)


async def flushed(audit: AuditLog) -> None:
    audit.start()
    await audit.stop()


@on_loop
async def test_what_is_denied_again_is_one_event() -> None:
    topic = Topic()
    audit = made(topic)
    for name in ("a", "b", "a", "a"):
        deny(audit, name)
    deny(audit, "a", NODE)
    await flushed(audit)
    first, *denied, last = topic.lines
    assert [(line["resources"][0]["name"], line.get("count", 1)) for line in denied] == [
        ("a", 3),
        ("b", 1),
        ("a", 1),
    ]
    assert (first["activity_name"], last["activity_name"]) == ("Start", "Stop")
    assert (audit.written, audit.waiting, audit.dropped) == (5, 0, 0)
    assert [line["metadata"]["sequence"] for line in topic.lines] == [1, 2, 3, 4, 5]


@on_loop
async def test_a_full_queue_drops_counts_and_says_how_many(
    caplog: pytest.LogCaptureFixture,
) -> None:
    topic = Topic()
    audit = made(topic, queue_max_events=3)
    for number in range(10):
        deny(audit, f"t{number}")
    assert (audit.waiting, audit.dropped) == (3, 7)
    assert "events of the audit log are lost" in caplog.text
    audit.require(MANAGEMENT, ANN)  # dropping refuses nothing
    await flushed(audit)
    assert "7 events are lost before this one" in [
        line.get("status_detail") for line in topic.lines
    ]


@on_loop
async def test_a_wide_event_counts_for_each_resource_and_is_told_in_parts() -> None:
    topic = Topic()
    count = 2 * RESOURCES_PER_EVENT_MAX + 1
    audit = made(topic, queue_max_events=count)
    create(audit, *(f"t{number}" for number in range(count)))
    deny(audit, "one too many")
    assert (audit.waiting, audit.dropped) == (3, 1)
    await flushed(audit)
    sizes = [len(line["resources"]) for line in topic.lines if "resources" in line]
    assert sizes == [RESOURCES_PER_EVENT_MAX, RESOURCES_PER_EVENT_MAX, 1]


@on_loop
async def test_refuse_lets_nothing_be_done_unseen() -> None:
    topic = Topic()
    topic.fails = True
    audit = made(
        topic,
        queue_max_events=2,
        overflow="refuse",
        categories=(MANAGEMENT, PUBLISH),
        excluded_principals=("User:node",),
    )
    audit.start()  # one event of its own
    create(audit, "a")
    for category in (MANAGEMENT, PUBLISH):
        with pytest.raises(ApiError) as refused:
            audit.require(category, ANN)
        assert refused.value.code == ErrorCode.POLICY_VIOLATION
    audit.require(CONSUME, ANN)  # nobody wants to see it
    audit.require(MANAGEMENT, NODE)  # somebody must be able to mend it
    create(audit, "had begun")
    assert (audit.refused, audit.dropped) == (2, 0)
    await until(lambda: topic.tries > 2)
    with pytest.raises(ApiError):
        audit.require(MANAGEMENT, ANN)  # also while they are on their way
    topic.fails = False
    await until(lambda: not audit.waiting)
    audit.require(MANAGEMENT, ANN)
    names = [line["resources"][0]["name"] for line in topic.lines if "resources" in line]
    assert names == ["a", "had begun"]
    await audit.stop()


@on_loop
async def test_nodes_get_in_while_logins_are_refused() -> None:
    audit = made(Topic(), queue_max_events=1, overflow="refuse")
    audit.is_node = lambda who: who is NODE
    audit.login(ANN, "SASL", "PLAIN")
    with pytest.raises(ApiError):
        audit.require_login(ANN)
    audit.require_login(NODE)


@on_loop
async def test_what_is_excluded_is_not_written_but_for_logins_that_fail() -> None:
    topic = Topic()
    audit = made(topic, excluded_principals=("User:node",))
    deny(audit, "t", NODE)
    audit.login(NODE, "SASL", "PLAIN")
    audit.login_failed("node", "10.0.0.9", "SASL", "PLAIN", "wrong")
    await flushed(audit)
    assert [line.get("status_detail") for line in topic.lines] == [None, "wrong", None]


@on_loop
async def test_only_categories_that_are_on_are_written() -> None:
    topic = Topic()
    audit = made(topic, categories=(AUTHENTICATION,))
    deny(audit, "t")
    create(audit, "t")
    audit.login(ANN, "SASL", "PLAIN")
    await flushed(audit)
    assert [line["class_uid"] for line in topic.lines] == [6002, 3002, 6002]


@on_loop
async def test_a_topic_that_fails_is_tried_again_and_nothing_is_lost() -> None:
    topic = Topic()
    topic.fails = True
    audit = made(topic)
    create(audit, "t")
    audit.start()
    await until(lambda: topic.tries >= 3)
    topic.fails = False
    await until(lambda: audit.written == 2)
    await audit.stop()
    assert audit.dropped == 0


@on_loop
async def test_a_stop_does_not_wait_for_ever() -> None:
    topic = Topic()
    topic.fails = True
    audit = made(topic)
    create(audit, "t")
    audit.start()
    async with asyncio.timeout(SECONDS_MAX):
        await audit.stop(0.05)
    assert audit.dropped == 3  # with its own start and stop


@on_loop
async def test_a_write_is_bounded_in_bytes() -> None:
    topic = Topic()
    audit = made(topic, queue_max_events=100_000)
    for number in range(20):
        create(audit, *(f"{number}-{'x' * 250}" for _ in range(RESOURCES_PER_EVENT_MAX)))
    await flushed(audit)
    assert len(topic.batches) > 1
    assert max(topic.batches) <= audit_log.BYTES_PER_WRITE_MAX
