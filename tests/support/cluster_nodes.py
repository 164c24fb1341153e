"""One node of a cluster as a child process: Penstock's from its TOML file, or Apache Kafka's.

Both are combined nodes: broker and voter of the metadata quorum. The object belongs to one thread.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

from .node import NodeProcess
from .places import Network
from .process import BrokerProcess
from .reference import JVM_OPTIONS, KafkaProcess, java_command, properties, random_id


class ClusterNode(BrokerProcess):
    """A process with a number and a place; `host` and `port` are where everybody reaches it."""

    def __init__(
        self, node_id: int, root: Path, settings: Mapping[str, str], network: Network
    ) -> None:
        super().__init__(root, settings)
        self.node_id = node_id
        self.network = network
        self.place = network.place(node_id)
        self.host, self.port = self.place.reached_host, self.place.reached_port

    @property
    def voter(self) -> str:
        """The node as `controller.quorum.voters` names it."""
        raise NotImplementedError

    def launch(self) -> None:
        super().launch()
        self.network.node_up(self.node_id, self.pid)

    def kill(self) -> None:
        super().kill()
        self.network.node_down(self.node_id)

    def wait_stopped(self) -> None:
        super().wait_stopped()
        self.network.node_down(self.node_id)


class PenstockClusterNode(ClusterNode, NodeProcess):
    """`penstock serve --config`; settings may be changed between two starts."""

    def __init__(
        self, node_id: int, root: Path, settings: Mapping[str, str], network: Network
    ) -> None:
        super().__init__(node_id, root, settings, network)
        self.http_host, self.http_port = self.place.host, self.place.http_port
        self.config_path = root / "penstock.toml"

    @property
    def voter(self) -> str:
        return f"{self.node_id}@{self.bootstrap}"

    def command(self) -> list[str]:
        lines = {
            "node.id": str(self.node_id),
            "log.dirs": str(self.data_dir),
            "listeners": f"PLAINTEXT://{self.place.host}:{self.place.port}",
            "advertised.listeners": f"PLAINTEXT://{self.bootstrap}",
            "penstock.http.listen": f"{self.http_host}:{self.http_port}",
            **self.settings,
        }
        # A JSON text is a TOML text.
        text = "".join(f"{json.dumps(k)} = {json.dumps(v)}\n" for k, v in lines.items())
        self.config_path.write_text(text)
        serve = [sys.executable, "-m", "penstock.cli", "serve", "--config", str(self.config_path)]
        return [*self.place.prefix, *serve]


class KafkaClusterNode(ClusterNode, KafkaProcess):
    """`kafka.Kafka` as one of several combined nodes that carry one cluster id."""

    HEAP_MB: ClassVar[int] = 512
    OPTIONS: ClassVar[tuple[str, ...]] = JVM_OPTIONS

    def __init__(
        self, node_id: int, root: Path, settings: Mapping[str, str], network: Network
    ) -> None:
        super().__init__(node_id, root, settings, network)
        self.controller_port = self.place.second_port

    @property
    def voter(self) -> str:
        return f"{self.node_id}@{self.place.host}:{self.controller_port}"

    def command(self) -> list[str]:
        settings = dict(self.settings)
        cluster_id = settings.pop("cluster.id")
        meta = self.data_dir / "meta.properties"
        if not meta.exists():
            self.data_dir.mkdir(parents=True, exist_ok=True)
            written = {
                "version": "1",
                "cluster.id": cluster_id,
                "node.id": str(self.node_id),
                "directory.id": random_id(),
            }
            meta.write_text(properties(written))
        own, second = f"{self.place.host}:{self.place.port}", self.voter.partition("@")[2]
        lines = {
            "process.roles": "broker,controller",
            "node.id": str(self.node_id),
            "controller.listener.names": "CONTROLLER",
            "listeners": f"PLAINTEXT://{own},CONTROLLER://{second}",
            "advertised.listeners": f"PLAINTEXT://{self.bootstrap}",
            "log.dirs": str(self.data_dir),
            **settings,
        }
        path = self.root / "server.properties"
        path.write_text(properties(lines))
        java = java_command("kafka.Kafka", str(path), heap_mb=self.HEAP_MB, options=self.OPTIONS)
        return [*self.place.prefix, *java]
