"""`penstock doctor`: looks at everything that can be asked, and says in order of importance what is
wrong and what to do.

The exit code is 0 only when nothing is wrong: 3 when something is, 1 when nobody could be asked.
Hints are no faults. What the protocol does not tell is listed as not checked, so that silence is
not taken for health.
"""

from __future__ import annotations

from penstock.cli.access import Access
from penstock.cli.cluster.asking import Brokers
from penstock.cli.cluster.configs import read_min_isr
from penstock.cli.cluster.health import judge, under_replicated
from penstock.cli.cluster.state import ClusterState, gather
from penstock.cli.cluster.status import EXIT_DEGRADED
from penstock.cli.doctor.certificates import shown_certificates
from penstock.cli.doctor.findings import Finding, Severity, examine
from penstock.cli.doctor.local import Limits, local_limits
from penstock.cli.options import Format, OutputFormat
from penstock.cli.output import plural, print_json, title

_NOT_TOLD = "clocks of single brokers: the protocol tells only that of the quorum's leader"


def doctor(access: Access, output_format: OutputFormat = Format.TEXT) -> int:
    """Say what is wrong with the cluster, the worst first, and what to do; exit code 3 if anything
    is.
    """
    brokers = Brokers(access)
    state = gather(brokers)
    short = sorted({p.topic for p in under_replicated(state)})
    limits = local_limits(state)
    asked = brokers.cluster.reached.address[0]
    answering = [node for node in state.nodes.values() if node.id in state.releases]
    shown = shown_certificates(brokers, answering)
    health = judge(state, read_min_isr(brokers, short))
    findings = examine(state, health, limits, asked, shown)
    if output_format is Format.JSON:
        print_json(
            {
                "cluster_id": state.cluster_id,
                "healthy": not _wrong(findings),
                "findings": [finding._asdict() for finding in findings],
                "not_checked": _not_checked(state, limits),
            }
        )
    else:
        _print(state, findings, limits)
    return EXIT_DEGRADED if _wrong(findings) else 0


def _wrong(findings: list[Finding]) -> list[Finding]:
    return [finding for finding in findings if finding.severity is not Severity.HINT]


def _not_checked(state: ClusterState, limits: dict[int, Limits]) -> list[str]:
    far = [str(node) for node in state.nodes if node not in limits]
    if not far:
        return [_NOT_TOLD]
    return [_NOT_TOLD, f"limits of the processes of nodes on other machines: {', '.join(far)}"]


def _print(state: ClusterState, findings: list[Finding], limits: dict[int, Limits]) -> None:
    wrong = _wrong(findings)
    verdict = plural(len(wrong), "problem") if wrong else "nothing is wrong"
    title(f"cluster {state.cluster_id}: {verdict}")
    nodes, partitions = len(state.nodes), len(state.partitions)
    print(f"looked at {plural(nodes, 'node')} and {plural(partitions, 'partition')}")
    for number, finding in enumerate(findings, 1):
        print(f"{number}. {finding.severity}: {finding.problem}")
        print(f"   {finding.advice}")
    for text in _not_checked(state, limits):
        print(f"not checked: {text}")
