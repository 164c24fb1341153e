"""A cluster of nodes for tests, on ports in a row, laid out as `penstock dev` does.

Duty: start all and wait until every node serves and every voter votes, so that any of them may be
killed; topics; the end of them. An object belongs to one thread.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Self

from penstock.testing.processes import (
    FOLDER_PREFIX,
    PORT_TRIES,
    QUICK,
    TAKEN,
    Node,
    NodeFailed,
    Started,
    Value,
    create_topic,
    free_ports,
    texts,
)

FORMED_S_MAX: Final = 60.0
POLL_S: Final = 0.01
NODES_MAX: Final = 9


class ClusterNode(Node):
    """One node of a cluster, which has a number and a settings file."""

    def __init__(self, number: int, folder: Path, port: int, *, is_temporary: bool) -> None:
        super().__init__({}, folder)
        self.number = number
        self._port = port
        self._is_temporary = is_temporary

    def _arguments(self) -> list[str]:
        return ["--config", str(self.folder / "penstock.toml")]


class Cluster(Started):
    """Several nodes; `with Cluster() as cluster:` has them run inside the block."""

    def __init__(
        self,
        nodes: int = 3,
        settings: Mapping[str, Value] | None = None,
        folder: str | os.PathLike[str] | None = None,
    ) -> None:
        """Nothing is started yet. `settings` are for all nodes. Up to three copies are kept of each
        partition, of which two must be in sync, unless they say otherwise.
        """
        if not 1 <= nodes <= NODES_MAX:
            raise ValueError(f"a cluster for tests has 1 to {NODES_MAX} nodes, not {nodes}")
        self._count = nodes
        self._settings = {**QUICK, **texts(settings or {})}
        self._folder = None if folder is None else Path(folder)
        self._is_temporary = folder is None
        self.nodes: dict[int, ClusterNode] = {}
        """The nodes by their numbers, from 1."""

    @property
    def bootstrap_servers(self) -> str:
        """HOST:PORT of every node, separated by commas."""
        return ",".join(node.bootstrap_servers for node in self.nodes.values())

    def node(self, number: int) -> Node:
        """The node with a number, from 1."""
        return self.nodes[number]

    def start(self) -> Self:
        """Starts every node that does not run, and waits until none is missing."""
        if self._folder is None:
            self._folder = Path(tempfile.mkdtemp(prefix=FOLDER_PREFIX))
        tries = 1 if self.nodes else PORT_TRIES
        for left in reversed(range(tries)):
            try:
                self._start_all(self._folder)
                break
            except NodeFailed as e:
                if left == 0 or TAKEN not in str(e):
                    raise
                self._forget(self._folder)
        return self

    def _start_all(self, root: Path) -> None:
        from penstock.cli.dev.folders import lay_out
        from penstock.cli.errors import CliError

        there = bool(self.nodes) or any(root.glob("node-*"))
        base_port = None if there else free_ports(self._count)
        try:
            laid_out = lay_out(root, self._count, base_port, self._settings)
            ports = {local.number: local.config.listen[0].port for local in laid_out}
        except CliError as e:
            raise NodeFailed(e.sentence) from None
        for local in laid_out:
            local.write()
            if local.number not in self.nodes:
                self.nodes[local.number] = ClusterNode(
                    local.number,
                    local.folder,
                    ports[local.number],
                    is_temporary=self._is_temporary,
                )
        stopped = [node for node in self.nodes.values() if not node.running]
        for node in stopped:
            node.launch()
        from penstock.cli.dev.formation import missing  # while the processes start

        for node in stopped:
            node.wait_ready()
        deadline = time.monotonic() + FORMED_S_MAX
        while lacking := missing(laid_out):
            if time.monotonic() > deadline:
                raise NodeFailed(f"the cluster has not formed: {lacking}\n{self.log_tails()}")
            time.sleep(POLL_S)

    def _forget(self, root: Path) -> None:
        """Nothing of an attempt whose ports somebody else has taken is left."""
        for node in self.nodes.values():
            node.kill()
        self.nodes.clear()
        for folder in root.glob("node-*"):
            shutil.rmtree(folder, ignore_errors=True)

    def log_tails(self) -> str:
        """The ends of all logs."""
        return "\n".join(f"node {n}:\n{node.log_tail()}" for n, node in self.nodes.items())

    def stop(self) -> None:
        """Stops all nodes cleanly, the first one last."""
        for node in reversed(self.nodes.values()):
            node.stop()

    def kill(self) -> None:
        """Ends all nodes by SIGKILL."""
        for node in self.nodes.values():
            node.kill()

    def close(self) -> None:
        """Ends all nodes for good, and removes the folder if it is a temporary one."""
        self.kill()
        if self._is_temporary and self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)

    def create_topic(
        self,
        name: str | None = None,
        partitions: int = 1,
        replication_factor: int | None = None,
        config: Mapping[str, Value] | None = None,
    ) -> str:
        """Makes a topic, of a name that was not used before if none is given; returns the name."""
        ports = [node.port for node in self.nodes.values() if node.running]
        return create_topic(ports, name, partitions, replication_factor, config)
