"""The folders and settings files of a local cluster.

`DIR/node-i/` holds the data of node i, its `penstock.toml`, its `penstock.pid` and its log output.
The files are the truth: a folder that exists is started again as they say, whatever was edited in
them, and new nodes are fitted to those that are there. What the numbers of nodes and ports have to
be is decided by `lay_out`, which writes nothing; `write` does.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from penstock.base.private_files import make_private_folder, write_private
from penstock.cli.errors import usage_error
from penstock.config.broker_config import BrokerConfig, broker_config
from penstock.config.listeners import PLAINTEXT, PORT_MAX, address_text
from penstock.config.load import read_toml
from penstock.config.table import ConfigError

HOST = "127.0.0.1"
SECURE = "SASL_SSL"
"""The listener of nodes with security: users log in over TLS."""
NODES_DEFAULT = 3
BASE_PORT_DEFAULT = 9092
VOTERS_MAX = 5
"""More voters make every change of the metadata slower and no cluster safer; the rest observe."""
VOTERS_WANTED = 3
"""Nodes up to this number become voters also when they join later: two voters are no safer than
one.
"""
HTTP_PORT_OFFSET = -1010
"""From a node's Kafka port to the HTTP port that is tried first: 8082 for 9092, as for `serve`."""
HTTP_PORTS_TRIED = 1000
PORT_MIN = 1024

OWN_SETTINGS = (
    "node.id",
    "listeners",
    "log.dir",
    "log.dirs",
    "penstock.http.listen",
    "controller.quorum.voters",
    "controller.quorum.bootstrap.servers",
)
"""What differs from node to node, and so cannot be given for all of them."""

_HEAD = """\
# Node {number} of a local cluster, written by `penstock dev`, which keeps what is changed here.
# `penstock serve --config {path}` starts the node by itself.
"""


@dataclass(slots=True)
class LocalNode:
    """One node: its number, its folder and the settings of its file."""

    number: int
    folder: Path
    settings: dict[str, str]

    @property
    def config_path(self) -> Path:
        return self.folder / "penstock.toml"

    @property
    def log_path(self) -> Path:
        return self.folder / "penstock.log"

    @property
    def config(self) -> BrokerConfig:
        try:
            return broker_config(self.settings)
        except ConfigError as e:
            raise usage_error(f"{self.config_path}: {e}") from None

    @property
    def address(self) -> str:
        listener = self.config.listen[0]
        return address_text(listener.host, listener.port)

    @property
    def is_secure(self) -> bool:
        return self.settings.get("listeners", "").upper().startswith(f"{SECURE}://")

    @property
    def is_voter(self) -> bool:
        """Whether the node is or becomes a voter by itself."""
        config = self.config
        if config.controller_quorum_auto_join_enable or not (
            config.first_voters or config.bootstrap_servers
        ):
            return True
        return self.number in [voter.id for voter in config.first_voters]

    def write(self) -> None:
        """Puts the settings into the file, unless they stand there."""
        if self.config_path.exists() and read_toml(self.config_path) == self.settings:
            return
        if self.is_secure:
            make_private_folder(self.folder)
        else:
            self.folder.mkdir(parents=True, exist_ok=True)
        lines = [
            f"{json.dumps(name)} = {json.dumps(text, ensure_ascii=False)}\n"
            for name, text in self.settings.items()
        ]
        head = _HEAD.format(number=self.number, path=self.config_path)
        write_private(self.config_path, head + "".join(lines))


def replication_defaults(nodes: int) -> dict[str, str]:
    """How safely a cluster of so many nodes keeps what is published, unless it is told."""
    replicas = min(3, nodes)
    return {
        "default.replication.factor": str(replicas),
        "offsets.topic.replication.factor": str(replicas),
        "min.insync.replicas": "2" if nodes >= 3 else "1",
    }


