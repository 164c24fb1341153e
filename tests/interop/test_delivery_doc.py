"""What docs/delivery.md promises: its programs run as they stand, and keep their word when killed.

Each program is taken from the page. To kill one in the midst of its work, its `handle` is made to
note what it does in a file, and to end the process with SIGKILL at a message of the second batch
when it comes to it for the first time.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from support.helpers import make_topic, read
from support.process import BrokerProcess

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "delivery.md").read_text()
PROGRAMS = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
MESSAGES, BATCH, FATAL = 30, 10, 15
QUICK = {"group.initial.rebalance.delay.ms": "0"}
END_SECONDS_MAX = 90

CRASHING = """
import os, pathlib, signal

_log = pathlib.Path({log!r})
_as_documented = handle


def handle(message):
    number = int(message.value().split()[-1])
    before = _log.read_text().split() if _log.exists() else []
    with _log.open("a") as file:
        file.write(f"{{number}} ")
    if number == {fatal} and str(number) not in before:
        os.kill(os.getpid(), signal.SIGKILL)
    return _as_documented(message)


"""


@pytest.fixture
def delivery_node(fresh_node: Callable[..., BrokerProcess]) -> BrokerProcess:
    node = fresh_node(settings=QUICK)
    for topic in ("measurements", "orders", "payments", "receipts"):
        make_topic(node, topic)
    return node


def run(node: BrokerProcess, program: str) -> subprocess.CompletedProcess[str]:
    assert "localhost:9092" in program
    code = program.replace("localhost:9092", node.bootstrap)
    return subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=END_SECONDS_MAX,
        check=False,
    )


def program(heading: str, number: int) -> str:
    """The program of a section, by its place there."""
    section = re.split(r"^## ", PAGE, flags=re.MULTILINE)
    [text] = [part for part in section if part.startswith(heading + "\n")]
    return re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)[number]


def crashing(program: str, log: Path) -> str:
    """The program with the other `handle`, which comes right after its own."""
    head, handler, rest = re.split(r"(^def handle.*?\n\n\n)", program, flags=re.DOTALL | re.M)
    return head + handler + CRASHING.format(log=str(log), fatal=FATAL) + rest


def handled_with_a_kill(node: BrokerProcess, heading: str, log: Path) -> Counter[int]:
    """How often each message was handled by a reader that died once and was started again."""
    published = run(node, program(heading, 0))
    assert published.returncode == 0, published.stderr
    reader = crashing(program(heading, 1), log)
    assert run(node, reader).returncode == -9
    again = run(node, reader)
    assert again.returncode == 0, again.stderr
    return Counter(map(int, log.read_text().split()))


def test_every_program_is_tested() -> None:
    headings = ("At most once", "At least once", "Exactly once")
    assert [program(heading, n) for heading in headings for n in (0, 1)] == PROGRAMS


@pytest.mark.timeout(300)
def test_at_most_once(delivery_node: BrokerProcess, tmp_path: Path) -> None:
    handled = handled_with_a_kill(delivery_node, "At most once", tmp_path / "log")
    assert set(handled.values()) == {1}, "nothing is handled twice"
    lost = set(range(MESSAGES)) - set(handled)
    assert lost == set(range(FATAL + 1, 2 * BATCH)), "only what was under way is lost"


@pytest.mark.timeout(300)
def test_at_least_once(delivery_node: BrokerProcess, tmp_path: Path) -> None:
    handled = handled_with_a_kill(delivery_node, "At least once", tmp_path / "log")
    assert set(handled) == set(range(MESSAGES)), "nothing is left out"
    repeated = {number for number, times in handled.items() if times > 1}
    assert repeated == set(range(BATCH, FATAL + 1)), "what was not committed comes again"


@pytest.mark.timeout(300)
def test_exactly_once(delivery_node: BrokerProcess, tmp_path: Path) -> None:
    handled = handled_with_a_kill(delivery_node, "Exactly once", tmp_path / "log")
    assert handled[FATAL] == 2, "it was killed while it was handling"
    seen = read(delivery_node, "receipts", MESSAGES, isolation_level="read_committed")
    values = [(message.value() or b"").decode() for message in seen]
    assert values == [f"receipt for payment {i}" for i in range(MESSAGES)]
