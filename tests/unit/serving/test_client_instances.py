"""Clients that push metrics: Kafka's rules about who is asked for what, and when it may come."""

from __future__ import annotations

import itertools

import pytest

from penstock.base.errors import ApiError
from penstock.base.errors import ErrorCode as E
from penstock.base.ids import ZERO_UUID, Uuid, parse_uuid
from penstock.config.client_metrics_config import ClientMetricsConfig
from penstock.serving.client_instances import (
    INSTANCES_MAX,
    SILENT_MS_MIN,
    Client,
    ClientInstances,
    Instance,
    Push,
)

CLIENT = Client("orders-1", "apache-kafka-java", "4.3.1", "10.0.0.7", 4711)
ID = parse_uuid("_xYzbm2iSM-kgbG5m9-2Nw")
INTERVAL = 1_000


class Rig:
    def __init__(self, *subscriptions: ClientMetricsConfig) -> None:
        self.now_ms = 0
        ids = itertools.count(2)
        self.instances = ClientInstances(lambda: self.now_ms, lambda: next(ids).to_bytes(16), 100)
        if subscriptions:
            self.instances.subscribe(subscriptions)

    def ask(self, instance_id: Uuid = ID, client: Client = CLIENT) -> Instance:
        return self.instances.ask(instance_id, client)

    def push(self, subscription_id: int, **how: object) -> E:
        given = {"instance_id": ID, "terminating": False, "compression": 0, "size": 10} | how
        try:
            self.instances.push(Push(subscription_id=subscription_id, **given), CLIENT)  # type: ignore[arg-type]
        except ApiError as e:
            return e.code
        return E.NONE

    def asks(self) -> E:
        try:
            self.ask()
        except ApiError as e:
            return e.code
        return E.NONE


def wanted(*metrics: str, interval_ms: int = INTERVAL, match: str = "") -> ClientMetricsConfig:
    return ClientMetricsConfig(metrics, interval_ms, (match,) if match else ())


def test_a_client_without_an_id_is_given_one() -> None:
    rig = Rig()
    first, second = rig.ask(ZERO_UUID), rig.ask(ZERO_UUID)
    assert first.id != second.id
    assert ZERO_UUID not in (first.id, second.id)


def test_without_a_subscription_nothing_is_wanted() -> None:
    found = Rig().ask()
    assert (found.metrics, found.interval_ms) == ([], 300_000)
    assert not found.wants("org.apache.kafka.anything")


@pytest.mark.parametrize(
    ("metrics", "interval_ms", "java"),
    [
        ((), 300_000, 2033002481),
        (("*",), 100, -1737195378),
        (("org.apache.kafka.producer.",), 60_000, 1845610959),
        (
            ("org.apache.kafka.producer.", "org.apache.kafka.consumer.", "a", "b", "Aa", "BB"),
            1_000,
            -1795284619,
        ),
        (tuple(f"m{number}" for number in range(1, 15)), 5_000, 1259254380),
    ],
)
def test_subscription_ids_are_those_of_java(
    metrics: tuple[str, ...], interval_ms: int, java: int
) -> None:
    found = Rig(wanted(*metrics, interval_ms=interval_ms)).ask()
    assert found.subscription_id == java


def test_all_subscriptions_that_match_count() -> None:
    rig = Rig(
        wanted("a.", "b.", match="client_id=orders-.*"),
        wanted("b.", "c.", interval_ms=200, match="client_source_address=10\\.0\\..*"),
        wanted("d.", interval_ms=100, match="client_software_version=3.*"),
    )
    found = rig.ask()
    assert set(found.metrics) == {"a.", "b.", "c."}
    assert found.interval_ms == 200
    assert found.wants("a.x")
    assert not found.wants("d.x")
    assert rig.ask(ZERO_UUID, CLIENT._replace(client_id=None)).metrics != found.metrics


def test_one_that_wants_all_wants_nothing_else() -> None:
    found = Rig(wanted("a."), wanted("*")).ask()
    assert found.metrics == ["*"]
    assert found.wants("whatever")


