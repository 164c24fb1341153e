"""security.md: the goals first, then a table for each part."""

from __future__ import annotations

from bench.peers.figures import Results
from bench.peers.table import failures, goals_table, peers_table, section_table
from bench.peers.workloads import Workload

from . import beside, idle, storms, variants

LEGEND = (
    "Each figure is the median of the rounds (and their range). A ratio (`1.25x`) is that of the"
    " column Penstock divided by the figure it stands at, taken within each round: Penstock has TLS"
    " beside Kafka, and what the title of a table names in the others. Server and load share the"
    " machine's cores, and both encrypt."
)
WORKLOADS: tuple[Workload, ...] = (
    *beside.CHOSEN,
    *(w for comparison in variants.COMPARISONS for w in comparison.workloads),
    *storms.WORKLOADS,
    *map(idle.workload, idle.COUNTS),
)
GOALS = (
    *beside.GOALS,
    *(goal for comparison in variants.COMPARISONS for goal in comparison.goals),
    *storms.GOALS,
)


def page(results: Results) -> str:
    """The whole page."""
    lines = ["# What security costs", "", f"{results.machine}; {results.seconds:g} s per case."]
    lines += ["", LEGEND, ""]
    lines += goals_table(results, [goal for goal in GOALS if goal.workload in results.values])
    measured = [workload for workload in WORKLOADS if workload.name in results.values]
    for section in dict.fromkeys(workload.section for workload in measured):
        of_section = [workload for workload in measured if workload.section == section]
        lines += [f"## {section}", "", *section_table(results, of_section), ""]
    lines += ["## The columns", "", *peers_table(results), "", *failures(results)]
    return "\n".join(lines).rstrip() + "\n"
