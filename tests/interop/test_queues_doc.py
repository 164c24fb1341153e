"""The commands of docs/queues.md about looking into a queue and redriving work, in their order."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from support.features import SHARE_VERSION, enable_feature
from support.helpers import make_topic, produce_all, producer
from support.process import BrokerProcess
from support.raw import RawClient
from support.share_groups import REJECT, SHARE_SETTINGS, set_group, share_member
from support.waiting import eventually

PAGE = Path(__file__).resolve().parents[2] / "docs" / "queues.md"
SECTION = "Looking into a queue, redrive"
TOPIC, GROUP, DEAD = "tasks", "workers", "dlq.tasks"

pytestmark = pytest.mark.penstock_only


@pytest.fixture
def node(broker_maker: Callable[[Path], BrokerProcess], tmp_path: Path) -> Iterator[BrokerProcess]:
    """The page's topic and group, with four dead letters, and a message that nobody took."""
    broker = broker_maker(tmp_path / "node")
    broker.settings |= SHARE_SETTINGS
    with broker:
        enable_feature(broker.bootstrap, SHARE_VERSION, 2)
        make_topic(broker, DEAD, 1, {"errors.deadletterqueue.group.enable": "true"})
        make_topic(broker, TOPIC)
        with RawClient(broker.host, broker.port) as client:
            set_group(
                client,
                GROUP,
                share_auto_offset_reset="earliest",
                errors_deadletterqueue_topic_name=DEAD,
            )
        publish(broker, *"abcd")
        with share_member(broker.bootstrap, GROUP, TOPIC) as member:
            left = 4
            while left:
                found = member.next()
                member.say(REJECT, *found)
                left -= len(found)
        publish(broker, "e")
        yield broker


def publish(broker: BrokerProcess, *sent: str) -> None:
    produce_all(producer(broker), TOPIC, [{"value": value.encode()} for value in sent])


def run(node: BrokerProcess, command: str) -> str:
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        command,
        shell=True,
        env={**os.environ, "PATH": path, "PENSTOCK_BOOTSTRAP": node.bootstrap},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, (command, done.stdout, done.stderr)
    return done.stdout


def test_the_commands_of_the_page(node: BrokerProcess) -> None:
    section = PAGE.read_text().partition(f"## {SECTION}\n")[2].partition("\n## ")[0]
    blocks = re.findall(r"```sh\n(.*?)```", section, re.DOTALL)
    looking, redriving, purging = [block.strip().splitlines() for block in blocks]
    eventually(lambda: run(node, looking[3]).count("rejected") == 4)
    shown = [run(node, command) for command in looking]
    assert GROUP in shown[0]
    assert "4 dead in dlq.tasks" in shown[1]
    assert "tasks:0:4" in shown[2]
    told = [run(node, command) for command in redriving]
    assert told == [
        "4 messages would be revived in place\n",
        "1 message revived in place\n",
        "3 messages revived in place\n",
        "0 messages revived in place\n",
    ]
    assert [run(node, command).splitlines()[0] for command in purging] == [
        "would purge 5 messages of workers",
        "purged 5 messages of workers",
    ]
