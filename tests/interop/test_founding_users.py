"""The first user of a new cluster is there before anybody can log in: a SCRAM client gets in at
once, and nothing is opened for it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from support.helpers import QUIET
from support.node import NodeProcess
from support.process import free_port
from support.secured_node import PLAIN_MODULE
from support.waiting import CALL_SECONDS_MAX

pytestmark = [pytest.mark.penstock_only, pytest.mark.xdist_group("security")]

PASSWORD = "secret, of admin"


class FoundedNode(NodeProcess):
    """Nobody gets in by its settings but the node itself; `admin` may do everything."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.users = root / "users"
        self.sasl_port = free_port()
        self.settings |= {
            "listeners": f"SASL_PLAINTEXT://127.0.0.1:{self.sasl_port}",
            "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512",
            "sasl.mechanism.inter.broker.protocol": "PLAIN",
            "listener.name.sasl_plaintext.plain.sasl.jaas.config": (
                f'{PLAIN_MODULE} required username="node" password="n" user_node="n";'
            ),
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:node;User:admin",
            "penstock.founding.scram.file": str(self.users),
        }

    def command(self) -> list[str]:
        argv = super().command()
        place = argv.index("--listen")
        return argv[:place] + argv[place + 2 :]

    def admin(self, mechanism: str, password: str = PASSWORD) -> AdminClient:
        settings: dict[str, Any] = {
            "bootstrap.servers": f"127.0.0.1:{self.sasl_port}",
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": mechanism,
            "sasl.username": "admin",
            "sasl.password": password,
            **QUIET,
        }
        return AdminClient(settings)


def test_the_first_user_comes_from_a_file(tmp_path: Path) -> None:
    node = FoundedNode(tmp_path)
    node.users.write_text(
        f'# the first\nSCRAM-SHA-512=[name=admin,password="{PASSWORD}",iterations=8192]\n'
    )
    with node:
        admin = node.admin("SCRAM-SHA-512")
        admin.create_topics([NewTopic("t", 1, 1)])["t"].result(CALL_SECONDS_MAX)
        node.users.unlink()
        node.restart()
        assert "t" in node.admin("PLAIN").list_topics(timeout=CALL_SECONDS_MAX).topics
        with pytest.raises(KafkaException):
            node.admin("SCRAM-SHA-512", "another").list_topics(timeout=3)
        log = node.log_path.read_text(encoding="utf-8") + node.out_text()
        assert PASSWORD not in log


def test_a_file_that_cannot_be_used_is_refused_before_there_is_a_cluster(tmp_path: Path) -> None:
    node = FoundedNode(tmp_path)
    node.users.write_text(f"SCRAM-SHA-512=[name=admin,word={PASSWORD}]\n")
    with pytest.raises(AssertionError):
        node.start()
    log = node.log_path.read_text(encoding="utf-8")
    assert "penstock.founding.scram.file: line 1 of" in log
    assert "secret" not in log
    node.users.write_text(f'SCRAM-SHA-512=[name=admin,password="{PASSWORD}"]\n')
    with node:
        assert node.admin("SCRAM-SHA-512").list_topics(timeout=CALL_SECONDS_MAX).brokers
