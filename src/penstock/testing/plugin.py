"""The fixtures that pytest finds in every environment that has Penstock (entry point `penstock`;
`-p no:penstock` leaves them out).

A test that asks for none of them is run as if they were not there: nothing is started, and no
option or marker is added. With pytest-xdist each worker is a process, and has its own.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping

import pytest

from penstock.testing import Cluster, Node, cluster, node
from penstock.testing.processes import Value


@pytest.fixture(scope="session")
def penstock_settings() -> Mapping[str, Value]:
    """The broker settings of all nodes; a `conftest.py` may have its own instead."""
    return {}


@pytest.fixture(scope="session")
def penstock(penstock_settings: Mapping[str, Value]) -> Iterator[Node]:
    """A node that all tests of this process share; each makes topics of its own."""
    with node(penstock_settings) as shared:
        yield shared


@pytest.fixture
def penstock_topic(penstock: Node) -> str:
    """A new topic of the shared node, with one partition."""
    return penstock.create_topic()


@pytest.fixture
def penstock_node(penstock_settings: Mapping[str, Value]) -> Iterator[Node]:
    """A node for this test alone, which may stop and kill it."""
    with node(penstock_settings) as own:
        yield own


@pytest.fixture
def penstock_cluster(penstock_settings: Mapping[str, Value]) -> Iterator[Cluster]:
    """A cluster of three nodes for this test alone."""
    with cluster(3, penstock_settings) as own:
        yield own


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A test that failed shows the ends of the logs of the nodes that it was given."""
    report = yield
    if report.failed:
        given = getattr(item, "funcargs", {})
        for name, value in given.items():
            if isinstance(value, Node):
                report.sections.append((f"log of {name}", value.log_tail()))
            elif isinstance(value, Cluster):
                report.sections.append((f"logs of {name}", value.log_tails()))
    return report