def test_an_interval_above_the_default_is_the_default() -> None:
    assert Rig(wanted("a.", interval_ms=3_600_000)).ask().interval_ms == 300_000


def test_who_asks_before_the_interval_is_over_is_throttled() -> None:
    rig = Rig(wanted("a."))
    assert rig.asks() == E.NONE
    rig.now_ms += INTERVAL - 1
    assert rig.asks() == E.THROTTLING_QUOTA_EXCEEDED
    rig.now_ms += 1
    assert rig.asks() == E.NONE


def test_who_pushes_before_the_interval_is_over_is_throttled() -> None:
    rig = Rig(wanted("a."))
    of = rig.ask().subscription_id
    rig.now_ms += INTERVAL // 2
    assert rig.push(of) == E.NONE  # the first one after asking is spread
    rig.now_ms += INTERVAL // 2
    assert rig.push(of) == E.THROTTLING_QUOTA_EXCEEDED
    assert rig.push(of, terminating=True) == E.NONE  # the last one may come early


def test_nothing_comes_after_the_last_push() -> None:
    rig = Rig(wanted("a."))
    of = rig.ask().subscription_id
    assert rig.push(of, terminating=True) == E.NONE
    rig.now_ms += INTERVAL
    assert rig.push(of) == E.INVALID_REQUEST


def test_each_refusal_has_its_code() -> None:
    rig = Rig(wanted("a."))
    of = rig.ask().subscription_id
    assert rig.push(of + 1) == E.UNKNOWN_SUBSCRIPTION_ID
    assert rig.asks() == E.NONE  # at once, to learn what has changed
    assert rig.push(of, compression=9) == E.THROTTLING_QUOTA_EXCEEDED
    rig.now_ms += INTERVAL
    assert rig.push(of, compression=9) == E.UNSUPPORTED_COMPRESSION_TYPE
    assert rig.asks() == E.NONE
    rig.now_ms += INTERVAL
    assert rig.push(of, size=101) == E.TELEMETRY_TOO_LARGE
    assert rig.asks() == E.THROTTLING_QUOTA_EXCEEDED
    for reserved in (ZERO_UUID, bytes(15) + b"\x01"):
        assert rig.push(of, instance_id=reserved) == E.INVALID_REQUEST


def test_a_changed_subscription_is_told_at_once() -> None:
    rig = Rig(wanted("a."))
    of = rig.ask().subscription_id
    assert rig.push(of) == E.NONE
    rig.instances.subscribe([wanted("b.")])
    assert rig.push(of) == E.UNKNOWN_SUBSCRIPTION_ID
    assert rig.ask().metrics == ["b."]


def test_a_push_to_another_node_is_taken() -> None:
    of = Rig(wanted("a.")).ask().subscription_id
    assert Rig(wanted("a.")).push(of) == E.NONE


def test_who_is_silent_for_long_or_hangs_up_is_forgotten() -> None:
    rig = Rig(wanted("a."))
    rig.ask()
    rig.now_ms += SILENT_MS_MIN - 1
    assert len(rig.instances) == 1
    rig.now_ms += 1
    rig.ask(ZERO_UUID)
    assert len(rig.instances) == 1
    rig.instances.forget(ID)
    assert rig.asks() == E.NONE
    rig.instances.forget(ID)
    assert rig.asks() == E.NONE


def test_the_one_used_least_recently_makes_room() -> None:
    rig = Rig(wanted("a."))
    rig.ask()
    for _ in range(INSTANCES_MAX - 1):
        rig.ask(ZERO_UUID)
    assert rig.asks() == E.THROTTLING_QUOTA_EXCEEDED  # still known, and used again
    for _ in range(10):
        rig.ask(ZERO_UUID)
    assert len(rig.instances) == INSTANCES_MAX
    assert rig.asks() == E.THROTTLING_QUOTA_EXCEEDED
