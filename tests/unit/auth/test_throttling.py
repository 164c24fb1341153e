"""What doors are told: times to wait, empty answers, mutations, and who is throttled."""

from __future__ import annotations

import pytest

from penstock.auth import throttling as module
from penstock.auth.client_quotas import (
    CLIENT_ID,
    CONNECTION_CREATION_RATE,
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    IP,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    USER,
    ClientQuotas,
)
from penstock.auth.throttling import BYTES_MAX, Throttled, Throttling

NOW_MS = 1_000_000
MS = 1_000_000  # nanoseconds
BROKERS = frozenset({"broker"})


@pytest.fixture
def door() -> Throttling:
    """A tenth of one thread, 1,000 bytes and 2 partitions per second for everybody."""
    quotas = ClientQuotas()
    for key, value in (
        (PRODUCER_BYTE_RATE, 1000.0),
        (CONSUMER_BYTE_RATE, 1000.0),
        (REQUEST_PERCENTAGE, 10.0),
        (CONTROLLER_MUTATION_RATE, 2.0),
    ):
        quotas.alter({USER: None}, key, value)
    quotas.alter({IP: None}, CONNECTION_CREATION_RATE, 1.0)
    return Throttling(quotas, BROKERS)


def test_a_produce_waits_for_its_bytes(door: Throttling) -> None:
    assert door.produced("u", "c", 10_000, MS, NOW_MS, acks=True) == 0
    assert door.produced("u", "d", 1_000, MS, NOW_MS, acks=True) == 1000
    assert door.produced("v", "c", 1_000, MS, NOW_MS, acks=True) == 0
    assert list(door.throttled(NOW_MS + 400)) == [Throttled(PRODUCER_BYTE_RATE, "u", "", 600)]
    assert list(door.throttled(NOW_MS + 1000)) == []
    assert (door.quotas.produce.throttled_total, door.quotas.produce.throttled_ms_total) == (
        1,
        1000,
    )
    assert door.quotas.request.throttled_total == 0


def test_time_is_waited_for_one_sample_at_most(door: Throttling) -> None:
    assert door.request_time("u", "c", 1000 * MS, NOW_MS) == 0
    assert door.request_time("u", "c", 50 * MS, NOW_MS) == 500
    assert door.request_time("u", "c", 5000 * MS, NOW_MS) == 1000


def test_the_longer_of_two_times_counts(door: Throttling) -> None:
    assert door.produced("u", "c", 10_300, 1050 * MS, NOW_MS, acks=True) == 500
    assert list(door.throttled(NOW_MS)) == [Throttled(REQUEST_PERCENTAGE, "u", "", 500)]
    assert door.produced("v", "c", 10_700, 1050 * MS, NOW_MS, acks=True) == 700


def test_time_of_a_produce_without_an_answer_does_not_count(door: Throttling) -> None:
    assert door.produced("u", "c", 10_000, 5000 * MS, NOW_MS, acks=False) == 0
    assert door.exempt_ns_total == 5000 * MS
    assert door.request_time("u", "c", 0, NOW_MS) == 0
    assert door.produced("u", "c", 1_000, 0, NOW_MS, acks=False) == 1000


def test_bytes_of_a_fetch_that_is_answered_empty_do_not_count(door: Throttling) -> None:
    assert door.fetched("u", "c", 9_000, 0, NOW_MS) == 0
    assert door.fetched("u", "c", 2_000, 0, NOW_MS) == 1000
    assert door.fetched("u", "c", 1_000, 0, NOW_MS) == 0
    assert door.fetched("u", "c", 1, 0, NOW_MS) == 1
    # Also when it is its time that has to be waited for.
    assert door.fetched("v", "c", 9_000, 1050 * MS, NOW_MS) == 500
    assert door.fetched("v", "c", 10_000, 0, NOW_MS + 600) == 0


def test_no_fetch_is_larger_than_its_window_allows(door: Throttling) -> None:
    assert door.fetch_bytes_max("u", "c", NOW_MS) == 10_000
    assert door.fetched("u", "c", door.fetch_bytes_max("u", "c", NOW_MS), 0, NOW_MS) == 0
    assert door.fetch_bytes_max("broker", "c", NOW_MS) == BYTES_MAX
    door.quotas.alter({USER: "u"}, CONSUMER_BYTE_RATE, 1e18)
    assert door.fetch_bytes_max("u", "c", NOW_MS) == BYTES_MAX
    assert Throttling(ClientQuotas()).fetch_bytes_max("u", "c", NOW_MS) == BYTES_MAX


