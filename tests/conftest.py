"""Fixtures for tests that talk to a running broker.

`--target penstock` (the default) runs them against Penstock, `--target kafka` against Apache Kafka,
so that every expectation can be shown to be what Kafka does. `node` is one broker per test process,
shared by all tests of it, which therefore use topics of their own (`topic`); `fresh_node` makes
brokers for one test.
"""

from __future__ import annotations

import itertools
import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

sys.path.insert(0, str(Path(__file__).resolve().parent))

from support import order, reference, rotation
from support.cluster import Cluster
from support.features import ELIGIBLE_LEADER_REPLICAS, SHARE_VERSION, enable_feature
from support.helpers import TopicMaker
from support.node import NodeProcess
from support.process import LOG_NAME, BrokerProcess, tail
from support.reference import KafkaProcess

# How long an example takes says how busy the machine is.
settings.register_profile("unhurried", deadline=None)
settings.load_profile("unhurried")

# A shell that runs the tests in the background has them ignore Ctrl-C, and so would the commands
# that tests stop with it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# A profile that somebody uses on this machine is not meant for the tests.
os.environ["XDG_CONFIG_HOME"] = os.devnull

# Topics are made by the tests, on purpose; a typo in one must not make a topic. Many tests write
# messages with timestamps of years ago, which the first look of a broker that lives for more than
# five minutes would delete under their hands.
SHARED_SETTINGS = {
    "auto.create.topics.enable": "false",
    "log.retention.check.interval.ms": "86400000",
}

# Of so many nodes that a test has started in its folder the ends of the logs are shown.
LOGS_MAX = 8

NodeMaker = Callable[..., BrokerProcess]
_topic_numbers = itertools.count(1)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--target",
        choices=("penstock", "kafka"),
        default="penstock",
        help="the broker that the interop tests talk to",
    )
    parser.addoption(
        "--rotation",
        choices=("all", "today", "others"),
        default="all",
        help="of the tests that rotate: all, those whose turn it is today, or only the others",
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "penstock_only: what Kafka does not promise or does not do")
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(order.Durations())
        config.pluginmanager.register(rotation.Rotation())


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Spreads tests over the workers one by one, or by group where they have one."""
    if config.getoption("dist") != "load":
        return None
    from xdist.scheduler import LoadScopeScheduling  # type: ignore[import-untyped]

    class Scheduling(LoadScopeScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            return order.group(nodeid)

    # They come in the order in which the workers have put them.
    config.option.loadscopereorder = False
    return Scheduling(config, log)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    rotation.deselect(config, items)
    on_kafka = config.getoption("--target") == "kafka"
    reason = reference.missing()
    for item in items:
        if reason is not None and (on_kafka or item.get_closest_marker("java")):
            item.add_marker(pytest.mark.skip(reason=reason))
        if on_kafka and item.get_closest_marker("penstock_only"):
            item.add_marker(pytest.mark.skip(reason="only Penstock does this"))
    if hasattr(config, "workerinput"):
        seconds = config.workerinput[order.WORKER_INPUT]
        places = order.longest_first([item.nodeid for item in items], seconds)
        by_name = {nodeid: place for place, nodeid in enumerate(places)}
        items.sort(key=lambda item: by_name[item.nodeid])


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    outcome: Any = yield
    report = outcome.get_result()
    if report.failed:
        for path, kind in _node_logs(getattr(item, "funcargs", {})).items():
            where = f"{path.parent.parent.name}/{path.parent.name}"
            report.sections.append((f"log of {kind} in {where}", tail(path)))


def _node_logs(fixtures: dict[str, Any]) -> dict[Path, str]:
    """The logs of the brokers that a test was given, and of those it has started in its folder."""
    found: dict[Path, str] = {}
    for value in fixtures.values():
        value = list(value.nodes.values()) if isinstance(value, Cluster) else value
        for broker in value if isinstance(value, list) else [value]:
            if isinstance(broker, BrokerProcess):
                found[broker.log_path] = broker.KIND
    own = fixtures.get("tmp_path")
    if own is not None and own.is_dir():
        for path in sorted(own.rglob(LOG_NAME))[:LOGS_MAX]:
            found.setdefault(path, "a node")
    return found


def _make(kind: str, root: Path, settings: dict[str, str]) -> BrokerProcess:
    return (KafkaProcess if kind == "kafka" else NodeProcess)(root, settings)


@pytest.fixture(scope="session")
def target(request: pytest.FixtureRequest) -> str:
    """Which broker the interop tests talk to."""
    return str(request.config.getoption("--target"))


@pytest.fixture(scope="session")
def shared_node(target: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with _make(target, tmp_path_factory.mktemp("node"), SHARED_SETTINGS) as broker:
        yield broker


@pytest.fixture
def node(shared_node: BrokerProcess) -> BrokerProcess:
    """The broker that every test of this process shares; it is never stopped by a test."""
    assert shared_node.running, "the shared broker has died:\n" + shared_node.log_tail()
    return shared_node


@pytest.fixture(scope="session")
def share_groups(target: str, shared_node: BrokerProcess) -> None:
    """The shared broker serves share groups; Kafka as the tests start it has them switched off."""
    if target == "kafka":
        enable_feature(shared_node.bootstrap, SHARE_VERSION)


@pytest.fixture(scope="session")
def kafka(target: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """Apache Kafka as the referee, whatever the target is."""
    with _make("kafka", tmp_path_factory.mktemp("kafka"), SHARED_SETTINGS) as broker:
        enable_feature(broker.bootstrap, ELIGIBLE_LEADER_REPLICAS)
        yield broker


@pytest.fixture
def brokers() -> Iterator[list[BrokerProcess]]:
    """Every broker that this test has started, for the report and the clean-up."""
    made: list[BrokerProcess] = []
    yield made
    for broker in made:
        broker.kill()


@pytest.fixture
def fresh_node(target: str, tmp_path: Path, brokers: list[BrokerProcess]) -> NodeMaker:
    """Starts a broker for this test alone: `fresh_node(settings={...}, root=..., name=...)`."""

    def make(
        *, settings: dict[str, str] | None = None, root: Path | None = None, name: str = "fresh"
    ) -> BrokerProcess:
        broker = _make(target, root or tmp_path / name, SHARED_SETTINGS | (settings or {}))
        brokers.append(broker)
        return broker.start()

    return make


@pytest.fixture
def topic_name() -> Callable[[], str]:
    """Names that no other test uses."""
    return lambda: f"t-{os.getpid()}-{next(_topic_numbers)}"


@pytest.fixture
def topic(node: BrokerProcess, topic_name: Callable[[], str]) -> TopicMaker:
    """Makes topics on the shared broker: `topic(partitions=1, config={...})` returns the name."""
    return TopicMaker(node, topic_name)


@pytest.fixture(scope="session")
def broker_maker(target: str) -> Callable[[Path], BrokerProcess]:
    """Makes, but does not start, a broker of the target's kind: `broker_maker(root)`."""
    return lambda root: _make(target, root, SHARED_SETTINGS)
