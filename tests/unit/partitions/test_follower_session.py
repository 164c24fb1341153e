"""A follower's side of a fetch session: how much one request names."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from penstock.config.broker_config import BrokerConfig
from penstock.partitions import follower_session
from penstock.partitions.follower_session import FollowerSession, Key
from penstock.wire.messages.fetch import FetchRequest

VERSION = 17
TOPIC = b"t" * 16
SESSION = 7
CONFIG = BrokerConfig()


def partition_of(_key: Key) -> Any:
    log = SimpleNamespace(
        log_end_offset=0, log_start_offset=0, epochs=SimpleNamespace(latest_epoch=-1)
    )
    return SimpleNamespace(leader_epoch=1, log=log)


def asked(session: FollowerSession) -> tuple[list[int], int]:
    """The partitions that the next request names, and how long the leader may wait."""
    body = session.request(VERSION, 1, CONFIG, partition_of)
    request = FetchRequest.decode(body, VERSION)
    named = [p.partition for topic in request.topics for p in topic.partitions]
    return named, request.max_wait_ms


@pytest.fixture
def session(monkeypatch: pytest.MonkeyPatch) -> FollowerSession:
    monkeypatch.setattr(follower_session, "NAMED_PER_REQUEST_MAX", 2)
    session = FollowerSession(1)
    for index in range(5):
        session.name((TOPIC, index))
    return session


def test_many_partitions_are_named_a_few_at_a_time(session: FollowerSession) -> None:
    assert asked(session) == ([0, 1], 0), "there is more to say: no waiting"
    assert session.answered(0, SESSION)
    session.name((TOPIC, 0))
    assert asked(session) == ([2, 3], 0)
    assert session.answered(0, SESSION)
    assert asked(session) == ([4, 0], CONFIG.replica_fetch_wait_max_ms)
    assert session.answered(0, SESSION)
    assert session.wanted
    assert asked(session) == ([], CONFIG.replica_fetch_wait_max_ms)


def test_without_a_session_every_request_names_all(session: FollowerSession) -> None:
    asked(session)
    assert session.answered(0, 0)
    named, wait_ms = asked(session)
    assert sorted(named) == list(range(5))
    assert wait_ms == CONFIG.replica_fetch_wait_max_ms


def test_without_a_session_what_was_left_is_not_named_again(session: FollowerSession) -> None:
    named, _ = asked(session)
    session.leave((TOPIC, named[0]))
    assert session.answered(0, 0)
    assert named[0] not in asked(session)[0]


def test_a_session_that_begins_anew_names_all_again(session: FollowerSession) -> None:
    asked(session)
    session.reset([(TOPIC, index) for index in range(3)])
    assert asked(session) == ([0, 1], 0)
    assert session.answered(0, SESSION)
    assert asked(session)[0] == [2]
