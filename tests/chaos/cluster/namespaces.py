"""A network namespace per node, joined by a bridge: iproute2, and tc netem where the kernel has it.

Clients stay outside and reach the nodes over the bridge. A cut is a wrong, permanent neighbour
entry in the sender's namespace: its frames go to a machine that does not exist, so that only one
direction is lost and no socket notices. Names carry the process id; what a killed run left behind
is removed by the next one.
"""

from __future__ import annotations

import functools
import itertools
import os
import random
import re
import subprocess
from pathlib import Path

from support.places import Place

from .network import may_make_namespaces

PORT, HTTP_PORT, SECOND_PORT = 9092, 8082, 9093
COMMAND_SECONDS_MAX = 20
GATEWAY = 254
NOBODY = "02:00:00:00:ff:ff"
NAME = re.compile(r"^(?:pk)(\d+)x")
_numbers = itertools.count(1)


def run(*argv: str) -> str:
    """Runs an iproute2 command; its own words when it fails."""
    done = subprocess.run(
        argv, capture_output=True, text=True, timeout=COMMAND_SECONDS_MAX, check=False
    )
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(argv)}: {done.stderr.strip()}")
    return done.stdout


@functools.cache
def missing() -> str | None:
    """Why this machine cannot do it, found by trying; None when it can."""
    reason = may_make_namespaces()
    if reason is not None:
        return reason
    try:
        network = NamespaceNetwork()
        try:
            network.place(1)
        finally:
            network.close()
    except (RuntimeError, OSError) as error:
        return f"namespaces cannot be made here ({error})"
    return None


@functools.cache
def has_netem() -> bool:
    """Whether the kernel can delay and drop packets."""
    network = NamespaceNetwork()
    try:
        network.place(1)
        network.delay(1, 1, 0)
    except RuntimeError:
        return False
    finally:
        network.close()
    return True


class NamespaceNetwork:
    """Namespaces `pkPIDxN-nodeID`, veth pairs and one bridge on a private network of its own."""

    KIND = "namespaces"

    def __init__(self) -> None:
        remove_leftovers()
        self._name = f"pk{os.getpid()}x{next(_numbers)}"
        self._bridge = f"{self._name}br"
        self._net = _free_net()
        self._nodes: list[int] = []
        self._cuts: set[tuple[int, int]] = set()
        self._shaped: set[int] = set()
        run("ip", "link", "add", self._bridge, "type", "bridge")
        run("ip", "addr", "add", f"{self._net}.{GATEWAY}/24", "dev", self._bridge)
        run("ip", "link", "set", self._bridge, "up")

    def _space(self, node_id: int) -> str:
        return f"{self._name}n{node_id}"

    def _address(self, node_id: int) -> str:
        return f"{self._net}.{node_id}"

    def place(self, node_id: int) -> Place:
        space, link = self._space(node_id), f"{self._name}v{node_id}"
        run("ip", "netns", "add", space)
        self._nodes.append(node_id)
        run("ip", "link", "add", link, "type", "veth", "peer", "name", "eth0", "netns", space)
        run("ip", "link", "set", link, "master", self._bridge, "up")
        run("ip", "-n", space, "addr", "add", f"{self._address(node_id)}/24", "dev", "eth0")
        run("ip", "-n", space, "link", "set", "eth0", "up")
        run("ip", "-n", space, "link", "set", "lo", "up")
        host = self._address(node_id)
        prefix = ("ip", "netns", "exec", space)
        return Place(host, PORT, host, PORT, HTTP_PORT, SECOND_PORT, prefix)

    def node_up(self, node_id: int, pid: int) -> None:
        return  # a namespace does not care who is in it

    def node_down(self, node_id: int) -> None:
        return

    # Faults

    def cut(self, sender: int, receiver: int) -> None:
        self._misdirect(self._space(sender), self._address(receiver))
        self._cuts.add((sender, receiver))

    def cut_clients(self, node_id: int) -> None:
        self._misdirect(self._space(node_id), f"{self._net}.{GATEWAY}")
        self._cuts.add((node_id, GATEWAY))
        run(*_neighbour("replace", self._address(node_id), self._bridge), *_TO_NOBODY)
        self._cuts.add((GATEWAY, node_id))

    def _misdirect(self, space: str, address: str) -> None:
        run("ip", "-n", space, *_neighbour("replace", address, "eth0")[1:], *_TO_NOBODY)

    def delay(self, node_id: int, ms: int, jitter_ms: int) -> None:
        self._shape(node_id, "delay", f"{ms}ms", f"{jitter_ms}ms")

    def loss(self, node_id: int, percent: int) -> None:
        self._shape(node_id, "loss", f"{percent}%")

    def _shape(self, node_id: int, *what: str) -> None:
        space = self._space(node_id)
        run("tc", "-n", space, "qdisc", "replace", "dev", "eth0", "root", "netem", *what)
        self._shaped.add(node_id)

    def heal(self) -> None:
        for sender, receiver in self._cuts:
            if sender == GATEWAY:
                run(*_neighbour("del", self._address(receiver), self._bridge))
            else:
                address = f"{self._net}.{receiver}"
                run("ip", "-n", self._space(sender), *_neighbour("del", address, "eth0")[1:])
        for node_id in self._shaped:
            run("tc", "-n", self._space(node_id), "qdisc", "del", "dev", "eth0", "root")
        self._cuts.clear()
        self._shaped.clear()

    def close(self) -> None:
        for node_id in self._nodes:
            run("ip", "netns", "del", self._space(node_id))
        if self._nodes or Path(f"/sys/class/net/{self._bridge}").exists():
            run("ip", "link", "del", self._bridge)
        self._nodes.clear()


_TO_NOBODY = ("lladdr", NOBODY, "nud", "permanent")


def _neighbour(verb: str, address: str, device: str) -> tuple[str, ...]:
    return ("ip", "neigh", verb, address, "dev", device)


def _free_net() -> str:
    """The first three numbers of a private network that no link of this machine is in."""
    used = run("ip", "-o", "-4", "addr")
    for third in random.sample(range(1, 255), 254):
        if f" 10.177.{third}." not in used:
            return f"10.177.{third}"
    raise RuntimeError("every network of 10.177.0.0/16 is in use")


def remove_leftovers() -> None:
    """Removes what runs have left behind whose process is gone."""
    spaces = [line.split()[0] for line in run("ip", "netns", "list").splitlines() if line]
    links = [path.name for path in Path("/sys/class/net").iterdir()]
    for name, argv in [
        *((space, ("ip", "netns", "del", space)) for space in spaces),
        *((link, ("ip", "link", "del", link)) for link in links if link.endswith("br")),
    ]:
        found = NAME.match(name)
        if found and not Path(f"/proc/{found[1]}").exists():
            run(*argv)
