"""The sticky assignor: tasks to members, so that few move and processes are loaded evenly.

    step                 order of tasks        goes to
    -------------------  --------------------  --------------------------------------------------
    1 active, as before  number, subtopology   its member, if that has not its part of active tasks
    2 active, from       the same              a member that had it as standby, the least loaded
      standby                                  process first, within the same part
    3 active, the rest   subtopology, number   the least loaded process, its least loaded member
    4 standby, as        number, subtopology,  the member that had it active, else one that had it
      before             descending            as standby, within its part of all tasks
    5 standby, the rest  subtopology, number,  the least loaded process that does not have the task,
                         descending            its least loaded member

A process never has a task twice. With fewer processes than replicas some standby tasks are left
out. A member's part is tasks / members, rounded up; who has reached it is left out of the division
of the rest, so that parts shrink as members fill up. A function of its input alone: what is equally
loaded is taken in the order of ids. Warm-up tasks are not assigned, as in Kafka 4.3.

Limits: the work is O(members + tasks x replicas), times a logarithm; ten thousand tasks take about
50 ms interpreted, and as much again for each replica.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from heapq import heapify, heappop, heappush
from typing import Final, NamedTuple

from penstock.base.errors import invariant
from penstock.coordinator.streams_group.tasks import Task, TaskType, TypedTask

STICKY: Final = "sticky"


class Subtask(NamedTuple):
    """What the assignor has to know of a subtopology."""

    task_count: int
    is_stateful: bool


class Candidate(NamedTuple):
    """A member that tasks are assigned to."""

    process_id: str
    target: frozenset[TypedTask]
    """What it was to have before."""


def sticky(
    members: Mapping[str, Candidate], subtopologies: Mapping[str, Subtask], standby_replicas: int
) -> dict[str, frozenset[TypedTask]]:
    """The target assignment: the tasks of every member."""
    if not members:
        return {}
    balance = _Balance(members, subtopologies, standby_replicas)
    balance.assign_active(_tasks(subtopologies))
    if standby_replicas:
        stateful = {id_: one for id_, one in subtopologies.items() if one.is_stateful}
        balance.assign_standby(_tasks(stateful), standby_replicas)
    return {member: frozenset(tasks) for member, tasks in balance.given.items()}


def _tasks(subtopologies: Mapping[str, Subtask]) -> list[Task]:
    return [(id_, number) for id_, one in subtopologies.items() for number in range(one.task_count)]


def _by_number(task: Task) -> tuple[int, str]:
    return task[1], task[0]


class _Part:
    """How many tasks a member gets: as many as there are for each of those that are not full."""

    __slots__ = ("_members", "_tasks", "size")

    def __init__(self, tasks: int, members: int) -> None:
        self._tasks = tasks
        self._members = members
        self.size = -(-tasks // members)

    def reached(self, count: int) -> None:
        """A member has come to so many tasks."""
        if count == self.size and self._members:
            self._members -= 1
            self._tasks -= count
            self.size = -(-self._tasks // self._members) if self._members else 0


class _Process:
    """The members of one process: a task is there at most once."""

    __slots__ = ("members", "process_id", "tasks")

    def __init__(self, process_id: str) -> None:
        self.process_id = process_id
        self.members: list[str] = []
        self.tasks: set[Task] = set()

    @property
    def load(self) -> float:
        return len(self.tasks) / len(self.members)


class _Balance:
    """One computation; thrown away after it."""

    def __init__(
        self,
        members: Mapping[str, Candidate],
        subtopologies: Mapping[str, Subtask],
        standby_replicas: int,
    ) -> None:
        self.given: dict[str, set[TypedTask]] = {member: set() for member in sorted(members)}
        self._process_of: dict[str, _Process] = {}
        self._before: tuple[dict[Task, list[str]], ...] = ({}, {}, {})
        """By type: who was to have a task before."""
        self._heaps: dict[str, list[tuple[int, str]]] = {}
        processes: dict[str, _Process] = {}
        for member in self.given:
            candidate = members[member]
            process = processes.setdefault(candidate.process_id, _Process(candidate.process_id))
            process.members.append(member)
            self._process_of[member] = process
            for kind, subtopology, number in candidate.target:
                self._before[kind].setdefault((subtopology, number), []).append(member)
        self._processes = [processes[id_] for id_ in sorted(processes)]
        active = sum(one.task_count for one in subtopologies.values())
        stateful = sum(one.task_count for one in subtopologies.values() if one.is_stateful)
        self._active_part = _Part(active, len(members))
        self._part = _Part(active + stateful * standby_replicas, len(members))

    # -- active tasks --------------------------------------------------------------------------

    def assign_active(self, tasks: Iterable[Task]) -> None:
        active, standby = self._before[TaskType.ACTIVE], self._before[TaskType.STANDBY]
        left = [
            task
            for task in sorted(tasks, key=_by_number)
            if not self._give_active(active.get(task, ())[-1:], task)
        ]
        left = [task for task in left if not self._give_active(standby.get(task, ()), task)]
        queue = self._by_load()
        for task in sorted(left):
            self._give_to_least_loaded(queue, task, TaskType.ACTIVE)

    def _give_active(self, members: Sequence[str], task: Task) -> bool:
        member = self._least_loaded(members, None)
        if member is None or len(self.given[member]) >= self._active_part.size:
            return False
        self._give(member, task, TaskType.ACTIVE)
        return True

    # -- standby tasks -------------------------------------------------------------------------

    def assign_standby(self, tasks: Iterable[Task], replicas: int) -> None:
        self._heaps.clear()
        left: list[tuple[Task, int]] = []
        for task in sorted(tasks, key=_by_number, reverse=True):
            for given in range(replicas):
                member = self._standby_before(task)
                if member is None:
                    left.append((task, replicas - given))
                    break
                self._give(member, task, TaskType.STANDBY)
        queue = self._by_load()
        for task, missing in sorted(left, reverse=True):
            for _ in range(missing):
                if not self._give_to_least_loaded(queue, task, TaskType.STANDBY):
                    break

    def _standby_before(self, task: Task) -> str | None:
        """A member that had the task and may have it as standby."""
        for kind in (TaskType.ACTIVE, TaskType.STANDBY):
            member = self._least_loaded(self._before[kind].get(task, ()), task)
            if member is not None and len(self.given[member]) < self._part.size:
                return member
        return None

    # -- both ----------------------------------------------------------------------------------

    def _least_loaded(self, members: Sequence[str], task: Task | None) -> str | None:
        """Of members whose process does not have the task, the one that has the least to do."""
        free = [m for m in members if task is None or task not in self._process_of[m].tasks]
        if not free:
            return None
        return min(free, key=lambda m: (self._process_of[m].load, len(self.given[m])))

    def _by_load(self) -> list[tuple[float, int]]:
        queue = [(process.load, place) for place, process in enumerate(self._processes)]
        heapify(queue)
        return queue

    def _give_to_least_loaded(
        self, queue: list[tuple[float, int]], task: Task, kind: TaskType
    ) -> bool:
        """False if every process has the task."""
        passed_over = []
        given = False
        while queue and not given:
            _, place = heappop(queue)
            process = self._processes[place]
            if task not in process.tasks:
                self._give_within(process, task, kind)
                given = True
            passed_over.append(place)
        for place in passed_over:
            heappush(queue, (self._processes[place].load, place))
        return given

    def _give_within(self, process: _Process, task: Task, kind: TaskType) -> None:
        """Give a task to the member of a process that has the fewest."""
        heap = self._heaps.get(process.process_id)
        if heap is None:
            heap = [(len(self.given[member]), member) for member in process.members]
            heapify(heap)
            self._heaps[process.process_id] = heap
        _, member = heappop(heap)
        self._give(member, task, kind)
        heappush(heap, (len(self.given[member]), member))

    def _give(self, member: str, task: Task, kind: TaskType) -> None:
        process = self._process_of[member]
        invariant(task not in process.tasks, "a process is given a task twice")
        process.tasks.add(task)
        self.given[member].add((kind, *task))
        count = len(self.given[member])
        if kind is TaskType.ACTIVE:
            self._active_part.reached(count)
        self._part.reached(count)
