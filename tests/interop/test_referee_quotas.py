"""Apache Kafka as the referee of quotas: the same requests to both brokers; the same clients have
to wait, for the same quotas and for about the same time.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from penstock.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from penstock.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from penstock.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from support import reference
from support.batches import batch
from support.calls import RawTopic, fetch_request, find_topic, produce_request
from support.helpers import make_topic
from support.node import NodeProcess
from support.process import BrokerProcess
from support.quotas import ANY, DEFAULT, EXACT, alter, described, entry, part, set_quotas
from support.raw import RawClient
from support.reference import KafkaProcess
from support.waiting import eventually

pytestmark = [pytest.mark.java, pytest.mark.timeout(300)]

USER = "ANONYMOUS"
NO_END = 1e12
"""Bytes per second that nobody reaches."""
_numbers = itertools.count()


@pytest.fixture(scope="module")
def both(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[BrokerProcess, BrokerProcess]]:
    """Apache Kafka, and ours."""
    if reference.missing():
        pytest.skip(str(reference.missing()))
    theirs = KafkaProcess(tmp_path_factory.mktemp("theirs"))
    ours = NodeProcess(tmp_path_factory.mktemp("ours"))
    with theirs, ours:
        yield theirs, ours


Act = Callable[[BrokerProcess], Any]


def same(both: tuple[BrokerProcess, BrokerProcess], act: Act) -> Any:
    theirs, ours = (act(broker) for broker in both)
    assert ours == theirs
    return theirs


class Asker(RawClient):
    """One that calls itself so; each is made anew, since a broker reads no more from who waits."""

    def __init__(self, broker: BrokerProcess, name: str) -> None:
        super().__init__(broker.host, broker.port, client_id=name)


def name() -> str:
    return f"q-{os.getpid()}-{next(_numbers)}"


def new_topic(broker: BrokerProcess) -> RawTopic:
    made = make_topic(broker, name())
    with RawClient(broker.host, broker.port) as client:
        return find_topic(client, made)


def waits(broker: BrokerProcess, client_id: str, topic: Any, size: int = 200_000) -> int:
    """The milliseconds that a Produce has to wait for."""
    with Asker(broker, client_id) as client:
        answer = client.call(produce_request(topic, batch([bytes(size)]), 12), 12)
    assert answer.responses[0].partition_responses[0].error_code == 0
    return int(answer.throttle_time_ms)


def clear(broker: BrokerProcess) -> None:
    _, found = described(broker)
    gone = [
        entry({kind: called or None for kind, called in entity}, **dict.fromkeys(values))
        for entity, values in found.items()
    ]
    assert not any(alter(broker, *gone)) if gone else True


def test_filters_find_the_same(both: tuple[BrokerProcess, BrokerProcess]) -> None:
    entries = [
        entry({"user": "a"}, producer_byte_rate=NO_END, request_percentage=200.5),
        entry({"user": "a", "client-id": "c"}, consumer_byte_rate=NO_END),
        entry({"user": "a", "client-id": None}, consumer_byte_rate=NO_END),
        entry({"user": None}, controller_mutation_rate=1000.0),
        entry({"client-id": "c"}, producer_byte_rate=NO_END),
        entry({"ip": "10.0.0.1"}, connection_creation_rate=100.0),
        entry({"ip": None}, connection_creation_rate=1000.0),
        entry({"user": "b"}, producer_byte_rate=-5.0),
        entry({"user": "b"}, nonsense=5.0),
        entry({"planet": "b"}, producer_byte_rate=5.0),
        entry({"ip": "10.0.0.1", "user": "b"}, connection_creation_rate=5.0),
        entry({}, producer_byte_rate=5.0),
        entry({"user": ""}, producer_byte_rate=5.0),
    ]
    assert same(both, lambda broker: sorted(alter(broker, *entries)))
    valid = 7
    for broker in both:  # Kafka answers before its broker has them
        eventually(lambda b=broker: len(described(b)[1]) == valid)
    for strict in (False, True):
        for parts in (
            (),
            (part("user", ANY),),
            (part("user", EXACT, "a"),),
            (part("user", DEFAULT),),
            (part("user", EXACT, "nobody"),),
            (part("client-id", ANY),),
            (part("user", EXACT, "a"), part("client-id", ANY)),
            (part("user", EXACT, "a"), part("client-id", DEFAULT)),
            (part("ip", ANY),),
            (part("ip", DEFAULT),),
            (part("ip", ANY), part("user", ANY)),
            (part("user", ANY), part("user", DEFAULT)),
            (part("user", EXACT),),
            (part("user", ANY, "a"),),
            (part("user", 7),),
            (part("", ANY),),
            (part("planet", ANY),),
        ):
            same(both, lambda broker, p=parts, s=strict: described(broker, *p, strict=s))
    for broker in both:
        clear(broker)


LEVELS: list[dict[str, str | None]] = [
    {"user": USER, "client-id": "best"},
    {"user": USER, "client-id": None},
    {"user": USER},
    {"user": None, "client-id": "best"},
    {"user": None, "client-id": None},
    {"user": None},
    {"client-id": "best"},
    {"client-id": None},
]


@pytest.mark.parametrize("number", range(len(LEVELS)))
def test_the_better_match_decides(both: tuple[BrokerProcess, BrokerProcess], number: int) -> None:
    """One quota is small, all that come before it in Kafka's order are larger than anything, or
    missing; what comes after it plays no part.
    """
    level = LEVELS[number]

    def act(broker: BrokerProcess) -> list[bool]:
        topic = new_topic(broker)
        outcome = []
        for others in (LEVELS[number + 1 :], LEVELS[:number]):
            set_quotas(broker, level, producer_byte_rate=10.0)
            for other in others:
                set_quotas(broker, other, producer_byte_rate=NO_END)
            outcome += [waits(broker, client, topic) > 0 for client in ("best", "any")]
            for each in (level, *others):
                set_quotas(broker, each, producer_byte_rate=None)
        return outcome

    after, *_ = same(both, act)
    assert after


def test_clients_of_a_default_have_a_bucket_each(
    both: tuple[BrokerProcess, BrokerProcess],
) -> None:
    def act(broker: BrokerProcess) -> list[bool]:
        topic = new_topic(broker)
        outcome = []
        # What the user has used without a quota before counts in Kafka, and not here.
        for entity in (
            {"user": USER, "client-id": None},
            {"user": None, "client-id": None},
            {"client-id": None},
        ):
            set_quotas(broker, entity, producer_byte_rate=30_000.0)
            one, other = name(), name()
            outcome += [
                waits(broker, client, topic) > 0 for client in (one, other, one, one, other)
            ]
            set_quotas(broker, entity, producer_byte_rate=None)
        return outcome

    outcome = same(both, act)
    assert set(outcome) == {True, False}


def test_the_times_to_wait_are_about_the_same(both: tuple[BrokerProcess, BrokerProcess]) -> None:
    """A request of 200 KB at 10 KB/s and ten seconds of window is ten seconds too much."""

    def act(broker: BrokerProcess) -> list[int]:
        set_quotas(broker, {"client-id": None}, producer_byte_rate=10_000.0)
        topic = new_topic(broker)
        found = [waits(broker, name(), topic, size) for size in (50_000, 200_000, 400_000)]
        set_quotas(broker, {"client-id": None}, producer_byte_rate=None)
        return found

    for theirs, ours in zip(*(act(broker) for broker in both), strict=True):
        assert ours == pytest.approx(theirs, abs=1_500)


def test_a_fetch_is_empty_or_as_large_as_the_window(
    both: tuple[BrokerProcess, BrokerProcess],
) -> None:
    def fetched(broker: BrokerProcess, client_id: str, topic: Any, version: int) -> Any:
        request = fetch_request([(topic, {0: 0})], version, max_bytes=1 << 20)
        with Asker(broker, client_id) as client:
            answer = client.call(request, version)
        size = sum(len(p.records or b"") for t in answer.responses for p in t.partitions)
        return size, answer.throttle_time_ms > 0, len(answer.responses), answer.error_code

    def act(broker: BrokerProcess) -> list[Any]:
        topic = new_topic(broker)
        for _ in range(5):
            waits(broker, "before", topic, 10_000)
        outcome = []
        for version in (4, 12, 16):
            client_id = name()
            set_quotas(broker, {"client-id": client_id}, consumer_byte_rate=10_500.0)
            outcome += [fetched(broker, client_id, topic, version) for _ in range(3)]
        return outcome

    outcome = same(both, act)
    assert {throttled for _, throttled, _, _ in outcome} == {True, False}


def test_mutations_beyond_the_quota(both: tuple[BrokerProcess, BrokerProcess]) -> None:
    """Codes by version, and who is made to wait; also where nothing is changed in the end."""

    def created(count: int, *names: str, validate: bool = False) -> CreateTopicsRequest:
        topics = [
            CreatableTopic(name=one, num_partitions=count, replication_factor=1) for one in names
        ]
        return CreateTopicsRequest(topics=topics, timeout_ms=20_000, validate_only=validate)

    def grown(topic: str, count: int) -> CreatePartitionsRequest:
        return CreatePartitionsRequest(
            topics=[CreatePartitionsTopic(name=topic, count=count, assignments=None)],
            timeout_ms=20_000,
        )

    def asked(broker: BrokerProcess, client_id: str, request: Any, version: int) -> Any:
        with Asker(broker, client_id) as client:
            answer = client.call(request, version)
        said = getattr(answer, "topics", None) or getattr(answer, "results", None)
        codes = sorted(one.error_code for one in said or answer.responses)
        return codes, answer.throttle_time_ms > 0

    def act(broker: BrokerProcess) -> list[Any]:
        outcome = []
        for strict in (True, False):
            client, topic = name(), name()
            set_quotas(broker, {"client-id": client}, controller_mutation_rate=1.0)
            versions = (7, 3, 6) if strict else (5, 2, 4)
            outcome.append(asked(broker, client, created(20, topic), versions[0]))
            outcome.append(asked(broker, client, created(1, name(), name()), versions[0]))
            outcome.append(asked(broker, client, grown(topic, 21), versions[1]))
            outcome.append(asked(broker, client, grown(topic, 3), versions[1]))
            outcome.append(asked(broker, client, created(20, "not/legal"), versions[0]))
            if strict:
                gone = DeleteTopicsRequest(topics=[DeleteTopicState(name=topic)], timeout_ms=20_000)
            else:
                gone = DeleteTopicsRequest(topic_names=[topic], timeout_ms=20_000)
            outcome.append(asked(broker, client, gone, versions[2]))
        client = name()
        set_quotas(broker, {"client-id": client}, controller_mutation_rate=1.0)
        outcome += [asked(broker, client, created(20, name(), validate=True), 7) for _ in range(2)]
        return outcome

    outcome = same(both, act)
    assert ([89, 89], True) in outcome
