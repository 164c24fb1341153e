"""What a person sees: colours and tables on a terminal, and a question before something is lost."""

from __future__ import annotations

import os
import pty
import re
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from penstock.config.broker_security import STANDARD_AUTHORIZER
from support.cluster import Cluster
from support.helpers import eventually
from support.process import BrokerProcess

from .conftest import COMMAND_SECONDS_MAX, PENSTOCK

Topics = Callable[..., str]


class Terminal:
    """A command on a terminal of its own, with what has been shown there so far."""

    def __init__(self, process: subprocess.Popen[bytes], master: int) -> None:
        self.process = process
        self._master = master
        self._shown = b""

    def read(self) -> str:
        """All that is shown up to now."""
        try:
            while chunk := os.read(self._master, 65536):
                self._shown += chunk
        except OSError:  # nothing at the moment, or the command has closed the terminal
            pass
        return self._shown.decode()

    def type(self, text: str) -> None:
        os.write(self._master, text.encode())

    def end(self) -> tuple[int, str]:
        """The exit code and all that was shown."""
        eventually(lambda: (self.read(), self.process.poll() is not None)[1], COMMAND_SECONDS_MAX)
        return self.process.returncode, self.read()


@contextmanager
def terminal(node: BrokerProcess | Cluster, *args: str) -> Iterator[Terminal]:
    master, slave = pty.openpty()
    os.set_blocking(master, False)
    environment = {**os.environ, "PENSTOCK_BOOTSTRAP": node.bootstrap, "TERM": "xterm"}
    environment.pop("NO_COLOR", None)
    command = [*PENSTOCK, *args]
    with subprocess.Popen(
        command, stdin=slave, stdout=slave, stderr=slave, env=environment
    ) as process:
        os.close(slave)
        try:
            yield Terminal(process, master)
        finally:
            process.kill()
            os.close(master)


def test_tables_have_colours_on_a_terminal(node: BrokerProcess, topic: Topics) -> None:
    name = topic(partitions=2)
    with terminal(node, "topic", "list") as watched:
        code, shown = watched.end()
    assert code == 0
    assert "\x1b[" in shown
    plain = re.sub(r"\x1b\[[\d;]*m", "", shown)
    assert [name, "2", "1"] in [line.split() for line in plain.splitlines()]


@pytest.mark.parametrize(("answer", "code", "is_left"), [("y\n", 0, False), ("n\n", 1, True)])
def test_a_person_is_asked_before_a_topic_is_deleted(
    node: BrokerProcess, topic: Topics, answer: str, code: int, is_left: bool
) -> None:
    name = topic()
    with terminal(node, "topic", "delete", name) as asked:
        eventually(lambda: f"Delete {name} and all messages in it? [y/N]" in asked.read())
        asked.type(answer)
        ended, shown = asked.end()
    assert ended == code, shown
    with terminal(node, "topic", "describe", name) as looked:
        assert (looked.end()[0] == 0) == is_left


def test_a_person_sees_the_acls_before_they_are_deleted(
    fresh_node: Callable[..., BrokerProcess],
) -> None:
    acls = {"authorizer.class.name": STANDARD_AUTHORIZER, "super.users": "User:ANONYMOUS"}
    node = fresh_node(settings=acls)
    options = ("--allow", "--operation", "read", "--topic", "orders")
    with terminal(node, "acl", "create", "--principal", "User:ann", *options) as created:
        ended, shown = created.end()
    assert ended == 0, shown
    for answer, code, said in (("n\n", 1, "nothing was changed"), ("y\n", 0, "deleted 1 ACL")):
        with terminal(node, "acl", "delete", "--principal", "User:ann") as asked:
            eventually(lambda asked=asked: "Delete 1 ACL? [y/N]" in asked.read())
            assert "orders" in asked.read()
            asked.type(answer)
            ended, shown = asked.end()
        assert ended == code, shown
        assert said in shown


def test_what_is_typed_is_published(node: BrokerProcess, topic: Topics) -> None:
    name = topic()
    with terminal(node, "topic", "produce", name) as typed:
        eventually(lambda: "Ctrl-D ends the input" in typed.read())
        typed.type("hello\n\x04")
        code, shown = typed.end()
    assert code == 0
    assert f"published 1 message to {name}" in shown
    with terminal(node, "topic", "consume", name) as watched:
        assert watched.end() == (0, "hello\r\n")
