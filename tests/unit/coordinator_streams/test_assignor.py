"""The sticky assignor: tables of small groups, and what must hold for any group."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.coordinator.streams_group.assignor import Candidate, Subtask, sticky
from penstock.coordinator.streams_group.tasks import NO_TASKS, TaskType, TypedTask

ACTIVE, STANDBY = TaskType.ACTIVE, TaskType.STANDBY
Target = dict[str, frozenset[TypedTask]]


def members(*names: str, target: Target | None = None) -> dict[str, Candidate]:
    """`process/member`, or a member that is its own process."""
    found = {}
    for name in names:
        process, _, member = name.rpartition("/")
        found[member] = Candidate(process or member, (target or {}).get(member, NO_TASKS))
    return found


def assign(
    candidates: dict[str, Candidate], counts: dict[str, int], replicas: int = 0
) -> dict[str, tuple[str, str]]:
    """Active and standby tasks as text; subtopologies in capitals have a state."""
    subtopologies = {id_: Subtask(count, id_.isupper()) for id_, count in counts.items()}
    target = sticky(candidates, subtopologies, replicas)
    return {
        member: (texts(tasks, ACTIVE), texts(tasks, STANDBY)) for member, tasks in target.items()
    }


def texts(tasks: frozenset[TypedTask], kind: TaskType) -> str:
    return " ".join(f"{id_}{number}" for found, id_, number in sorted(tasks) if found is kind)


def had(kind: TaskType, *tasks: str) -> frozenset[TypedTask]:
    return frozenset((kind, task[0], int(task[1:])) for task in tasks)


def test_tasks_are_shared_out_in_ranges_of_numbers() -> None:
    assert assign(members("a", "b"), {"x": 4}) == {"a": ("x0 x2", ""), "b": ("x1 x3", "")}
    assert assign(members("a"), {"x": 2, "y": 1}) == {"a": ("x0 x1 y0", "")}
    assert assign({}, {"x": 2}) == {}
    assert assign(members("a"), {}) == {"a": ("", "")}


def test_processes_with_more_members_get_more() -> None:
    found = assign(members("p/a", "p/b", "q/c"), {"x": 6})
    assert [len(found[member][0].split()) for member in "abc"] == [2, 2, 2]


def test_what_members_had_stays_with_them() -> None:
    target = {"a": had(ACTIVE, "x1", "x3"), "b": had(ACTIVE, "x0", "x2")}
    found = assign(members("a", "b", target=target), {"x": 4})
    assert found == {"a": ("x1 x3", ""), "b": ("x0 x2", "")}


def test_a_newcomer_gets_its_part_and_no_more_moves() -> None:
    target = {"a": had(ACTIVE, "x0", "x1", "x2"), "b": had(ACTIVE, "x3", "x4", "x5")}
    found = assign(members("a", "b", "c", target=target), {"x": 6})
    assert found == {"a": ("x0 x1", ""), "b": ("x3 x4", ""), "c": ("x2 x5", "")}


def test_a_standby_becomes_active() -> None:
    target = {
        "a": had(ACTIVE, "X0") | had(STANDBY, "X2"),
        "b": had(ACTIVE, "X1") | had(STANDBY, "X3"),
    }
    found = assign(members("a", "b", target=target), {"X": 4})
    assert found == {"a": ("X0 X2", ""), "b": ("X1 X3", "")}


def test_standbys_lie_with_other_processes() -> None:
    found = assign(members("p/a", "p/b", "q/c"), {"X": 2, "y": 1}, replicas=1)
    of_p = set(" ".join(found["a"] + found["b"]).split())
    of_q = set(" ".join(found["c"]).split())
    assert {"X0", "X1"} == of_p & of_q
    assert "y0" not in of_p & of_q


def test_there_are_no_more_standbys_than_other_processes() -> None:
    assert assign(members("p/a", "p/b"), {"X": 2}, replicas=2) == {"a": ("X0", ""), "b": ("X1", "")}
    found = assign(members("a", "b"), {"X": 2}, replicas=2)
    assert found == {"a": ("X0", "X1"), "b": ("X1", "X0")}


def test_who_gives_up_a_task_keeps_a_standby_of_it() -> None:
    target = {"a": had(ACTIVE, "X0", "X1")}
    found = assign(members("a", "b", target=target), {"X": 2}, replicas=1)
    assert found == {"a": ("X0", "X1"), "b": ("X1", "X0")}


@st.composite
def groups(draw: st.DrawFn) -> tuple[dict[str, Candidate], dict[str, Subtask], int]:
    counts = draw(st.dictionaries(st.sampled_from("xyZ"), st.integers(1, 8), max_size=3))
    subtopologies = {id_: Subtask(count, id_.isupper()) for id_, count in counts.items()}
    count = draw(st.integers(1, 6))
    tasks = st.tuples(
        st.sampled_from([ACTIVE, STANDBY]), st.sampled_from("xyZw"), st.integers(0, 9)
    )
    candidates = {
        f"m{n}": Candidate(f"p{draw(st.integers(0, 3))}", draw(st.frozensets(tasks, max_size=6)))
        for n in range(count)
    }
    return candidates, subtopologies, draw(st.integers(0, 2))


@given(groups())
def test_what_holds_for_any_group(
    group: tuple[dict[str, Candidate], dict[str, Subtask], int],
) -> None:
    candidates, subtopologies, replicas = group
    target = sticky(candidates, subtopologies, replicas)
    assert target.keys() == candidates.keys()
    every = [(id_, n) for id_, one in subtopologies.items() for n in range(one.task_count)]
    active = Counter(task[1:] for tasks in target.values() for task in tasks if task[0] is ACTIVE)
    assert active == Counter(every)
    standby = Counter(task[1:] for tasks in target.values() for task in tasks if task[0] is STANDBY)
    processes = {candidate.process_id for candidate in candidates.values()}
    for id_, n in every:
        wanted = min(replicas, len(processes) - 1) if subtopologies[id_].is_stateful else 0
        assert standby[id_, n] == wanted
    for process in processes:
        of_process = [
            task[1:]
            for member, tasks in target.items()
            for task in tasks
            if candidates[member].process_id == process
        ]
        assert len(of_process) == len(set(of_process))


@given(groups())
def test_an_assignment_is_kept_while_nothing_changes(
    group: tuple[dict[str, Candidate], dict[str, Subtask], int],
) -> None:
    """Without standby tasks; those may still move to even out what the first time could not."""
    candidates, subtopologies, _ = group
    first = sticky(candidates, subtopologies, 0)
    again = {m: Candidate(c.process_id, first[m]) for m, c in candidates.items()}
    second = sticky(again, subtopologies, 0)
    third = sticky(
        {m: Candidate(c.process_id, second[m]) for m, c in candidates.items()}, subtopologies, 0
    )
    assert third == second


@pytest.mark.parametrize("count", [1, 7, 20])
def test_loads_are_even_without_history(count: int) -> None:
    candidates = {f"m{n:02}": Candidate(f"p{n:02}", NO_TASKS) for n in range(count)}
    target = sticky(candidates, {"x": Subtask(50, False), "y": Subtask(3, False)}, 0)
    sizes = [len(tasks) for tasks in target.values()]
    assert max(sizes) - min(sizes) <= 1
