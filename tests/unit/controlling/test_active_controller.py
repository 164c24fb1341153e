"""The active controller on a real loop: whose silence counts, and what is said of a fence."""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from penstock.controlling.active_controller import ActiveController
from penstock.metadata.controller import Controller, Decision
from penstock.metadata.features import SUPPORTED_FEATURES
from penstock.wire.messages.broker_registration import (
    BrokerRegistrationRequest,
    Feature,
    Listener,
)
from unit.metadata.rig import Rig, directory
from unit.net.served import run
from unit.serving.rig import until

SESSION_MS = 600
HERE, HEALTHY, SILENT = 1, 2, 3


class Driven:
    """An active controller on node 1; what it decides is committed at once."""

    def __init__(self) -> None:
        self.rig = Rig({"broker.session.timeout.ms": str(SESSION_MS)})
        self.fenced: set[int] = set()
        """Whom the controller has ever fenced by itself; a heartbeat has a broker unfenced."""
        self.rig.now_ms = self.now_ms()
        self.rig.take_over()
        for broker in (HERE, HEALTHY, SILENT):
            self.rig.register(broker)
            self.rig.heartbeat(broker)
        self.active = ActiveController(
            self.rig.controller, HERE, ("PLAINTEXT",), self.now_ms, self.now_ms, self.submit
        )
        self.active.start()

    def now_ms(self) -> int:
        return int(asyncio.get_running_loop().time() * 1000)

    async def submit(self, decide: Callable[[Controller], Decision[Any]]) -> Any:
        response = self.rig.take(decide(self.rig.controller))
        self.fenced |= {broker.id for broker in self.rig.image.brokers.values() if broker.fenced}
        self.active.arm()
        return response

    def heartbeat(self, broker: int) -> None:
        self.rig.now_ms = self.now_ms()
        self.active.heard(broker, None)
        self.rig.heartbeat(broker)
        self.active.arm()


class Received(asyncio.Protocol):
    """What comes by a connection is worked off in the loop's turn, as in a node."""

    def __init__(self, work: Callable[[bytes], None]) -> None:
        self._work = work

    def data_received(self, data: bytes) -> None:
        self._work(data)


def test_what_came_while_the_loop_was_held_up_is_heard_before_sessions_are_judged() -> None:
    async def test() -> None:
        driven = Driven()
        loop = asyncio.get_running_loop()
        beats, beating = socket.socketpair()
        requests, requesting = socket.socketpair()
        heard: list[int] = []

        def heartbeats(brokers: bytes) -> None:
            heard.extend(brokers)
            for broker in brokers:
                driven.heartbeat(broker)

        def huge_request(_: bytes) -> None:
            sender = threading.Timer(SESSION_MS / 2000, beating.send, [bytes([HEALTHY, SILENT])])
            sender.start()
            time.sleep(2 * SESSION_MS / 1000)  # the loop stands still

        made = [
            await loop.create_connection(lambda: Received(heartbeats), sock=beats),
            await loop.create_connection(lambda: Received(huge_request), sock=requests),
        ]
        requesting.send(b"huge")
        await until(lambda: heard)
        assert driven.fenced == set()
        # From here on the loop turns: one of them goes on, the other's silence counts.
        while not driven.fenced:
            driven.heartbeat(HEALTHY)
            await asyncio.sleep(0.02)
        assert driven.fenced == {SILENT}
        driven.active.drop()
        for transport, _ in made:
            transport.close()
        beating.close()
        requesting.close()

    run(test)


def test_the_end_of_a_session_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        driven = Driven()
        while not driven.fenced:
            driven.heartbeat(HEALTHY)
            await asyncio.sleep(0.02)
        driven.heartbeat(HEALTHY)
        await until(lambda: said())
        driven.active.drop()

    def said() -> list[Any]:
        return [record for record in caplog.records if hasattr(record, "silent_ms")]

    with caplog.at_level(logging.WARNING, "penstock.controlling"):
        run(test)
    [record] = said()
    assert record.levelname == "WARNING"
    assert record.broker == SILENT
    assert SESSION_MS <= record.silent_ms < 10 * SESSION_MS


def test_on_a_loop_that_is_slow_for_good_sessions_still_end() -> None:
    async def test() -> None:
        driven = Driven()
        deadline = time.monotonic() + 20 * SESSION_MS / 1000
        while not driven.fenced and time.monotonic() < deadline:
            time.sleep(0.3)  # each turn of the loop takes so long
            driven.heartbeat(HEALTHY)
            await asyncio.sleep(0)
        assert driven.fenced == {SILENT}
        driven.active.drop()

    run(test)


def test_the_broker_on_this_node_is_not_fenced_for_its_silence() -> None:
    async def test() -> None:
        driven = Driven()
        await until(lambda: driven.fenced == {HEALTHY, SILENT})
        await asyncio.sleep(SESSION_MS / 1000)
        assert driven.fenced == {HEALTHY, SILENT}
        driven.active.drop()

    run(test)


@pytest.mark.parametrize(
    ("ports", "over"), [((9092,), True), ((9092, 9093), True), ((9093,), False)]
)
def test_a_run_at_an_address_of_the_earlier_one_proves_that_that_is_over(
    ports: tuple[int, ...], over: bool
) -> None:
    """Also where it has got another listener meanwhile."""

    def registration(rig: Rig, *ports: int) -> BrokerRegistrationRequest:
        return BrokerRegistrationRequest(
            broker_id=4,
            cluster_id="c",
            incarnation_id=rig.rng.uuid(),
            listeners=[Listener(name=f"AT_{port}", host="h", port=port) for port in ports],
            features=[
                Feature(name=name, min_supported_version=low, max_supported_version=high)
                for name, (low, high) in SUPPORTED_FEATURES.items()
            ],
            log_dirs=[directory(4, 0)],
        )

    async def test() -> None:
        driven = Driven()
        rig, earlier = driven.rig, registration(driven.rig, 9092)
        rig.take(rig.controller.register_broker(earlier, len(rig.log), rig.now_ms))
        driven.heartbeat(4)
        found = driven.active.ended_run(registration(rig, *ports))
        assert found == (rig.image.brokers[4] if over else None)
        driven.active.drop()

    run(test)
