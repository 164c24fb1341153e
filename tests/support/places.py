"""Where the nodes of a cluster live: the addresses that they listen on and are reached by.

A `Network` gives each node its place and is told when the node's process comes and goes. `Loopback`
is the plain one: every node on 127.0.0.1, reached directly. Networks that can be cut are in
`tests/chaos/cluster`.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

from .process import free_port


class Place(NamedTuple):
    """One node's addresses, and what its command line begins with."""

    host: str
    port: int
    reached_host: str
    reached_port: int
    http_port: int
    second_port: int
    prefix: tuple[str, ...] = ()


class Network(Protocol):
    """What a cluster needs of its network."""

    def place(self, node_id: int) -> Place:
        """The place of a node that joins."""

    def node_up(self, node_id: int, pid: int) -> None:
        """The node's process has been started."""

    def node_down(self, node_id: int) -> None:
        """The node's process is gone."""

    def close(self) -> None:
        """Takes everything down that was set up."""


class Loopback:
    """Every node on 127.0.0.1, on ports that were free when it joined."""

    def place(self, node_id: int) -> Place:
        host, port = "127.0.0.1", free_port()
        return Place(host, port, host, port, free_port(), free_port())

    def node_up(self, node_id: int, pid: int) -> None:
        return

    def node_down(self, node_id: int) -> None:
        return

    def close(self) -> None:
        return