def test_what_sending_took_counts_for_the_next_request(door: Throttling) -> None:
    door.sent("u", "c", 1050 * MS, NOW_MS)
    assert list(door.throttled(NOW_MS)) == []
    assert door.request_time("u", "c", 0, NOW_MS) == 500


def test_those_who_are_exempt_never_wait(door: Throttling) -> None:
    assert door.produced("broker", "c", 10**9, MS, NOW_MS, acks=True) == 0
    assert door.fetched("broker", "c", 10**9, MS, NOW_MS) == 0
    assert door.request_time("broker", "c", MS, NOW_MS) == 0
    door.sent("broker", "c", MS, NOW_MS)
    mutations = door.mutations("broker", "c", strict=True)
    assert all(mutations.admit(10**6, NOW_MS) for _ in range(3))
    assert door.exempt_ns_total == 4 * MS
    assert len(door.quotas.produce) == len(door.quotas.mutations) == 0


def test_strict_mutations_are_refused_when_the_bucket_is_empty(door: Throttling) -> None:
    first = door.mutations("u", "c", strict=True)
    assert first.admit(21, NOW_MS)
    assert first.admit(9, NOW_MS)  # the last token buys all of a topic
    assert first.throttle_ms(NOW_MS) == 0
    assert not first.admit(1, NOW_MS)
    assert not first.admit(1, NOW_MS)
    assert first.throttle_ms(NOW_MS) == 4000
    assert first.throttle_ms(NOW_MS + 3000) == 1000
    assert first.throttle_ms(NOW_MS + 9000) == 0
    assert door.quotas.mutations.throttled_total == 1
    second = door.mutations("u", "other", strict=True)
    assert not second.admit(1, NOW_MS + 3000)
    assert second.throttle_ms(NOW_MS + 3000) == 1000
    assert second.admit(1, NOW_MS + 4000)


def test_other_mutations_are_done_and_waited_for(door: Throttling) -> None:
    mutations = door.mutations("u", "c", strict=False)
    assert mutations.admit(22, NOW_MS)
    assert mutations.throttle_ms(NOW_MS) == 0
    assert mutations.admit(1, NOW_MS)
    assert mutations.admit(1, NOW_MS)
    assert mutations.throttle_ms(NOW_MS) == 1000


def test_connections_of_an_address(door: Throttling) -> None:
    assert [door.connecting("10.0.0.1", NOW_MS) for _ in range(11)] == [0] * 10 + [1000]
    assert door.connecting("::ffff:10.0.0.1", NOW_MS) == 1000
    assert door.connecting("10.0.0.2", NOW_MS) == 0
    [throttled] = door.throttled(NOW_MS)
    assert throttled == Throttled(CONNECTION_CREATION_RATE, "", "10.0.0.1", 1000)


def test_without_quotas_nothing_is_counted() -> None:
    door = Throttling(ClientQuotas())
    assert not door.quotas.active
    assert door.produced("u", "c", 10**12, 10**12, NOW_MS, acks=True) == 0
    assert door.fetched("u", "c", 10**12, 10**12, NOW_MS) == 0
    assert door.connecting("10.0.0.1", NOW_MS) == 0
    assert door.mutations("u", "c", strict=True).admit(10**6, NOW_MS)
    assert not list(door.throttled(NOW_MS))


def test_metrics_name_only_those_who_wait_longest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "THROTTLED_LISTED_MAX", 3)
    quotas = ClientQuotas()
    quotas.alter({CLIENT_ID: None}, PRODUCER_BYTE_RATE, 1.0)
    door = Throttling(quotas)
    for number in range(100):
        door.produced("u", f"c{number}", 100 + number, 0, NOW_MS, acks=True)
    listed = [entry.client_id for entry in door.throttled(NOW_MS)]
    assert listed == ["c99", "c98", "c97"]
    assert quotas.produce.throttled_total == 100
