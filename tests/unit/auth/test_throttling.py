"""What doors are told: times to wait, empty answers, mutations, and who had to wait."""

from __future__ import annotations

import pytest

from penstock.auth import client_quotas as module
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
from penstock.auth.throttling import BYTES_MAX, Throttling

NOW_MS = 1_000_000
MS = 1_000_000  # nanoseconds


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
    return Throttling(quotas)


def throttles(door: Throttling) -> list[tuple[str, str, str, int, int]]:
    """As metrics show them: the quota, the user, the client id or address, how often, how long."""
    return [
        (quota, user, client_id, found.count, found.ms)
        for quota, table in door.quotas.tables()
        for (user, client_id), found in table.throttles.items()
    ]


def test_a_produce_waits_for_its_bytes(door: Throttling) -> None:
    assert door.produced("u", "c", 10_000, MS, NOW_MS, acks=True) == 0
    assert door.produced("u", "d", 1_000, MS, NOW_MS, acks=True) == 1000
    assert door.produced("v", "c", 1_000, MS, NOW_MS, acks=True) == 0
    assert [door.quotas.produce.waiting(NOW_MS + ms) for ms in (0, 999, 1000)] == [1, 1, 0]
    assert throttles(door) == [(PRODUCER_BYTE_RATE, "u", "", 1, 1000)]


def test_time_is_waited_for_one_sample_at_most(door: Throttling) -> None:
    assert door.request_time("u", "c", 1000 * MS, NOW_MS) == 0
    assert door.request_time("u", "c", 50 * MS, NOW_MS) == 500
    assert door.request_time("u", "c", 5000 * MS, NOW_MS) == 1000


def test_the_longer_of_two_times_counts(door: Throttling) -> None:
    assert door.produced("u", "c", 10_300, 1050 * MS, NOW_MS, acks=True) == 500
    assert throttles(door) == [(REQUEST_PERCENTAGE, "u", "", 1, 500)]
    assert door.produced("v", "c", 10_700, 1050 * MS, NOW_MS, acks=True) == 700


def test_time_of_a_produce_without_an_answer_does_not_count(door: Throttling) -> None:
    assert door.produced("u", "c", 10_000, 5000 * MS, NOW_MS, acks=False) == 0
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
    door.quotas.alter({USER: "u"}, CONSUMER_BYTE_RATE, 1e18)
    assert door.fetch_bytes_max("u", "c", NOW_MS) == BYTES_MAX
    assert Throttling(ClientQuotas()).fetch_bytes_max("u", "c", NOW_MS) == BYTES_MAX


def test_what_sending_took_counts_for_the_next_request(door: Throttling) -> None:
    door.sent("u", "c", 1050 * MS, NOW_MS)
    assert throttles(door) == []
    assert door.request_time("u", "c", 0, NOW_MS) == 500


def test_a_batch_larger_than_the_window_is_given_when_nothing_else_counts(door: Throttling) -> None:
    assert door.fetched("u", "c", 1, 0, NOW_MS) == 0
    assert door.fetched("u", "c", 50_000, 0, NOW_MS) > 0
    assert door.fetched("u", "c", 50_000, 0, NOW_MS + 12_000) == 0
    assert door.fetched("u", "c", 1, 0, NOW_MS + 12_000) > 40_000, "what comes after it waits"


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
    assert throttles(door) == [(CONTROLLER_MUTATION_RATE, "u", "", 1, 4000)]
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
    assert throttles(door) == [(CONNECTION_CREATION_RATE, "", "<default>", 2, 2000)]


def test_without_quotas_nothing_is_counted() -> None:
    door = Throttling(ClientQuotas())
    assert not door.quotas.active
    assert door.produced("u", "c", 10**12, 10**12, NOW_MS, acks=True) == 0
    assert door.fetched("u", "c", 10**12, 10**12, NOW_MS) == 0
    assert door.connecting("10.0.0.1", NOW_MS) == 0
    assert door.mutations("u", "c", strict=True).admit(10**6, NOW_MS)
    assert throttles(door) == []


def test_metrics_do_not_name_what_clients_call_themselves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "THROTTLES_SHOWN_MAX", 3)
    quotas = ClientQuotas()
    quotas.alter({CLIENT_ID: None}, PRODUCER_BYTE_RATE, 1.0)
    quotas.alter({CLIENT_ID: "c7"}, PRODUCER_BYTE_RATE, 1.0)
    quotas.alter({USER: None}, REQUEST_PERCENTAGE, 0.1)
    door = Throttling(quotas)
    for number in range(100):
        door.produced("u", f"c{number}", 100, 0, NOW_MS, acks=True)
    assert [(who[2], who[3]) for who in throttles(door)] == [("<default>", 99), ("c7", 1)]
    assert quotas.produce.waiting(NOW_MS) == 100
    for number in range(5):
        door.request_time(f"u{number}", "c", 20 * MS, NOW_MS)
    counted = [(who[1], who[3]) for who in throttles(door) if who[0] == REQUEST_PERCENTAGE]
    assert counted == [("u0", 1), ("u1", 1), ("u2", 1), ("<others>", 2)]
