"""Medians, ranges, ratios and verdicts of `bench/peers`, from made-up rounds."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from bench.peers import queues, three_nodes
from bench.peers.figures import OURS, Results, Spread, number, ratio
from bench.peers.goals import GOALS, KAFKA, NOBODY, THE_OTHERS, Goal, Verdict
from bench.peers.plots import advantage
from bench.peers.table import cell, markdown
from bench.peers.workloads import END_TO_END, MB, RATE, SECONDS, WORKLOADS, Workload

LOAD = Workload("publish", "some load", (RATE,))
PACED = Workload("end to end", "some rate", END_TO_END)
P99 = END_TO_END[1]


def results(**values: list[float]) -> Results:
    """One figure of messages/s per round for each peer; `_` stands for a space."""
    found = Results("a machine", 1.0)
    for peer, figures in values.items():
        name = peer.replace("_", " ")
        found.peers[name] = {"missing": None, "version": "1", "replication": "1 copy"}
        for round_number, figure in enumerate(figures, 1):
            found.add(LOAD.name, name, round_number, figures={"per_s": figure})
    return found


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (1_234_567, "1,230,000"),
        (999.96, "1,000"),
        (45.67, "45.7"),
        (1.0, "1.00"),
        (0.012345, "0.0123"),
        (1e-7, "0.000000100"),
    ],
)
def test_numbers_have_three_digits_and_no_exponent(value: float, text: str) -> None:
    assert number(value) == text


def test_a_ratio_is_taken_within_each_round() -> None:
    assert ratio({1: 10, 2: 30, 3: 5}, {1: 10, 2: 10, 4: 7}) == Spread(2.0, 1.0, 3.0)
    assert ratio({1: 10}, {2: 10}) is None
    assert ratio({1: 10}, {1: 0}) is None


def test_a_cell_has_median_range_and_ratio() -> None:
    found = results(Penstock=[100, 300, 200], Apache_Kafka=[100, 100, 100])
    assert cell(found, LOAD.name, RATE, OURS) == "200 (100 to 300)"
    assert cell(found, LOAD.name, RATE, KAFKA) == "100<br>2.00x (1.00 to 3.00)"


def test_what_has_no_figure_says_why() -> None:
    found = results(Penstock=[1], Apache_Kafka=[])
    found.peers["Gone"] = {"missing": "not installed"}
    found.add(LOAD.name, "Broken", 1, failed="it fell\nover")
    found.add(LOAD.name, "Unable", 1, cannot="keeps nothing")
    found.peers |= {"Broken": {"version": "2", "replication": "none"}}
    states = [cell(found, LOAD.name, RATE, p) for p in ("Gone", KAFKA, "Broken", "Unable")]
    assert states == ["missing", "not measured", "failed", "keeps nothing"]
    page = markdown(found, [LOAD], [])
    assert "| Gone | missing: not installed |" in page
    assert "- some load, Broken, round 1: it fell over" in page


def paced(found: Results, peer: str, *rounds: tuple[float, float]) -> None:
    found.peers.setdefault(peer, {})
    for round_number, (reached, p99) in enumerate(rounds, 1):
        kept = float(reached >= 1_000)
        figures = {"reached_per_s": reached, "kept": kept, "p99_ms": p99}
        found.add(PACED.name, peer, round_number, figures=figures)


def test_a_rate_that_was_not_kept_has_no_latency() -> None:
    found = results()
    paced(found, OURS, (1_000, 2.0), (1_000, 4.0), (400, 900.0))
    paced(found, KAFKA, (300, 800.0), (500, 900.0), (1_000, 9.0))
    blemish = "rate not kept in 1 of 3 rounds"
    assert cell(found, PACED.name, P99, OURS) == f"4.00 (2.00 to 900)<br>{blemish}"
    assert cell(found, PACED.name, P99, KAFKA) == "not kept: 400 messages/s"
    goal = Goal(PACED.name, P99, KAFKA, 0.5)
    assert Verdict(goal, found).text() == "yes: only Penstock kept the rate"
    assert Verdict(Goal(PACED.name, P99, NOBODY, 10.0), found).text() == "yes"
    assert Verdict(Goal(PACED.name, P99, NOBODY, 3.0), found).text() == "NO"


@pytest.mark.parametrize(("metric", "text"), [(RATE, "NO"), (MB, "yes"), (SECONDS, "yes")])
def test_a_goal_is_met_on_its_own_side(metric: object, text: str) -> None:
    found = Results("a machine", 1.0)
    for peer, value in ((OURS, 50.0), (KAFKA, 100.0)):
        found.peers[peer] = {}
        found.add("x", peer, 1, figures={metric.key: value})  # type: ignore[attr-defined]
    verdict = Verdict(Goal("x", metric, KAFKA, 0.9), found)  # type: ignore[arg-type]
    assert verdict.text() == text
    assert verdict.ratio == Spread(0.5, 0.5, 0.5)


def test_rounds_in_which_the_rate_was_not_kept_are_not_compared() -> None:
    found = results()
    paced(found, OURS, (1_000, 2.0), (1_000, 4.0), (400, 900.0))
    paced(found, KAFKA, (1_000, 8.0), (500, 900.0), (1_000, 9.0))
    assert found.ratio(PACED.name, KAFKA, "p99_ms") == Spread(0.25, 0.25, 0.25)


def test_what_the_host_took_is_said() -> None:
    found = results(Penstock=[1, 2])
    assert "took away" not in markdown(found, [LOAD], [])
    for entry, share in zip(found.values[LOAD.name][OURS], (0.001, 0.203), strict=True):
        entry["figures"]["stolen"] = share
    assert "took away 10.2% of it in the median case, and up to 20.3%" in markdown(
        found, [LOAD], []
    )


def test_the_best_has_the_least_where_less_is_better() -> None:
    found = Results("a machine", 1.0)
    for peer, value in ((OURS, 6.0), ("A", 5.0), ("B", 9.0)):
        found.peers[peer] = {}
        found.add("x", peer, 1, figures={MB.key: value})
    assert found.best("x", ["A", "B"], MB.key, higher=False) == ("A", Spread(1.2, 1.2, 1.2))


def test_every_goal_has_its_workloads() -> None:
    """They are found by parts of names: a name that changes must not take a goal with it."""
    found = Counter((goal.against, goal.metric.key, goal.goal) for goal in GOALS)
    assert found == {
        # Batches, one by one on 64 connections, compressed, from cache.
        (KAFKA, "per_s", 1.0): 8 + 3 + 4 + 3,
        (KAFKA, "p99_ms", 0.5): 3,
        (KAFKA, "s", 0.2): 1,
        (KAFKA, "mb", 0.2): 1,
        (KAFKA, "cpu_s_per_million", 1.0): 6 + 3,
        (THE_OTHERS, "per_s", 1.0): 12,
        (THE_OTHERS, "ack_p50_ms", 1.2): 3,
        (THE_OTHERS, "ack_p99_ms", 1.2): 3,
        (NOBODY, "p99_ms", 10.0): 1,
    }
    assert len(three_nodes.GOALS) == 4 + 2 + 4 + 1
    assert Counter((goal.against, goal.metric.key, goal.goal) for goal in queues.GOALS) == {
        (KAFKA, "p99_ms", 0.5): 1,
        (KAFKA, "per_s", 1.0): 3 + 1,
        (NOBODY, "of_fetch", 0.5): 3,
        (NOBODY, "of_large_fetch", 0.5): 3,
        ("RabbitMQ quorum queue", "per_s", 1.0): 1,
        ("NATS JetStream", "per_s", 0.7): 1,
        (KAFKA, "per_s", 2.0): 1,
        (KAFKA, "mb", 0.2): 1,
    }
    every = (*WORKLOADS, *queues.WORKLOADS, *three_nodes.WORKLOADS)
    measured = {workload.name for workload in every}
    assert {goal.workload for goal in (*GOALS, *queues.GOALS, *three_nodes.GOALS)} <= measured


def test_a_goal_without_anybody_is_a_number_in_its_unit() -> None:
    assert Goal("x", P99, NOBODY, 10.0).goal_text() == "at most 10 ms"
    assert Goal("x", RATE, NOBODY, 10.0).goal_text() == "at least 10 messages/s"
    assert Goal("x", RATE, KAFKA, 0.5).goal_text() == "at least 0.5x"


def test_the_best_of_the_others_is_neither_penstock_nor_kafka() -> None:
    found = results(Penstock=[100], Apache_Kafka=[900], A=[40], B=[50])
    verdict = Verdict(Goal(LOAD.name, RATE, THE_OTHERS, 1.0), found)
    assert (verdict.against, verdict.ratio, verdict.text()) == ("B", Spread(2, 2, 2), "yes")


def test_an_advantage_is_above_one_where_penstock_is_better() -> None:
    measured = Spread(0.5, 0.25, 1.0)
    assert advantage(measured, RATE) == measured
    assert advantage(measured, MB) == Spread(2.0, 1.0, 4.0)


def test_every_workload_has_a_name_of_its_own() -> None:
    every = (*WORKLOADS, *queues.WORKLOADS, *three_nodes.WORKLOADS)
    names = [workload.name for workload in every]
    assert sorted(set(names)) == sorted(names)


def test_a_run_can_go_on_where_another_was_cut_short(tmp_path: Path) -> None:
    path = tmp_path / "peers.json"
    assert Results("a machine", 1.0).rounds() == 0
    found = results(Penstock=[1.5, 2.5], Apache_Kafka=[1.0])
    found.write(path)
    again = Results.read(path)
    assert again == found
    assert again.rounds() == 2


def test_results_are_written_whole(tmp_path: Path) -> None:
    path = tmp_path / "peers.json"
    results(Penstock=[1.5]).write(path)
    assert '"per_s": 1.5' in path.read_text()
    assert list(tmp_path.iterdir()) == [path]
