"""Rounds of `bench/peers` go on, whatever a server does; real processes that serve nothing."""

from __future__ import annotations

import os
from pathlib import Path
from typing import ClassVar

import pytest
from bench.peers import rounds
from bench.peers.figures import Results
from bench.peers.rounds import Kind, Plan, Progress, rotated, run_rounds
from bench.peers.server import Server
from bench.peers.wire import PeerError, Wire
from bench.peers.workloads import LOADED, RATE, START, Figures, Workload

from support.waiting import eventually


class Sleeper(Server):
    """Runs, and has no protocol."""

    name: ClassVar[str] = "Sleeper"

    @classmethod
    def missing(cls) -> str | None:
        return None

    @classmethod
    def version(cls) -> str:
        return "1"

    @property
    def durability(self) -> str:
        return "none"

    def command(self) -> list[str]:
        return ["sleep", "600"]

    def answers(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def wire(self) -> Wire:
        raise PeerError("it speaks to nobody")


class NeverThere(Sleeper):
    name: ClassVar[str] = "Never there"
    fsync_before_ack: ClassVar[bool] = False

    def command(self) -> list[str]:
        return ["sh", "-c", "echo no room >&2; exit 3"]

    def answers(self) -> bool:
        return False


seen: list[tuple[str, int]] = []
warmed: list[str] = []


def fine(server: Server, seconds: float) -> Figures:
    [pid] = server.pids()
    seen.append((server.name, pid))
    return {"per_s": seconds}


def broken(server: Server, seconds: float) -> Figures:
    raise PeerError("refused")


def deadly(server: Server, seconds: float) -> Figures:
    [pid] = server.pids()
    os.kill(pid, 9)
    eventually(lambda: not server.answers())
    raise ConnectionResetError("gone")


WORKLOADS = (
    START,
    Workload("s", "broken", (RATE,), broken),
    Workload("s", "deadly", (RATE,), deadly),
    Workload("s", "fine", (RATE,), fine),
    LOADED,
    Workload("s", "synced", (RATE,), fine, fsync=True),
)


@pytest.fixture
def found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Results:
    monkeypatch.setattr(rounds, "warm_up", lambda server: warmed.append(server.folder.name))
    seen.clear()
    warmed.clear()
    kinds: list[Kind] = [Sleeper, NeverThere]
    results = Results("a machine", 1.0, {kind.name: {} for kind in kinds})
    done: list[int] = []
    plan = Plan(kinds, WORKLOADS, 2, 1.0, tmp_path)
    run_rounds(plan, results, Progress(2 * 2 * len(WORKLOADS)), done.append)
    assert done == [1, 2]
    assert list(tmp_path.iterdir()) == []
    return results


def entries(found: Results, workload: str, peer: str) -> list[object]:
    """What each round has, without the round's number, the log, and what the host took."""
    for entry in found.values[workload][peer]:
        if "figures" in entry:
            assert 0 <= entry["figures"].pop("stolen") <= 1
    return [
        entry.get("figures") or entry.get("failed") or entry.get("cannot")
        for entry in found.values[workload][peer]
    ]


def test_a_failure_is_recorded_and_the_rest_measured(found: Results) -> None:
    assert entries(found, "broken", "Sleeper") == ["refused"] * 2
    assert entries(found, "deadly", "Sleeper") == ["ConnectionResetError: gone"] * 2
    assert entries(found, "fine", "Sleeper") == [{"per_s": 1.0}] * 2
    assert entries(found, "synced", "Sleeper") == [{"per_s": 1.0}] * 2
    assert len(found.by_round(START.name, "Sleeper", "s")) == 2
    assert all(mb > 0 for mb in found.by_round(LOADED.name, "Sleeper", "mb").values())


def test_every_server_is_warmed_up_before_it_is_measured(found: Results) -> None:
    """Also those that take the place of one that failed."""
    started = [f"sleeper-{number}-{start}" for number in (1, 2) for start in (1, 2, 3)]
    synced = [f"sleeper-{number}-1-fsync" for number in (1, 2)]
    assert sorted(warmed) == sorted(started + synced)


def test_no_process_is_left(found: Results) -> None:
    assert len(seen) == 4
    assert [pid for _, pid in seen if Path(f"/proc/{pid}").exists()] == []


def test_a_server_that_does_not_start_fails_everything_with_its_log(found: Results) -> None:
    for workload in ("broken", "fine", START.name, LOADED.name):
        for entry in found.values[workload]["Never there"]:
            assert "does not answer" in entry["failed"]
            assert entry["log"] == "no room\n"
    assert entries(found, "synced", "Never there") == ["cannot sync before it acknowledges"] * 2


def test_the_order_rotates() -> None:
    kinds: list[Kind] = [Sleeper, NeverThere, Server]
    orders = [rotated(kinds, by) for by in range(4)]
    assert orders[0] == orders[3] == kinds
    assert [order[0] for order in orders[:3]] == kinds
