"""Share groups in tests: the broker's settings, groups, and members that are confluent-kafka's."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import Any

from confluent_kafka import AcknowledgeType, Message, ShareConsumer  # type: ignore[attr-defined]

from penstock.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)

from .raw import RawClient
from .waiting import CALL_SECONDS_MAX

GROUP = 32
"""Kafka's number for the settings of groups."""
ACCEPT, RELEASE, REJECT = (
    AcknowledgeType.ACCEPT,
    AcknowledgeType.RELEASE,
    AcknowledgeType.REJECT,
)
SHARE_SETTINGS = {
    "share.coordinator.state.topic.num.partitions": "3",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "offsets.topic.num.partitions": "3",
    "group.share.heartbeat.interval.ms": "500",
    "group.share.min.heartbeat.interval.ms": "500",
    "group.share.assignment.interval.ms": "0",
    "group.share.min.record.lock.duration.ms": "1000",
}
CLUSTER_SETTINGS = {
    "share.coordinator.state.topic.replication.factor": "3",
    "share.coordinator.state.topic.min.isr": "2",
    "offsets.topic.replication.factor": "3",
}


def set_group(client: RawClient, group: str, **settings: str) -> None:
    """Give a group settings of its own, with `_` for `.`."""
    changes = [
        AlterableConfig(name=name.replace("_", "."), config_operation=0, value=value)
        for name, value in settings.items()
    ]
    resource = AlterConfigsResource(resource_type=GROUP, resource_name=group, configs=changes)
    [answer] = client.call(IncrementalAlterConfigsRequest(resources=[resource]), 1).responses
    assert answer.error_code == 0, answer.error_message


class ShareMember:
    """A member of a share group that says itself what becomes of each message."""

    def __init__(self, bootstrap: str, group: str, *topics: str, **settings: Any) -> None:
        base = {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "share.acknowledgement.mode": "explicit",
            "log_level": 2,
        }
        named = {name.replace("_", "."): value for name, value in settings.items()}
        self.client = ShareConsumer(base | named)
        self.client.subscribe(list(topics))

    def poll(self, seconds: float = 0.2) -> list[Message]:
        found = list(self.client.poll(timeout=seconds))
        for message in found:
            assert message.error() is None, message.error()
        return found

    def take(self, count: int, seconds: float = CALL_SECONDS_MAX) -> list[Message]:
        """At least so many messages, each accepted."""
        deadline = time.monotonic() + seconds
        got: list[Message] = []
        while len(got) < count:
            assert time.monotonic() < deadline, f"{len(got)} of {count} messages in {seconds} s"
            found = self.poll()
            for message in found:
                self.client.acknowledge(message, ACCEPT)
            if found:
                self.client.commit_sync(timeout=CALL_SECONDS_MAX)
            got += found
        return got

    def next(self, seconds: float = CALL_SECONDS_MAX) -> list[Message]:
        """The next messages, which are to be acknowledged."""
        deadline = time.monotonic() + seconds
        while not (found := self.poll()):
            assert time.monotonic() < deadline, f"nothing in {seconds} s"
        return found

    def say(self, kind: Any, *messages: Message) -> None:
        """Acknowledge these and wait for the broker."""
        for message in messages:
            self.client.acknowledge(message, kind)
        self.client.commit_sync(timeout=CALL_SECONDS_MAX)

    def close(self) -> None:
        self.client.close()


@contextlib.contextmanager
def share_member(
    bootstrap: str, group: str, *topics: str, **settings: Any
) -> Iterator[ShareMember]:
    member = ShareMember(bootstrap, group, *topics, **settings)
    try:
        yield member
    finally:
        member.close()


def values(messages: list[Message]) -> list[bytes]:
    return [message.value() or b"" for message in messages]


def counts(messages: list[Message]) -> set[int | None]:
    """How often they were delivered, as the broker says."""
    return {message.delivery_count() for message in messages}
