"""Which quota applies, who shares a bucket, and how many buckets there may be."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.auth import client_quotas
from penstock.auth.client_quotas import (
    CLIENT_ID,
    CONNECTION_CREATION_RATE,
    CONSUMER_BYTE_RATE,
    DEFAULT,
    IP,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    USER,
    ClientQuotas,
    Entity,
    Table,
    address,
)
from penstock.auth.quota_windows import SampledRate, TokenBucket, Windows

NOW_MS = 1_000_000
IDLE_MS = Windows().expiry_ms

PRECEDENCE: list[tuple[Entity, Entity]] = [
    (("u", "c"), ("u", "c")),
    (("u", DEFAULT), ("u", "c")),
    (("u", None), ("u", None)),
    ((DEFAULT, "c"), ("u", "c")),
    ((DEFAULT, DEFAULT), ("u", "c")),
    ((DEFAULT, None), ("u", None)),
    ((None, "c"), (None, "c")),
    ((None, DEFAULT), (None, "c")),
]
"""Kafka's, for user u and client id c: the entity, and who shares its bucket."""


def rates(*quotas: tuple[Entity, float]) -> Table[SampledRate]:
    table = Table(Windows(), SampledRate)
    for entity, bound in quotas:
        table.alter(entity, bound)
    return table


def test_the_first_of_kafkas_order_applies() -> None:
    for present in product([False, True], repeat=len(PRECEDENCE)):
        table = rates((("other", "c"), 1.0), (("u", "other"), 2.0), ((None, "other"), 3.0))
        expected = None
        for number, (entity, key) in reversed(list(enumerate(PRECEDENCE))):
            if present[number]:
                table.alter(entity, 10.0 + number)
                expected = entity, key, 10.0 + number
        assert table.resolve("u", "c") == expected
        bucket = table.find("u", "c", NOW_MS)
        assert (bucket.bound if bucket else None) == (expected[2] if expected else None)


def test_a_quota_of_a_user_is_shared_by_its_client_ids() -> None:
    table = rates((("u", None), 5.0), ((DEFAULT, None), 6.0))
    assert table.find("u", "a", NOW_MS) is table.find("u", "b", NOW_MS)
    assert table.find("v", "a", NOW_MS) is table.find("v", "b", NOW_MS)
    assert table.find("u", "a", NOW_MS) is not table.find("v", "a", NOW_MS)


def test_a_quota_of_a_client_id_is_shared_by_users() -> None:
    table = rates(((None, DEFAULT), 5.0))
    assert table.find("u", "a", NOW_MS) is table.find("v", "a", NOW_MS)
    assert table.find("u", "a", NOW_MS) is not table.find("u", "b", NOW_MS)


def test_a_default_of_both_gives_each_pair_its_own() -> None:
    table = rates(((DEFAULT, DEFAULT), 5.0))
    pairs = list(product("uv", "ab"))
    assert len({id(table.find(user, client, NOW_MS)) for user, client in pairs}) == 4


def test_an_empty_client_id_is_no_way_around_a_default() -> None:
    assert rates(((None, DEFAULT), 5.0)).find("u", "", NOW_MS) is not None
    table = rates((("u", DEFAULT), 5.0), (("v", None), 6.0))
    bucket = table.find("u", "", NOW_MS)
    assert bucket is not None
    assert bucket.bound == 5.0
    assert bucket is not table.find("u", "a", NOW_MS)


def test_a_change_applies_at_once_and_what_was_used_stays_counted() -> None:
    table = rates((("u", None), 1000.0))
    bucket = table.find("u", "c", NOW_MS)
    assert bucket is not None
    bucket.record(10_000, NOW_MS)
    assert bucket.throttle_ms(NOW_MS) == 0
    table.alter(("u", None), 500.0)
    assert table.find("u", "c", NOW_MS) is bucket
    assert bucket.throttle_ms(NOW_MS) == 10_000
    table.alter(("u", "c"), 100.0)
    assert table.find("u", "c", NOW_MS) is not bucket
    table.alter(("u", "c"), None)
    assert table.find("u", "c", NOW_MS) is bucket


def test_without_quotas_a_table_is_not_active_and_holds_nothing() -> None:
    table = rates()
    assert not table.active
    table.alter(("u", None), 5.0)
    assert table.active
    table.find("u", "c", NOW_MS)
    assert table.find("other", "c", NOW_MS) is None
    table.alter(("u", None), None)
    assert not table.active
    assert len(table) == 0
    assert table.find("u", "c", NOW_MS) is None


