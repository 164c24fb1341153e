"""A quorum under faults, from one seed; then the faults stop and it must come to life again.

Node 1 founds the cluster, the others come as observers; some join as voters by themselves. Then
drops, delays, doubles, reorderings, cuts (whole, one way), crashes that lose what was not flushed,
crashes between two effects, lost disks, leaping clocks, moved ports, other listeners, snapshots,
resignations and changes of the voter set come at random, while leaders append.
"""

from __future__ import annotations

from collections.abc import Callable

from penstock.raft.types import QuorumConfig
from penstock.raft.voters import VoterSet
from penstock.wire.messages.add_raft_voter import AddRaftVoterRequest, Listener
from penstock.wire.messages.remove_raft_voter import RemoveRaftVoterRequest
from penstock.wire.schema import Message
from sim.raft.checker import Checker, require
from sim.raft.replica import SimReplica
from sim.raft.world import World

CLUSTER_ID = "cluster"
FAULTS_MS = 12_000
STEP_MS_MAX = 250
HEAL_MS_MAX = 15_000
HEAL_STEP_MS = 250
STAGES = (("PLAIN",), ("PLAIN", "SAFE"), ("SAFE", "PLAIN"), ("SAFE",))
"""The listeners of a replica on the way from plain to safe; the first is the wanted one."""
STEPS = (1, 1, 1, 2, -1)
ROLLING_CHANCE = 0.3
ROLLING_MS = 40_000


