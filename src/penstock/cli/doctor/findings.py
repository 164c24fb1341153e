"""What is wrong with a cluster, the most important first, each with what to do.

Pure: a state and its judgement go in, findings come out. A table of checks in the order of their
importance; each yields findings, which have a severity of their own. `critical`: data cannot be
used, or soon cannot; `warning`: safety is lost, or will be; `hint`: nothing is wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from ipaddress import ip_address
from typing import Final, NamedTuple

from penstock.cli.cluster.health import Health
from penstock.cli.cluster.state import ClusterState, Node, Partition
from penstock.cli.doctor.certificates import Shown
from penstock.cli.doctor.local import Limits
from penstock.cli.output import bytes_text, plural
from penstock.cli.thresholds import (
    CERTIFICATE_DAYS_CRITICAL,
    CERTIFICATE_DAYS_MIN,
    DISK_FREE_PART_CRITICAL,
    DISK_FREE_PART_MIN,
    FILES_PART_MAX,
)
from penstock.cli.values import duration_text
from penstock.kafka.client import place

NAMED_MAX: Final = 5
CLOCK_SKEW_MS_MAX: Final = 2_000
"""Timestamps, retention and the expiry of offsets go by clocks."""
FILES_MIN: Final = 16_384
"""Less is a limit of a shell, not of a server: logs and connections share it."""


class Severity(StrEnum):
    CRITICAL = "critical"
    WARNING = "warning"
    HINT = "hint"


class Finding(NamedTuple):
    severity: Severity
    problem: str
    advice: str


class Case(NamedTuple):
    """All that a check may look at."""

    state: ClusterState
    health: Health
    limits: dict[int, Limits]
    asked: str
    """The host that was asked first."""
    shown: Mapping[int, Shown]
    """The certificates of the nodes that speak TLS."""
    now: datetime


def examine(
    state: ClusterState,
    health: Health,
    limits: dict[int, Limits],
    asked: str,
    shown: Mapping[int, Shown] | None = None,
) -> list[Finding]:
    """Every finding; those of equal severity in the order of the checks."""
    case = Case(state, health, limits, asked, shown or {}, datetime.now(UTC))
    found = [finding for check in CHECKS for finding in check(case)]
    return sorted(found, key=lambda finding: list(Severity).index(finding.severity))


def _quorum(case: Case) -> Iterator[Finding]:
    if not case.health.has_quorum:
        yield Finding(
            Severity.CRITICAL,
            "the metadata quorum has no leader: nothing can be created, changed or failed over",
            "start the voters that are down, a majority of them; if they are lost for good, see"
            " `penstock cluster recover-quorum`",
        )
    elif case.health.voters_away:
        away = case.health.voters_away
        left = len(case.state.quorum.voters) - len(away) if case.state.quorum else 0
        yield Finding(
            Severity.WARNING,
            f"the quorum does not hear from {_ids('voter', away)}; {left} are left",
            "start them, or take them out with `penstock cluster remove-voter`",
        )


def _unreachable(case: Case) -> Iterator[Finding]:
    for node in (case.state.nodes[n] for n in case.health.unreachable):
        led = [p for p in case.health.leader_unreachable if p.leader == node.id]
        yield Finding(
            Severity.CRITICAL,
            f"node {node.id} does not answer at {place(node.address)}, where it is advertised; it"
            f" leads {plural(len(led), 'partition')}",
            "start it; if it runs, set its advertised.listeners to an address that clients can use,"
            " and let them through to it",
        )


def _leaderless(case: Case) -> Iterator[Finding]:
    if found := case.health.leaderless:
        yield Finding(
            Severity.CRITICAL,
            f"{_partitions(found)} without a leader: nobody can read or write there",
            "start the nodes that hold them; if those are lost for good, `penstock cluster"
            " elect-leaders --unclean` goes on with what is left",
        )


def _under_min_isr(case: Case) -> Iterator[Finding]:
    if found := [p for p in case.health.under_min_isr if p not in case.health.leaderless]:
        yield Finding(
            Severity.CRITICAL,
            f"{_partitions(found)} with fewer replicas in sync than min.insync.replicas: what is"
            " published with acks=all is refused",
            "start the nodes whose replicas are missing, or wait until they have caught up",
        )


def _stopped(case: Case) -> Iterator[Finding]:
    for node, folder in case.health.failed_folders:
        yield Finding(
            Severity.CRITICAL,
            f"{folder} on node {node} was stopped and serves nobody",
            "look into the log of that node, mend its disk, and start it anew",
        )


def _fenced(case: Case) -> Iterator[Finding]:
    if fenced := [node.id for node in case.state.nodes.values() if node.fenced]:
        yield Finding(
            Severity.WARNING,
            f"the controller does not hear from {_ids('node', fenced)}",
            "start them, or take them out with `penstock cluster drain` and `penstock cluster"
            " remove`",
        )


def _under_replicated(case: Case) -> Iterator[Finding]:
    worse = {p.key for p in (*case.health.leaderless, *case.health.under_min_isr)}
    if found := [p for p in case.health.under_replicated if p.key not in worse]:
        yield Finding(
            Severity.WARNING,
            f"{_partitions(found)} with replicas that are not in sync",
            "start the nodes that are away; where all are there, see their disks and their logs",
        )


def _disks(case: Case) -> Iterator[Finding]:
    for node, disk in case.state.disks.items():
        if disk.total_bytes <= 0 or disk.usable_bytes >= disk.total_bytes * DISK_FREE_PART_MIN:
            continue
        critical = disk.usable_bytes < disk.total_bytes * DISK_FREE_PART_CRITICAL
        yield Finding(
            Severity.CRITICAL if critical else Severity.WARNING,
            f"the disk of node {node} has {bytes_text(disk.usable_bytes)} left of"
            f" {bytes_text(disk.total_bytes)}",
            "lower the retention of large topics, move replicas away with `penstock cluster"
            " reassign`, or give it more disk",
        )


def _loopback(case: Case) -> Iterator[Finding]:
    """An address of the node's own machine is good for those who are there, and for nobody else."""
    if _is_loopback(case.asked):
        return
    for node in case.state.nodes.values():
        if not node.fenced and _is_loopback(node.host):
            yield Finding(
                Severity.CRITICAL,
                f"node {node.id} is advertised at {place(node.address)}, which is each client's"
                " own machine",
                "set its advertised.listeners to the name or address by which clients reach it",
            )


