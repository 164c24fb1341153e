"""The networks of the chaos runs, on their own: what is cut does not arrive, the rest does, and
everything arrives again when it heals. The nodes are programs that echo bytes and ask each other.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest

from chaos.cluster.namespaces import NamespaceNetwork, has_netem, missing
from chaos.cluster.network import choose
from chaos.cluster.proxied import ProxyNetwork
from support.places import Place
from support.raw import RawClient
from support.waiting import eventually

ANSWER_SECONDS = 0.6

# Echoes frames of lines. "ask HOST PORT" makes it ask another echo over a connection that it keeps.
ECHO = """
import asyncio, json, sys

kept, turn = {}, asyncio.Lock()

async def ask(host, port):
    async with turn:
        if (host, port) not in kept:
            kept[host, port] = await asyncio.open_connection(host, port)
        reader, writer = kept[host, port]
        writer.write(b"hello\\n")
        return (await reader.readline()).decode().strip()

async def serve(reader, writer):
    while line := await reader.readline():
        words = line.decode().split()
        answer = await ask(words[1], int(words[2])) if words[0] == "ask" else words[0]
        writer.write(answer.encode() + b"\\n")

async def main():
    server = await asyncio.start_server(serve, sys.argv[1], int(sys.argv[2]))
    await server.serve_forever()

asyncio.run(main())
"""


class Echo:
    """One program per place, and a client's connection to it."""

    def __init__(self, network: Any, node_id: int) -> None:
        self.place: Place = network.place(node_id)
        argv = [*self.place.prefix, sys.executable, "-c", ECHO, self.place.host]
        self.process = subprocess.Popen([*argv, str(self.place.port)])
        network.node_up(node_id, self.process.pid)
        eventually(self._reached)

    def _reached(self) -> bool:
        try:
            return self.ask("hello") == "hello"
        except OSError:
            return False

    def ask(self, line: str, seconds: float = ANSWER_SECONDS) -> str:
        """One line and its answer over a new connection."""
        place = self.place
        with RawClient(place.reached_host, place.reached_port, seconds=seconds) as client:
            client.socket.sendall(line.encode() + b"\n")
            return client.socket.makefile().readline().strip()

    def reaches(self, other: Echo) -> bool:
        """Whether this program gets an answer of the other; both have to be reached by us."""
        place = other.place
        try:
            return self.ask(f"ask {place.reached_host} {place.reached_port}") == "hello"
        except TimeoutError:
            return False


def kinds() -> list[Any]:
    reason = missing()
    skip = [] if reason is None else [pytest.mark.skip(reason=reason)]
    return [
        pytest.param(NamespaceNetwork, id="namespaces", marks=skip),
        pytest.param(ProxyNetwork, id="proxies"),
    ]


@pytest.fixture(params=kinds())
def network(request: pytest.FixtureRequest) -> Iterator[Any]:
    made = request.param()
    yield made
    made.close()


@pytest.fixture
def pair(network: Any) -> Iterator[tuple[Echo, Echo]]:
    made: list[Echo] = []
    try:
        made += [Echo(network, 1), Echo(network, 2)]
        yield made[0], made[1]
    finally:
        for echo in made:
            echo.process.kill()
            echo.process.wait()


def test_cuts(network: Any, pair: tuple[Echo, Echo]) -> None:
    one, two = pair
    assert one.reaches(two)
    assert two.reaches(one)
    network.cut(1, 2)
    assert not one.reaches(two)
    assert one.ask("hello") == "hello"
    assert two.ask("hello") == "hello"
    network.heal()
    eventually(lambda: one.reaches(two))
    assert two.reaches(one)


def test_a_cut_is_of_one_direction(network: Any, pair: tuple[Echo, Echo]) -> None:
    """An answer does not come back over a cut way; what was held up arrives when it heals."""
    one, two = pair
    assert one.reaches(two)
    network.cut(2, 1)
    place = two.place
    with RawClient(one.place.reached_host, one.place.reached_port, seconds=10) as client:
        client.socket.sendall(f"ask {place.reached_host} {place.reached_port}\n".encode())
        client.socket.settimeout(ANSWER_SECONDS)
        with pytest.raises(TimeoutError):
            client.socket.recv(1)
        client.socket.settimeout(10)
        network.heal()
        assert client.socket.recv(100) == b"hello\n"


def test_clients_are_cut_off(network: Any, pair: tuple[Echo, Echo]) -> None:
    one, two = pair
    network.cut_clients(1)
    with pytest.raises(TimeoutError):
        one.ask("hello")
    assert two.ask("hello") == "hello"
    assert two.reaches(one)
    network.heal()
    eventually(lambda: one.ask("hello", 5) == "hello")


def test_a_dead_node_refuses(network: Any, pair: tuple[Echo, Echo]) -> None:
    one, two = pair
    one.process.kill()
    one.process.wait()
    network.node_down(1)
    with pytest.raises(ConnectionRefusedError):
        one.ask("hello")
    assert two.ask("hello") == "hello"


def test_delay(network: Any, pair: tuple[Echo, Echo]) -> None:
    if network.KIND == "namespaces" and not has_netem():
        pytest.skip("this kernel has no netem; the proxies delay instead")
    network.delay(1, 150, 10)
    started = time.monotonic()
    assert pair[0].ask("hello", 5) == "hello"
    assert time.monotonic() - started >= 0.14
    network.heal()

    def quick() -> bool:
        started = time.monotonic()
        return pair[0].ask("hello", 5) == "hello" and time.monotonic() - started < 0.14

    eventually(quick)


def test_loss(network: Any, pair: tuple[Echo, Echo]) -> None:
    if network.KIND == "namespaces" and not has_netem():
        pytest.skip("this kernel has no netem; the proxies hold pieces back instead")
    network.loss(1, 60)
    started = time.monotonic()
    for _ in range(20):
        assert pair[0].ask("hello", 20) == "hello"
    assert time.monotonic() - started > 0.4


def test_the_choice_is_open() -> None:
    made, why = choose({"kill", "delay"})
    made.close()
    assert made.KIND in why
    if missing() is None and not has_netem():
        assert "netem" in why
    for faults in ({"kill"}, {"loss"}):
        made, why = choose(faults, "proxy")
        made.close()
        assert made.KIND == "proxies"
        assert "asked" in why