def test_idle_buckets_are_dropped_when_others_come() -> None:
    table = rates(((None, DEFAULT), 5.0))
    for number in range(100):
        bucket = table.find("u", f"c{number}", NOW_MS)
        assert bucket is not None
        bucket.record(1, NOW_MS)
    busy = table.find("u", "c7", NOW_MS)
    assert busy is not None
    busy.record(1, NOW_MS + 5)
    table.find("u", "new", NOW_MS + IDLE_MS)
    assert len(table) == 2
    assert table.find("u", "c7", NOW_MS + IDLE_MS) is busy


def test_those_who_share_a_bucket_share_the_one_after_it() -> None:
    table = rates(((DEFAULT, None), 5.0))
    before = table.find("u", "a", NOW_MS)
    later_ms = NOW_MS + IDLE_MS
    table.find("other", "a", later_ms)
    after = table.find("u", "b", later_ms)
    assert after is not before
    assert table.find("u", "a", later_ms) is after


def test_many_idle_buckets_are_dropped_some_at_a_time() -> None:
    table = rates(((None, DEFAULT), 5.0))
    for number in range(2 * client_quotas.SWEPT_BUCKETS + 1):
        table.find("u", f"c{number}", NOW_MS)
    now_ms, left = NOW_MS + IDLE_MS, []
    for number in range(3):
        table.find("u", f"new{number}", now_ms)
        table.find("u", f"again{number}", now_ms)  # too soon
        left.append(len(table))
        now_ms += IDLE_MS // client_quotas.SWEEPS
    assert left == [client_quotas.SWEPT_BUCKETS + 3, 5, 6]


def test_a_token_bucket_that_is_not_full_is_not_idle_by_the_bound_of_now() -> None:
    table = Table(Windows(), TokenBucket)
    table.alter((DEFAULT, None), 1000.0)
    bucket = table.find("u", "c", NOW_MS)
    assert bucket is not None
    bucket.take(11_100, NOW_MS)
    table.alter((DEFAULT, None), 1.0)
    table.find("v", "c", NOW_MS + 2 * IDLE_MS)
    assert table.find("u", "c", NOW_MS + 2 * IDLE_MS) is bucket
    assert bucket.throttle_ms(NOW_MS + 2 * IDLE_MS) == 100_000 - 2 * IDLE_MS


@pytest.fixture
def three(monkeypatch: pytest.MonkeyPatch) -> None:
    """Room for three names."""
    monkeypatch.setattr(client_quotas, "BUCKETS_MAX", 3)
    monkeypatch.setattr(client_quotas, "FOUND_MAX", 4)


@pytest.mark.usefixtures("three")
def test_beyond_the_limit_names_share_one_bucket_until_others_are_idle() -> None:
    table = rates(((None, DEFAULT), 5.0), ((None, "named"), 9.0))
    own = [table.find("u", f"c{number}", NOW_MS) for number in range(3)]
    shared = table.find("u", "late", NOW_MS)
    assert shared is not None
    assert shared not in own
    shared.record(1, NOW_MS)
    assert {table.find("u", f"x{number}", NOW_MS) for number in range(1000)} == {shared}
    named = table.find("u", "named", NOW_MS)
    assert named is not None
    assert named is not shared
    assert named.bound == 9.0
    assert [table.find("u", f"c{number}", NOW_MS) for number in range(3)] == own
    assert len(table) == 5
    assert len(table._found) <= 4
    later_ms = NOW_MS + IDLE_MS
    assert table.find("u", "late", later_ms) not in (None, shared)


@pytest.mark.usefixtures("three")
def test_beyond_the_limit_each_default_has_a_bucket_of_its_own() -> None:
    table = rates((("u", DEFAULT), 5.0), (("v", DEFAULT), 6.0))
    for number in range(3):
        table.find("u", f"c{number}", NOW_MS)
    of_u, of_v = table.find("u", "late", NOW_MS), table.find("v", "late", NOW_MS)
    assert of_u is not None
    assert of_v is not None
    assert (of_u.bound, of_v.bound) == (5.0, 6.0)
    table.alter(("u", DEFAULT), 7.0)
    assert table.find("u", "late", NOW_MS) is of_u
    assert of_u.bound == 7.0