def _same_address(case: Case) -> Iterator[Finding]:
    nodes: dict[tuple[str, int], list[Node]] = {}
    for node in case.state.nodes.values():
        if not node.fenced:
            nodes.setdefault(node.address, []).append(node)
    for address, sharing in nodes.items():
        if len(sharing) > 1:
            yield Finding(
                Severity.CRITICAL,
                f"{_ids('node', [node.id for node in sharing])} are advertised at the same address,"
                f" {place(address)}",
                "give each an address of its own in advertised.listeners",
            )


def _clock(case: Case) -> Iterator[Finding]:
    quorum = case.state.quorum
    if quorum is not None and abs(quorum.clock_skew_ms) > CLOCK_SKEW_MS_MAX:
        ahead = "ahead of" if quorum.clock_skew_ms > 0 else "behind"
        by = duration_text(abs(quorum.clock_skew_ms))
        yield Finding(
            Severity.WARNING,
            f"the clock of node {quorum.leader} is {by} {ahead} that of this machine",
            "let both be set by NTP",
        )


def _files(case: Case) -> Iterator[Finding]:
    advice = "raise `ulimit -n` (LimitNOFILE= of systemd) to 100000 or more, and start it anew"
    for node, limits in case.limits.items():
        used = limits.files_open
        if used is not None and used > limits.files_max * FILES_PART_MAX:
            problem = f"node {node} has {used:,} files open of {limits.files_max:,} that it may"
            yield Finding(Severity.CRITICAL, problem, advice)
        elif limits.files_max < FILES_MIN:
            problem = f"node {node} may have only {limits.files_max:,} files and connections open"
            yield Finding(Severity.WARNING, problem, advice)


def _certificates(case: Case) -> Iterator[Finding]:
    for node, shown in case.shown.items():
        left = shown.ends - case.now
        if left >= timedelta(days=CERTIFICATE_DAYS_MIN):
            continue
        soon = left < timedelta(days=CERTIFICATE_DAYS_CRITICAL)
        yield Finding(
            Severity.CRITICAL if soon else Severity.WARNING,
            f"the certificate of node {node} ({shown.subject}) ends at"
            f" {shown.ends.isoformat(timespec='seconds')}",
            "write a new one over the file that ssl.keystore.location names; the node takes it"
            " without a restart",
        )


def _releases(case: Case) -> Iterator[Finding]:
    if len(set(case.state.releases.values())) > 1:
        by: dict[int, list[int]] = {}
        for node, release in case.state.releases.items():
            by.setdefault(release, []).append(node)
        fewest = by[min(by)]
        yield Finding(
            Severity.WARNING,
            f"the nodes are of different releases: {_ids('node', fewest)} can do less than others",
            "finish the upgrade, node by node",
        )


def _problems(case: Case) -> Iterator[Finding]:
    """What else could not be asked; that of a node that is away is told above."""
    if case.health.unreachable or not case.health.has_quorum:
        return
    for problem in case.state.problems:
        yield Finding(Severity.WARNING, problem, "see the log of the node, and try again")


def _features(case: Case) -> Iterator[Finding]:
    higher = [f.name for f in case.state.features.values() if (f.supported_max or 0) > f.finalized]
    if higher:
        yield Finding(
            Severity.HINT,
            f"all nodes support a higher level of {', '.join(higher)} than the one in force",
            "once no older node will come back, `penstock cluster features --upgrade` raises them",
        )


def _moving(case: Case) -> Iterator[Finding]:
    if count := len(case.state.reassignments):
        yield Finding(
            Severity.HINT,
            f"{plural(count, 'partition')} being reassigned",
            "`penstock cluster reassign --verify` says when it is done",
        )


CHECKS: Final[Sequence[Callable[[Case], Iterator[Finding]]]] = (
    _quorum,
    _unreachable,
    _leaderless,
    _under_min_isr,
    _stopped,
    _same_address,
    _loopback,
    _disks,
    _files,
    _certificates,
    _fenced,
    _under_replicated,
    _problems,
    _clock,
    _releases,
    _features,
    _moving,
)


def _ids(noun: str, ids: Sequence[int]) -> str:
    return f"{noun}{'' if len(ids) == 1 else 's'} {', '.join(map(str, ids))}"


def _partitions(found: Sequence[Partition]) -> str:
    names = ", ".join(str(p) for p in found[:NAMED_MAX])
    more = f" and {len(found) - NAMED_MAX} more" if len(found) > NAMED_MAX else ""
    return f"{plural(len(found), 'partition')} ({names}{more})"


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost" or host.lower().startswith("localhost.")