def lay_out(
    root: Path,
    count: int | None,
    base_port: int | None,
    settings: Mapping[str, str],
    *,
    secure: bool = False,
) -> list[LocalNode]:
    """Every node of the cluster in `root`: those that are there, and the new ones up to `count`,
    which are secure if those are; `secure` asks for it.
    """
    for name in settings:
        if name in OWN_SETTINGS:
            raise usage_error(f"{name} differs from node to node and is set by `penstock dev`")
    there = _existing(root)
    count = _count(root, count, there)
    base_port = _base_port(root, base_port, there)
    listener = SECURE if _is_secure(root, secure, there) else PLAINTEXT
    if base_port + count - 1 > PORT_MAX:
        raise usage_error(f"{count} nodes have no room from port {base_port} on: lower --base-port")
    voters = _voters(there, count, base_port)
    nodes = []
    http_taken = {base_port + i for i in range(count)}
    http_taken |= {node.config.http_listen[1] for node in there.values() if node.config.http_listen}
    for number in range(1, count + 1):
        node = there.get(number)
        if node is None:
            node = LocalNode(number, root / f"node-{number}", {})
            node.settings["listeners"] = f"{listener}://{HOST}:{base_port + number - 1}"
            node.settings |= _new_settings(node, voters, base_port, set(there) - {number}, count)
            node.settings["penstock.http.listen"] = _http_listen(base_port + number - 1, http_taken)
        for name, text in replication_defaults(count).items():
            if node.settings.get(name) in (None, replication_defaults(len(there))[name]):
                node.settings[name] = text
        node.settings.update(settings)
        nodes.append(node)
    return nodes


def _existing(root: Path) -> dict[int, LocalNode]:
    nodes = {}
    for folder in root.glob("node-*"):
        number = folder.name.removeprefix("node-")
        file = folder / "penstock.toml"
        if number.isdecimal() and int(number) > 0 and file.exists():
            try:
                nodes[int(number)] = LocalNode(int(number), folder, read_toml(file))
            except ConfigError as e:
                raise usage_error(str(e)) from None
    return dict(sorted(nodes.items()))


def _count(root: Path, count: int | None, there: Mapping[int, LocalNode]) -> int:
    most = max(there, default=0)
    if count is None:
        return most or NODES_DEFAULT
    if count < most:
        raise usage_error(
            f"{root} holds {most} nodes and --nodes says {count}: give at least {most}; a node that"
            " was drained and removed is gone when its folder is deleted"
        )
    return count


def _base_port(root: Path, base_port: int | None, there: Mapping[int, LocalNode]) -> int:
    for number, node in there.items():
        known = node.config.listen[0].port - (number - 1)
        if base_port not in (None, known):
            raise usage_error(
                f"the cluster in {root} listens from port {known} on: leave out --base-port,"
                " or choose another --data-dir"
            )
        return known
    return BASE_PORT_DEFAULT if base_port is None else base_port


def _is_secure(root: Path, wanted: bool, there: Mapping[int, LocalNode]) -> bool:
    for node in there.values():
        if wanted and not node.is_secure:
            raise usage_error(
                f"the cluster in {root} was made without --secure: choose another --data-dir"
            )
        return node.is_secure
    return wanted


def _voters(there: Mapping[int, LocalNode], count: int, base_port: int) -> str:
    """The first voters; nothing for a cluster that was founded by one node."""
    for node in there.values():
        if text := node.settings.get("controller.quorum.voters"):
            return text
    if there or count == 1:
        return ""
    numbers = range(1, min(count, VOTERS_MAX) + 1)
    return ",".join(f"{i}@{HOST}:{base_port + i - 1}" for i in numbers)


def _new_settings(
    node: LocalNode, voters: str, base_port: int, others: set[int], count: int
) -> dict[str, str]:
    number = node.number
    settings = {
        "node.id": str(number),
        "log.dirs": str(node.folder.resolve()),
    }
    if any(voter.startswith(f"{number}@") for voter in voters.split(",")):
        settings["controller.quorum.voters"] = voters
    elif count > 1:
        known = sorted(others) or range(1, min(count, VOTERS_MAX) + 1)
        addresses = (f"{HOST}:{base_port + i - 1}" for i in known)
        settings["controller.quorum.bootstrap.servers"] = ",".join(addresses)
        if number <= VOTERS_WANTED:
            settings["controller.quorum.auto.join.enable"] = "true"
    return settings


def _http_listen(kafka_port: int, taken: set[int]) -> str:
    """A free port, which is then nobody else's of this cluster."""
    first = max(PORT_MIN, kafka_port + HTTP_PORT_OFFSET)
    for port in range(first, min(first + HTTP_PORTS_TRIED, PORT_MAX + 1)):
        if port not in taken and _is_free(port):
            taken.add(port)
            return f"{HOST}:{port}"
    raise usage_error(f"no port from {first} on is free for HTTP: choose another --base-port")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True
