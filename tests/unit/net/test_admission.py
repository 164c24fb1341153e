"""Who may connect, by number and by rate."""

from __future__ import annotations

import asyncio

import pytest

from penstock.net.admission import (
    HELD_MAX,
    HELD_UP_S_MAX,
    PER_IP,
    QUOTA,
    TOTAL,
    Admission,
    ConnectionLimits,
    Entry,
    ListenerLimits,
)
from unit.net.served import frame, run, served, until


def test_all_listeners_count_together() -> None:
    admission = Admission(ConnectionLimits(connections_max=2))
    admission.entered("A", "h")
    assert admission.refusal("B", "h") == ""
    admission.entered("B", "h")
    assert admission.refusal("A", "h") == TOTAL
    admission.left("A", "h")
    assert admission.refusal("B", "h") == ""


def test_the_listener_of_the_nodes_is_not_bound_by_the_number_for_all() -> None:
    admission = Admission(ConnectionLimits(connections_max=1, protected=frozenset({"NODES"})))
    admission.entered("CLIENTS", "h")
    assert admission.refusal("CLIENTS", "h") == TOTAL
    assert admission.refusal("NODES", "h") == ""


def test_a_listener_has_a_number_of_its_own() -> None:
    limits = ConnectionLimits(of_listeners={"A": ListenerLimits(connections_max=1)})
    admission = Admission(limits)
    admission.entered("A", "h")
    assert admission.refusal("A", "h") == TOTAL
    assert admission.refusal("B", "h") == ""


def test_an_address_has_a_number_of_its_own() -> None:
    admission = Admission(ConnectionLimits(per_ip_max=1, per_ip_overrides={"10.0.0.1": 2}))
    for ip in ("10.0.0.1", "10.0.0.2"):
        admission.entered("A", ip)
    assert admission.refusal("A", "10.0.0.1") == ""
    assert admission.refusal("A", "10.0.0.2") == PER_IP


def test_what_is_connected_stays_when_a_limit_falls() -> None:
    admission = Admission()
    for _ in range(3):
        admission.entered("A", "h")
    admission.limits = ConnectionLimits(connections_max=2)
    admission.left("A", "h")
    assert admission.refusal("A", "h") == TOTAL
    admission.left("A", "h")
    assert admission.refusal("A", "h") == ""


def test_a_rate_lets_a_second_through_at_once_and_then_keeps_time() -> None:
    admission = Admission(ConnectionLimits(rate_max=4))
    waits = [admission.held_up_s("A", 100.0) for _ in range(8)]
    assert waits == pytest.approx([0, 0, 0, 0, 0.25, 0.5, 0.75, 1.0])
    assert admission.held_up_s("A", 200.0) == 0


def test_the_slower_of_two_rates_counts() -> None:
    limits = ConnectionLimits(rate_max=100, of_listeners={"A": ListenerLimits(rate_max=1)})
    admission = Admission(limits)
    assert [admission.held_up_s("A", 5.0) for _ in range(3)] == pytest.approx([0, 1, 2])
    assert admission.held_up_s("B", 5.0) == 0


def test_nobody_waits_longer_than_clients_do() -> None:
    admission = Admission(ConnectionLimits(rate_max=1))
    waits = [admission.held_up_s("A", 5.0) for _ in range(100)]
    assert max(wait for wait in waits if wait is not None) <= HELD_UP_S_MAX
    assert waits[-1] is None
    assert Admission(ConnectionLimits(rate_max=0)).held_up_s("A", 5.0) is None


def test_requests_of_a_connection_that_came_too_soon_wait() -> None:
    async def test() -> None:
        async with served(admission=Admission(ConnectionLimits(rate_max=2))) as net:
            loop = asyncio.get_running_loop()
            started = loop.time()
            for number in range(4):
                client = await net.client()
                await client.send(frame(2 * number) + frame(2 * number + 1))
                assert await client.receive() == (2 * number, b"")
                assert await client.receive() == (2 * number + 1, b"")
            assert loop.time() - started > 0.9
            assert not net.server.refused_total

    run(test)


def test_a_connection_that_ends_while_it_waits() -> None:
    async def test() -> None:
        async with served(admission=Admission(ConnectionLimits(rate_max=1))) as net:
            first, second = await net.client(), await net.client()
            await second.send(frame(1))
            second.close()
            await first.send(frame(2))
            assert await first.receive() == (2, b"")
            await asyncio.sleep(1.1)  # surely longer than the second had to wait
            assert net.used == 0

    run(test)


# -- quotas of addresses -----------------------------------------------------------------------


def test_who_is_over_its_quota_is_held_but_not_by_the_listener_of_the_nodes() -> None:
    limits = ConnectionLimits(protected=frozenset({"NODES"}), connections_max=3)
    admission = Admission(limits, lambda ip: 0.5 if ip == "h" else 0.0)
    assert admission.enter("CLIENTS", "h", 5.0) == Entry(0.5, QUOTA)
    assert admission.enter("CLIENTS", "other", 5.0) == Entry()
    assert admission.enter("NODES", "h", 5.0) == Entry()
    assert admission.enter("CLIENTS", "h", 5.0) == Entry(refusal=TOTAL), "they count all the same"
    admission.limits = ConnectionLimits()
    admission.held = HELD_MAX
    assert admission.enter("CLIENTS", "h", 5.0) == Entry(0.0, QUOTA), "too many are held already"


HELD_S = 0.3


def test_a_connection_over_its_quota_is_closed_when_its_time_is_over() -> None:
    """What it sends meanwhile is not served, nor kept."""

    async def test() -> None:
        loop = asyncio.get_running_loop()
        async with served(Admission(over_quota_s=lambda _: HELD_S)) as net:
            began = loop.time()
            client = await net.client()
            client.send_unread(frame(1, body=bytes(256 * 1024)) * 20)
            await until(lambda: net.server.admission.held == 1)
            assert await client.is_closed()
            assert loop.time() - began >= HELD_S * 0.9
            assert (net.server.admission.held, net.script.seen) == (0, [])
            assert net.server.refused_total == {QUOTA: 1}
            assert net.server.accepted_total == 0

    run(test)


def test_who_hangs_up_while_being_held_leaves_nothing() -> None:
    async def test() -> None:
        async with served(Admission(over_quota_s=lambda _: HELD_S)) as net:
            client = await net.client()
            await until(lambda: net.server.admission.held == 1)
            client.close()
            await until(lambda: not net.server.connections)
            await until(lambda: net.server.admission.held == 0)

    run(test)