def test_long_names_are_kept_short() -> None:
    table = rates(((DEFAULT, DEFAULT), 5.0), ((None, "y" * 5000), 6.0))
    long = "x" * 30_000
    bucket = table.find("u", long + "1", NOW_MS)
    assert bucket is not None
    assert table.find("u", long + "1", NOW_MS) is bucket
    assert table.find("u", long + "2", NOW_MS) is not bucket
    assert table.find("u", "\ud800" * 300, NOW_MS) is not bucket
    kept = [part for key in (*table._buckets, *table._found) for part in key]
    assert max(len(part) for part in kept if isinstance(part, str)) <= 255
    bucket.record(1, NOW_MS + IDLE_MS)
    table.find("u", "other", NOW_MS + IDLE_MS + 1)
    assert table.find("u", long + "1", NOW_MS + IDLE_MS + 1) is bucket


parts = st.sampled_from(["u", "v", "c", "d", DEFAULT, None])
entities = st.tuples(parts, parts).filter(lambda entity: entity != (None, None))
names = st.sampled_from(["u", "v", "w", "c", "d", ""])


@given(
    st.lists(st.tuples(entities, st.one_of(st.none(), st.floats(1, 100))), max_size=12),
    st.lists(st.tuples(names, names, st.integers(0, 30_000)), max_size=30),
)
def test_who_has_the_same_key_has_the_same_bucket(
    changes: list[tuple[Entity, float | None]], asked: list[tuple[str, str, int]]
) -> None:
    """Also while quotas change and idle buckets are dropped."""
    table, now_ms = rates(), NOW_MS
    for number, (user, client, step_ms) in enumerate(asked):
        now_ms += step_ms
        if number < len(changes):
            table.alter(*changes[number])
        match = table.resolve(user, client)
        bucket = table.find(user, client, now_ms)
        assert (match is None) == (bucket is None)
        if match is None or bucket is None:
            continue
        assert bucket.bound == match.bound == table._bound_of(match.key)
        bucket.record(1, now_ms)
        for other_user, other, _ in asked:
            other_match = table.resolve(other_user, other)
            same = other_match is not None and other_match.key == match.key
            assert (table.find(other_user, other, now_ms) is bucket) == same


def test_each_key_has_a_table_and_a_unit() -> None:
    quotas = ClientQuotas()
    assert not quotas.active
    quotas.alter({USER: "u"}, PRODUCER_BYTE_RATE, 100.0)
    quotas.alter({USER: None, CLIENT_ID: "c"}, CONSUMER_BYTE_RATE, 200.0)
    quotas.alter({CLIENT_ID: None}, REQUEST_PERCENTAGE, 50.0)
    assert quotas.active
    assert quotas.produce.resolve("u", "c") == (("u", None), ("u", None), 100.0)
    assert quotas.fetch.resolve("u", "c") == ((DEFAULT, "c"), ("u", "c"), 200.0)
    assert quotas.request.resolve("u", "c") == ((None, DEFAULT), (None, "c"), 500_000_000.0)
    assert not quotas.mutations.active
    for entity, key in (
        ({USER: "u"}, PRODUCER_BYTE_RATE),
        ({USER: None, CLIENT_ID: "c"}, CONSUMER_BYTE_RATE),
        ({CLIENT_ID: None}, REQUEST_PERCENTAGE),
    ):
        quotas.alter(entity, key, None)
    assert not quotas.active


def test_addresses_have_quotas_of_connections_and_no_others() -> None:
    quotas = ClientQuotas()
    quotas.alter({IP: "10.0.0.1"}, PRODUCER_BYTE_RATE, 1.0)
    quotas.alter({USER: "u"}, CONNECTION_CREATION_RATE, 1.0)
    quotas.alter({USER: "u"}, "unheard_of", 1.0)
    assert not quotas.active
    quotas.alter({IP: "0:0:0:0:0:0:0:1"}, CONNECTION_CREATION_RATE, 7.9)
    quotas.alter({IP: None}, CONNECTION_CREATION_RATE, 3.0)
    own = quotas.connections.resolve(None, "::1")
    assert own is not None
    assert own.bound == 7.0
    other = quotas.connections.resolve(None, "10.0.0.1")
    assert other is not None
    assert other.key == (None, "10.0.0.1")
    assert address("::ffff:10.0.0.1") == "10.0.0.1"
    assert address("a.host.name") == "a.host.name"