class Simulation:
    def __init__(self, seed: int, *, turmoil: bool = False) -> None:
        """With `turmoil` there are five voters, whose elections cross each other all the time."""
        self.turmoil = turmoil
        self.world = World(seed)
        self.checker = Checker()
        rng = self.world.random
        count = 5 if turmoil else rng.choice((1, 2, 3, 3, 3, 4, 5))
        servers = tuple((f"n{i}", 9092) for i in range(1, count + 1))
        self.replicas = []
        for i in range(1, count + 1):
            config = QuorumConfig(
                CLUSTER_ID,
                bootstrap_servers=servers,
                auto_join=turmoil or i <= 3 or rng.random() < 0.5,
                founder=i == 1,
            )
            replica = SimReplica(i, config, self.world, self.checker)
            self.replicas.append(replica)
        for replica in self.replicas:
            replica.peers = self.replicas
        self.values = 0
        self.rolling = rng.random() < ROLLING_CHANCE
        """Whether replicas get other listeners all the time."""

    # -- the run -------------------------------------------------------------------------------

    def run(self) -> None:
        world, rng = self.world, self.world.random
        for replica in self.replicas:
            replica.start()
        require(self.leader() is self.replicas[0], "the only voter leads at once")
        world.run_until(world.now_ms + (8_000 if self.turmoil else rng.choice((10, 3_000))))
        self._weather()
        actions = self._actions()
        end = world.now_ms + (ROLLING_MS if self.rolling else FAULTS_MS)
        while world.now_ms < end:
            rng.choice(actions)()
            world.run_until(world.now_ms + rng.randint(1, STEP_MS_MAX))
        self.heal()
        self.must_live()

    def _weather(self) -> None:
        world, rng = self.world, self.world.random
        if self.turmoil:
            world.delay_ms = (1, 300)
            return
        world.drop = rng.choice((0.0, 0.0, 0.02, 0.2))
        world.double = rng.choice((0.0, 0.05))
        world.delay_ms = rng.choice(((1, 5), (1, 50), (1, 400)))
        for replica in self.replicas:
            replica.crash_chance = rng.choice((0.0, 0.0, 0.002))

    def _actions(self) -> list[Callable[[], None]]:
        if self.turmoil:
            return [self.append, self.append, self.disturb]
        if self.rolling:
            return (
                [self.append] * 10
                + [self.crash, self.roll, self.roll, self.restart, self.restart] * 3
                + [self.cut, self.mend, self.mend, self.snapshot, self.jump, self.resign]
                + [self.add_voter, self._weather]
            )
        return (
            [self.append] * 10
            + [self.crash, self.restart, self.restart, self.cut, self.mend] * 2
            + [self.snapshot, self.snapshot, self.jump, self.resign, self.wipe, self.move_port]
            + [self.roll]
            + [self.add_voter, self.remove_voter, self._weather]
        )

    # -- what can happen -----------------------------------------------------------------------

    def leader(self) -> SimReplica | None:
        """The leader of the latest epoch that has one."""
        found = [r for r in self.replicas if r.quorum is not None and r.quorum.is_leader]
        return max(found, key=lambda r: r.quorum.epoch if r.quorum else 0, default=None)

    def append(self) -> None:
        for replica in self.replicas:
            quorum = replica.quorum
            if quorum is not None and quorum.is_leader:
                for _ in range(self.world.random.randint(1, 3)):
                    self.values += 1
                    value = b"value %d" % self.values
                    appended = quorum.append([value], replica.now_ms)
                    replica.do(lambda _, appended=appended: [appended])  # type: ignore[misc]

    def crash(self) -> None:
        alive = [r for r in self.replicas if r.alive]
        if alive:
            self.world.random.choice(alive).crash()

    def restart(self) -> None:
        down = [r for r in self.replicas if not r.alive]
        if down:
            self.world.random.choice(down).start()

    def cut(self) -> None:
        rng = self.world.random
        ids = [r.id for r in self.replicas]
        if rng.random() < 0.5:
            side = {i for i in ids if rng.random() < 0.5}
            self.world.cut |= {(a, b) for a in ids for b in ids if (a in side) != (b in side)}
        else:
            self.world.cut.add((rng.choice(ids), rng.choice(ids)))
        self.world.log(f"cut: {sorted(self.world.cut)}")

    def mend(self) -> None:
        self.world.cut.clear()
        self.world.log("the network is whole")

    def snapshot(self) -> None:
        replica = self.world.random.choice(self.replicas)
        replica.take_snapshot(trim=self.world.random.random() < 0.7)

    def jump(self) -> None:
        replica = self.world.random.choice(self.replicas)
        replica.jump(self.world.random.choice((10, 500, 5_000)))

    def resign(self) -> None:
        leader = self.leader()
        if leader is not None:
            leader.do(lambda q: q.resign(leader.now_ms))

    def disturb(self) -> None:
        """Everybody who follows takes the leader for gone."""
        for replica in self.replicas:
            leader_id = -1 if replica.quorum is None else replica.quorum.leader_id
            replica.do(lambda q, i=leader_id, r=replica: q.on_connection_refused(i, r.now_ms))  # type: ignore[misc]

    def move_port(self) -> None:
        """A restart at another address: the others learn it from the voter's own word, for which
        they must be able to elect a leader without it.
        """
        down = [r for r in self.replicas if not r.alive]
        if down and self.world.random.random() < 0.5:
            replica = self.world.random.choice(down)
            reachable = {r.key for r in self.replicas if r is not replica and self._is_known(r)}
            if all(len(s & reachable) > len(s) // 2 for s in self._voter_sets()):
                replica.port += 1
                self.world.log(f"{replica.id} moves to port {replica.port}")

    def roll(self) -> None:
        """A restart with other listeners, on the way from the plain one to the safe one, or back.

        The plain one goes only when all are known to have the safe one, and a listener that others
        may know goes as an address does (`move_port`).
        """
        down = [r for r in self.replicas if not r.alive]
        if not down:
            return
        replica = self.world.random.choice(down)
        stage = STAGES.index(replica.offers) + self.world.random.choice(STEPS)
        offers = STAGES[min(max(stage, 0), len(STAGES) - 1)]
        others = [r for r in self.replicas if r is not replica]
        if not all(self._reach_each_other(offers, other) for other in others):
            return
        if set(replica.offers) - set(offers):
            reachable = {r.key for r in others if self._is_known_now(r)}
            sets = [frozenset(s.keys) for r in self.replicas for s in self._in_force(r)]
            if not all(len(s & reachable) > len(s) // 2 for s in sets):
                return
        if "PLAIN" not in offers and not all(map(self._is_known_now, self.replicas)):
            return
        replica.offers = offers
        self.world.log(f"{replica.id} has the listeners {offers} from its next start on")

    def _reach_each_other(self, offers: tuple[str, ...], other: SimReplica) -> bool:
        """Whether one with these listeners and `other` can; one that knows no voters has nothing
        but the addresses in its settings, which are of the listener that it wants.
        """
        if offers[0] in other.offers and other.offers[0] in offers:
            return True
        all_know_voters = all(r.disk.stored().voter_sets for r in self.replicas)
        return all_know_voters and not set(offers).isdisjoint(other.offers)

    def _is_known_now(self, replica: SimReplica) -> bool:
        sets = [voters for other in self.replicas for voters in self._in_force(other)]
        nodes = [voters.node(replica.id) for voters in sets]
        return all(n.endpoints == replica.endpoints for n in nodes if n is not None)

    @staticmethod
    def _in_force(replica: SimReplica) -> list[VoterSet]:
        """On its disk, with the one that will be again if the last change is cut off."""
        return [voters for _, voters in replica.disk.stored().voter_sets[-2:]]

    def _is_known(self, replica: SimReplica) -> bool:
        nodes = [
            voters.node(replica.id)
            for other in self.replicas
            for _, voters in other.disk.stored().voter_sets
        ]
        return all(n.endpoints == replica.endpoints for n in nodes if n is not None)

    def wipe(self) -> None:
        """Lose a disk, but only one that no majority needs, as an operator would."""
        down = [r for r in self.replicas if not r.alive and r.config.auto_join]
        if down and self.world.random.random() < 0.5:
            replica = self.world.random.choice(down)
            wanted = all(replica.offers[0] in other.offers for other in self.replicas)
            if wanted and self._can_spare(replica):
                replica.wipe()

    def _voter_sets(self) -> list[frozenset[object]]:
        """Every voter set that may still be in force somewhere."""
        found: dict[frozenset[object], None] = {}
        for replica in self.replicas:
            sets = replica.disk.stored().voter_sets
            if not sets and replica.config.founder:
                found[frozenset([replica.key])] = None
            for _, voters in sets:
                found[frozenset(voters.keys)] = None
        return list(found)

    def _can_spare(self, replica: SimReplica) -> bool:
        end = self.checker.committed_end
        others = [r for r in self.replicas if r is not replica]
        full = {r.key for r in others if r.disk.flushed >= end}
        full &= {r.key for r in others if self._is_known(r)}
        return all(
            replica.key not in voters or len(voters & full) > len(voters) // 2
            for voters in self._voter_sets()
        )

    def _all_present(self) -> bool:
        keys = {r.key for r in self.replicas if self._is_known(r)}
        return all(voters <= keys for voters in self._voter_sets())

    def add_voter(self) -> None:
        replica = self.world.random.choice(self.replicas)
        request = AddRaftVoterRequest(
            cluster_id=CLUSTER_ID,
            timeout_ms=2_000,
            voter_id=replica.id,
            voter_directory_id=replica.key.directory_id,
            listeners=[Listener(name=e.name, host=e.host, port=e.port) for e in replica.endpoints],
        )
        self._to_leader(request, f"add {replica.id}")

    def remove_voter(self) -> None:
        """Never while a dead entry could leave too few."""
        replica = self.world.random.choice(self.replicas)
        if self._all_present():
            request = RemoveRaftVoterRequest(
                cluster_id=CLUSTER_ID,
                voter_id=replica.id,
                voter_directory_id=replica.key.directory_id,
            )
            self._to_leader(request, f"remove {replica.id}")

    def _to_leader(self, request: Message, text: str) -> None:
        leader = self.leader()
        if leader is None:
            return
        self.world.log(text)
        leader.serve(
            request,
            lambda response: self.world.log(f"{text}: error {response.error_code}"),
        )

    # -- healing -------------------------------------------------------------------------------

    def heal(self) -> None:
        world = self.world
        world.cut.clear()
        world.drop = world.double = 0.0
        world.delay_ms = (1, 5)
        world.log("all heals")
        for replica in self.replicas:
            replica.crash_chance = 0.0
            if not replica.alive:
                replica.start()

    def must_live(self) -> None:
        """A leader comes, commits what it is given, and everybody follows to the end."""
        world = self.world
        deadline = world.now_ms + HEAL_MS_MAX
        appended = 0
        while world.now_ms < deadline:
            world.run_until(world.now_ms + HEAL_STEP_MS)
            leader = self.leader()
            if leader is not None and leader.quorum is not None:
                if not appended or leader.quorum.log_end_offset <= appended:
                    appended = leader.quorum.log_end_offset
                    self.append()
                if self._at_rest(appended):
                    return
        states = [
            f"{r.id}: {r.quorum.role} epoch {r.quorum.epoch} leader {r.quorum.leader_id} hw "
            f"{r.quorum.high_watermark} end {r.quorum.log_end_offset} {r.quorum.voters}"
            for r in self.replicas
            if r.quorum is not None
        ]
        require(False, "no life after healing:\n" + "\n".join(states))

    def _at_rest(self, appended: int) -> bool:
        quorums = [r.quorum for r in self.replicas if r.quorum is not None]
        ends = {q.high_watermark for q in quorums}
        epochs = {q.leader_and_epoch for q in quorums}
        joined = all(
            q.is_voter for r, q in zip(self.replicas, quorums, strict=True) if r.config.auto_join
        )
        return len(ends) == len(epochs) == 1 and ends.pop() > appended and joined
