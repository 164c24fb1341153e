"""peers.md: the goals first, then each section of the catalogue, then what is said of each peer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from .figures import OURS, Results, Spread, number
from .goals import Goal, Verdict
from .workloads import Metric, Workload

LEGEND = (
    "Each figure is the median of the rounds (and their range). A ratio (`1.25x`) is Penstock's"
    " figure divided by the peer's, taken within each round: above 1 Penstock has more of it, which"
    " is good for messages/s and bad for times, memory and CPU. Server and load share the"
    " machine's cores, for every peer alike."
)


def markdown(results: Results, workloads: Sequence[Workload], goals: Sequence[Goal]) -> str:
    """The whole page."""
    rounds = max(
        (len(entries) for peers in results.values.values() for entries in peers.values()),
        default=0,
    )
    plural = "" if rounds == 1 else "s"
    head = f"{results.machine}; {rounds} round{plural}, {results.seconds:g} s per case."
    if stolen := results.stolen():
        head += (
            f" The machine's host took away {stolen.median:.1%} of it in the median case, and up to"
            f" {stolen.high:.1%}."
        )
    lines = ["# Penstock beside its peers", "", head, "", LEGEND, ""]
    measured = [w for w in workloads if w.name in results.values]
    lines += goals_table(results, [g for g in goals if g.workload in results.values])
    for section in dict.fromkeys(workload.section for workload in measured):
        of_section = [workload for workload in measured if workload.section == section]
        lines += [f"## {section}", "", *section_table(results, of_section), ""]
    lines += ["## The peers", "", *peers_table(results), "", *failures(results)]
    return "\n".join(lines).rstrip() + "\n"


def goals_table(results: Results, goals: Sequence[Goal]) -> Iterator[str]:
    if not goals:
        return
    yield from ("## Goals", "")
    yield "| what | Penstock | against | its figure | ratio | goal | met |"
    yield "|---|---:|---|---:|---:|---|---|"
    for goal in goals:
        verdict = Verdict(goal, results)
        what = ", ".join(filter(None, (goal.workload, goal.metric.label, goal.metric.unit)))
        cells = (
            what,
            verdict.ours.text() if verdict.ours else verdict.state.nothing or "",
            verdict.against,
            _their_figure(verdict),
            _times(verdict.ratio) if verdict.ratio else "",
            goal.goal_text(),
            verdict.text(),
        )
        yield f"| {' | '.join(cells)} |"
    yield ""


def _their_figure(verdict: Verdict) -> str:
    if verdict.theirs:
        return verdict.theirs.text()
    return (verdict.their_state.nothing or "") if verdict.their_state else ""


def section_table(results: Results, workloads: Sequence[Workload]) -> Iterator[str]:
    present = [
        name
        for name in results.peers
        if any(name in results.values[workload.name] for workload in workloads)
    ]
    idle = {name: reason for name in present if (reason := _only_reason(results, workloads, name))}
    peers = [name for name in present if name not in idle]
    yield f"| workload | unit | {' | '.join(peers)} |"
    yield f"|---|---|{'---:|' * len(peers)}"
    if not workloads[0].copies_in_title:
        policy = "durability_fsync" if workloads[0].fsync else "durability"
        told = [results.peers[name] for name in peers]
        cells = [f"{t.get('replication', '')}; {t.get(policy, '')}" for t in told]
        yield f"| *copies; when a message is on disk* | | {' | '.join(cells)} |"
    for workload in workloads:
        for metric in workload.metrics:
            name = ", ".join(filter(None, (workload.name, metric.label)))
            cells = [cell(results, workload.name, metric, peer) for peer in peers]
            yield f"| {name} | {metric.unit} | {' | '.join(cells)} |"
    if idle:
        yield ""
    for name, reason in idle.items():
        yield f"- {name}: {reason}"


def _only_reason(results: Results, workloads: Sequence[Workload], peer: str) -> str | None:
    """The reason why a peer has nothing in a whole section, if it is one and the same."""
    told = {
        entry.get("cannot")
        for workload in workloads
        for entry in results.values[workload.name].get(peer, [])
    }
    return told.pop() if len(told) == 1 else None


def cell(results: Results, workload: str, metric: Metric, peer: str) -> str:
    """One peer's figure with its ratio, or why there is none."""
    state = results.state(workload, peer)
    spread = results.spread(workload, peer, metric.key)
    if spread is None:
        return state.nothing or "not measured"
    parts = [spread.text()]
    if peer != OURS and (found := results.ratio(workload, peer, metric.key)):
        parts.append(_times(found))
    if state.blemish:
        parts.append(state.blemish)
    return "<br>".join(parts)


def _times(ratio: Spread) -> str:
    if ratio.low == ratio.high:
        return f"{number(ratio.median)}x"
    return f"{number(ratio.median)}x ({number(ratio.low)} to {number(ratio.high)})"


def peers_table(results: Results) -> Iterator[str]:
    yield "| peer | version | copies | when a message is on disk | with fsync before ack |"
    yield "|---|---|---|---|---|"
    for name, told in results.peers.items():
        if reason := results.missing(name):
            yield f"| {name} | missing: {reason} | | | |"
            continue
        synced = told.get("durability_fsync", "")
        durability = told.get("durability", "")
        yield f"| {name} | {told['version']} | {told['replication']} | {durability} | {synced} |"


def failures(results: Results) -> Iterator[str]:
    told = [
        f"- {workload}, {peer}, round {entry['round']}: {' '.join(entry['failed'].split())}"
        for workload, peers in results.values.items()
        for peer, entries in peers.items()
        for entry in entries
        if "failed" in entry
    ]
    if told:
        yield from ("## What failed", "", *told)
