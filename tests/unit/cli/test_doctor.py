"""Each trouble becomes one finding with what to do, the worst first."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from penstock.base.ids import ZERO_UUID
from penstock.cli.cluster.health import judge
from penstock.cli.cluster.state import (
    ClusterState,
    Disk,
    Feature,
    Node,
    Partition,
    Quorum,
    Replica,
)
from penstock.cli.doctor.certificates import Shown
from penstock.cli.doctor.findings import Finding, Severity, examine
from penstock.cli.doctor.local import Limits, local_limits

GIB = 1 << 30


def cluster() -> ClusterState:
    """Three nodes, where all is well."""
    state = ClusterState("id", {i: Node(i, f"h{i}", 9092, None, False) for i in (1, 2, 3)})
    state.partitions = {("t", 0): Partition("t", 0, 1, (1, 2, 3), (1, 2, 3))}
    state.quorum = Quorum(1, 5, 40, [Replica(i, ZERO_UUID, 40, 0, 0) for i in (1, 2, 3)], [], {})
    state.disks = {i: Disk(100 * GIB, 50 * GIB, False, {}) for i in (1, 2, 3)}
    state.releases = dict.fromkeys((1, 2, 3), 300)
    return state


def findings(
    state: ClusterState, limits: dict[int, Limits] | None = None, asked: str = "h1"
) -> list[Finding]:
    return examine(state, judge(state, {"t": 2}), limits or {}, asked)


def test_nothing_is_wrong() -> None:
    assert findings(cluster(), {1: Limits(1_000_000, 100)}) == []


def test_the_worst_comes_first() -> None:
    state = cluster()
    state.quorum = None
    state.unreachable = [2]
    state.nodes[3] = state.nodes[3]._replace(fenced=True)
    state.partitions = {
        ("t", 0): Partition("t", 0, 2, (1, 2), (1, 2)),
        ("t", 1): Partition("t", 1, None, (3,), ()),
        ("t", 2): Partition("t", 2, 1, (1, 2, 3), (1,)),
        ("u", 0): Partition("u", 0, 1, (1, 3), (1,)),
    }
    found = findings(state)
    begins = (
        "the metadata quorum has no leader",
        "node 2 does not answer at h2:9092, where it is advertised; it leads 1 partition",
        "1 partition (t-1) without a leader",
        "1 partition (t-2) with fewer replicas in sync",
        "the controller does not hear from node 3",
        "1 partition (u-0) with replicas that are not in sync",
    )
    assert len(found) == len(begins)
    for finding, begin in zip(found, begins, strict=True):
        assert finding.problem.startswith(begin)
        assert finding.advice
    assert [f.severity for f in found] == [Severity.CRITICAL] * 4 + [Severity.WARNING] * 2


@pytest.mark.parametrize(
    ("days", "severity"),
    [(15, None), (13, Severity.WARNING), (1, Severity.CRITICAL), (-1, Severity.CRITICAL)],
)
def test_a_certificate_that_ends(days: int, severity: Severity | None) -> None:
    state = cluster()
    shown = {2: Shown("CN=h2", datetime.now(UTC) + timedelta(days=days))}
    found = examine(state, judge(state, {"t": 2}), {}, "h1", shown)
    assert [f.severity for f in found] == ([severity] if severity else [])
    assert all("node 2 (CN=h2)" in f.problem for f in found)


@pytest.mark.parametrize(
    ("free", "severity"),
    [(50, None), (10, None), (9, Severity.WARNING), (2, Severity.CRITICAL)],
)
def test_a_disk_that_gets_full(free: int, severity: Severity | None) -> None:
    state = cluster()
    state.disks[2] = Disk(100 * GIB, free * GIB, False, {})
    assert [f.severity for f in findings(state)] == ([severity] if severity else [])


def test_a_stopped_replica() -> None:
    state = cluster()
    state.disks[2] = Disk(100, 50, False, {}, ("/data/t-0",))
    [finding] = findings(state)
    assert finding.problem == "/data/t-0 on node 2 was stopped and serves nobody"


@pytest.mark.parametrize(
    ("skew_ms", "said"), [(2_000, None), (60_000, "ahead"), (-5_000, "behind")]
)
def test_the_clock_of_the_leader(skew_ms: int, said: str | None) -> None:
    state = cluster()
    assert state.quorum is not None
    state.quorum = state.quorum._replace(clock_skew_ms=skew_ms)
    assert [said in f.problem for f in findings(state) if said] == ([True] if said else [])
    assert len(findings(state)) == bool(said)


def test_addresses_that_are_good_for_nobody_else() -> None:
    state = cluster()
    state.nodes[2] = Node(2, "127.0.0.1", 9092, None, False)
    state.nodes[3] = Node(3, "h1", 9092, None, False)
    problems = [f.problem for f in findings(state)]
    assert problems == [
        "nodes 1, 3 are advertised at the same address, h1:9092",
        "node 2 is advertised at 127.0.0.1:9092, which is each client's own machine",
    ]
    assert len(findings(state, asked="localhost")) == 1, "whoever asks there is there"


@pytest.mark.parametrize(
    ("limits", "severity"),
    [
        (Limits(1_024, 100), Severity.WARNING),
        (Limits(20_000, 19_000), Severity.CRITICAL),
        (Limits(20_000, None), None),
    ],
)
def test_files_that_a_node_may_open(limits: Limits, severity: Severity | None) -> None:
    found = findings(cluster(), {1: limits})
    assert [f.severity for f in found] == ([severity] if severity else [])


def test_a_voter_that_is_away_and_releases_that_differ() -> None:
    state = cluster()
    assert state.quorum is not None
    state.quorum.voters[2] = Replica(3, ZERO_UUID, 40, 0, 60_000)
    state.releases[2] = 290
    assert [f.problem for f in findings(state)] == [
        "the quorum does not hear from voter 3; 2 are left",
        "the nodes are of different releases: node 2 can do less than others",
    ]


def test_what_could_not_be_asked_is_a_problem() -> None:
    state = cluster()
    state.problems = ["cannot list the reassignments: no"]
    assert [f.problem for f in findings(state)] == state.problems


def test_a_higher_level_is_only_a_hint() -> None:
    state = cluster()
    state.features = {"f": Feature("f", 1, 1, 2), "unknown": Feature("unknown", 1, None, None)}
    [finding] = findings(state)
    assert finding.severity is Severity.HINT
    assert " f than" in finding.problem


def test_no_node_of_another_machine_is_looked_for_here() -> None:
    state = cluster()
    state.nodes[1] = Node(1, "192.0.2.1", 9092, None, False)
    state.disks = {1: Disk(1, 1, False, {}, (), ("/proc/self",))}
    assert local_limits(state) == {}
