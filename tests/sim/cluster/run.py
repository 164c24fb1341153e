"""One run: a cluster, its clients, its faults, and the judgement at the end."""

from __future__ import annotations

import asyncio
import gc
import time
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from penstock.base.errors import ErrorCode
from penstock.metadata.names import OFFSETS_TOPIC
from penstock.peers.connection import Address
from penstock.peers.errors import PeerError
from penstock.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)

from .admin import Admin
from .anew import AGAIN, Anew
from .checks import CompactedHistory, History, RetainedHistory, Violation, holds
from .clients import LATEST, Consumer, KeyedProducer, Producer, ScatteringProducer, SessionConsumer
from .cluster import PORT, World
from .faults import Faults
from .groups import (
    HEARTBEAT_S,
    SESSION_TIMEOUT_S,
    ClassicMember,
    ConsumerMember,
    GroupHistory,
    Member,
)
from .locked import (
    GUEST,
    SETTINGS,
    STRANGER,
    Guest,
    Outsider,
    changed,
    install,
    is_locked,
    known_everywhere,
    let_in,
)
from .observer import Observer
from .schedule import schedule, weather
from .thresholds import draw_limits, draw_settings, free_settings
from .wire import Wire, pause

TOPIC = "t"
PARTITIONS = 2
COMPACTED, RETAINED = "k", "r"
SEGMENT_BYTES = 6_000
RETENTION_BYTES = 15_000
RETENTION_MS = 10_000
START_S_MAX = 60.0
HEAL_S_MAX = 120.0
LOADED_S_MAX = 20.0
"""How long replicas may take to be in sync under load: limits that are drawn may let followers
fetch less than clients write.
"""
REST_S = 2.0
"""How much longer producers pause after that."""
FAULTS_S_MAX = 1_200.0
LOOK_S = 0.02


@dataclass
class Result:
    seed: int
    digest: str
    virtual_s: float
    real_s: float
    events: int
    turns: int
    acknowledged: int
    commits: int
    read: int
    failure: str | None = None
    note: str = ""
    paths: Counter[str] = field(default_factory=Counter)
    lines: list[str] = field(default_factory=list)


@dataclass
class Topic:
    name: str
    partitions: int
    configs: dict[str, str] = field(default_factory=dict)


class Client(Protocol):
    """Whoever works until it is told to stop."""

    wire: Wire
    stopping: bool


class Run:
    def __init__(self, seed: int, nodes: int = 1) -> None:
        self.world = World(seed)
        self.rng = self.world.random("run")
        self.history = History()
        self.nodes = nodes
        self.producers: list[Producer] = []
        self.consumers: list[Consumer] = []
        self.groups = GroupHistory(self.world.loop.time)
        self.members: list[Member] = []
        self.observer = Observer(self.world)
        self.observed = False
        self.locked = is_locked(seed)
        self.outsiders: list[Outsider] = []
        self.tasks: list[asyncio.Task[Any]] = []

    def execute(self) -> Result:
        gc.disable()
        started = time.perf_counter()
        failure = None
        try:
            self.world.run(self._main())
        except Violation as e:
            failure = str(e)
        except Exception as e:
            failure = f"{e!r}\n{traceback.format_exc()}"
        world = self.world
        world.close()
        if world.loop.waits:
            world.paths.counts["thread waited for"] += world.loop.waits
        return Result(
            seed=world.seed,
            digest=world.trace.digest,
            virtual_s=world.loop.time(),
            real_s=time.perf_counter() - started,
            events=world.trace.events,
            turns=world.loop.ran,
            commits=self.groups.commits,
            acknowledged=self.history.acknowledged_total,
            read=self.history.read_total,
            failure=failure,
            note=self._note(),
            paths=world.paths.counts,
            lines=list(world.trace.lines),
        )

    def _note(self) -> str:
        """What else there is to say of the run."""
        return ""

    # -- the course of a run -------------------------------------------------------------------

    async def _main(self) -> None:
        self._build()
        if self.locked:
            install()
        for machine in self.world.machines.values():
            machine.start()
        self.tasks.append(self.world.spawn(self.world.process("observer"), self._observe()))
        setup = self._wire("admin")
        for topic in self._topics():
            await self._in_client(setup, self._create_topic(setup, topic))
        await self._prepare(setup)
        if self.locked:
            await self._in_client(setup, let_in(setup))
            probe = self._wire("probe")
            await self._in_client(probe, known_everywhere(probe, TOPIC))
        self.admin = Admin(self.world, setup, self.world.random("admin"), *self._administered())
        if self.nodes > 1:
            self.admin.add_node = self._add_node
        self._start_clients()
        if self.locked:
            self._start_outsiders(setup)
        clients = [client.wire.name for client in self._clients()]
        anew = Anew(self.world, self.admin, self._wire(AGAIN), self.world.random("anew"))
        faults = Faults(
            self.world,
            self.world.random("faults"),
            clients,
            self._recovered,
            self.admin.act,
            anew.strike,
        )
        chaos = self.world.process("chaos")
        plans = [self.world.spawn(chaos, faults.run(p)) for p in (self.plan, self.weather)]
        self.tasks += plans
        supervisor = self.world.spawn(chaos, faults.supervise())
        await self._until(
            lambda: all(p.done() for p in plans), "the faults to be over", FAULTS_S_MAX
        )
        await faults.heal()
        await self._judge()
        supervisor.cancel()

    async def _observe(self) -> None:
        while not self.observed:
            self.observer.look()
            await asyncio.sleep(LOOK_S)

    def _build(self) -> None:
        rng = self.rng
        ids = list(range(1, self.nodes + 1))
        self.world.network.default.delay_s = rng.choice((0.0001, 0.001, 0.01))
        self.world.network.default.jitter_s = rng.choice((0.0001, 0.001, 0.01))
        chance = self.world.random("thresholds")
        limits = draw_limits(chance)
        free_settings()
        settings = draw_settings(chance) | {
            "offsets.topic.num.partitions": "2",
            "group.initial.rebalance.delay.ms": "500",
            "group.consumer.min.session.timeout.ms": "5000",
            "group.consumer.session.timeout.ms": str(int(SESSION_TIMEOUT_S * 1000)),
            "group.consumer.min.heartbeat.interval.ms": "500",
            "group.consumer.heartbeat.interval.ms": str(int(HEARTBEAT_S * 1000)),
        }
        if self.nodes == 1:
            settings["log.flush.interval.messages"] = "1"
        else:
            voters = ",".join(f"{i}@n{i}:{PORT}" for i in ids)
            snapshot_bytes = rng.choice((1_500, 20_000_000))
            settings |= {
                "metadata.log.max.record.bytes.between.snapshots": str(snapshot_bytes),
                "controller.quorum.voters": voters,
                "default.replication.factor": "3",
                "min.insync.replicas": "2",
                "offsets.topic.replication.factor": "3",
            }
        self._settings = settings | self._more_settings() | (SETTINGS if self.locked else {})
        self.world.trace.say("limits", str(limits))
        self.world.trace.say("settings", str(self._settings))
        for i in ids:
            machine = self.world.add_machine(i, self._settings)
            machine.clock.skew_ms = rng.randint(-5_000, 5_000)
        self.plan = schedule(self.world.random("schedule"), ids, rng.randint(3, 8))
        self.weather = weather(self.world.random("weather"), ids)
        for episode in self.plan:
            self.world.trace.say("plan", str(episode))
        for episode in self.weather:
            self.world.trace.say("weather", str(episode))

    def _more_settings(self) -> dict[str, str]:
        """What nodes are told beside the usual."""
        return {}

    def _add_node(self) -> None:
        """One more machine, whose node is a broker and an observer of the quorum."""
        settings = {n: v for n, v in self._settings.items() if n != "controller.quorum.voters"}
        servers = ",".join(f"{m.name}:{PORT}" for m in self.world.machines.values())
        settings["controller.quorum.bootstrap.servers"] = servers
        self.world.add_machine(self.nodes + 1, settings).start()

    def _wire(self, name: str) -> Wire:
        return Wire(name, [Address(m.name, PORT) for m in self.world.machines.values()])

    def _in_client(self, wire: Wire, work: Any) -> asyncio.Task[Any]:
        return self.world.spawn(self.world.process(wire.name), work)

    def _topics(self) -> list[Topic]:
        """The topics to make."""
        return [Topic(TOPIC, PARTITIONS), self._compacted(), self._retained()]

    async def _prepare(self, setup: Wire) -> None:
        """What has to be there, beside topics, before clients start."""

    def _compacted(self) -> Topic:
        self.history.kinds[COMPACTED] = CompactedHistory
        self.observer.compacted |= {COMPACTED, OFFSETS_TOPIC}
        return Topic(
            COMPACTED, 1, {"cleanup.policy": "compact", "segment.bytes": str(SEGMENT_BYTES)}
        )

    def _retained(self) -> Topic:
        """By its size or by its age."""
        self.history.kinds[RETAINED] = RetainedHistory
        configs = {"segment.bytes": str(SEGMENT_BYTES), "retention.ms": "-1"}
        if self.rng.random() < 0.6:
            self.observer.retention_bytes[RETAINED] = RETENTION_BYTES
            configs["retention.bytes"] = str(RETENTION_BYTES)
        else:
            configs["retention.ms"] = str(RETENTION_MS)
        return Topic(RETAINED, 1, configs)

    def _administered(self) -> tuple[str, int]:
        """The topic that an operator changes now and then, and how many partitions it has."""
        return TOPIC, PARTITIONS

    async def _create_topic(self, wire: Wire, wanted: Topic) -> None:
        replicas = min(3, self.nodes)
        configs = {"min.insync.replicas": str(min(2, replicas)), **wanted.configs}
        topic = CreatableTopic(
            name=wanted.name,
            num_partitions=wanted.partitions,
            replication_factor=replicas,
            configs=[CreatableTopicConfig(name=n, value=v) for n, v in configs.items()],
        )
        give_up = self.world.loop.time() + START_S_MAX
        code = None
        while code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
            holds(
                self.world.loop.time() < give_up,
                f"no topic could be made within {START_S_MAX} s: {code}",
            )
            try:
                answer = await wire.call_any(CreateTopicsRequest(topics=[topic], timeout_ms=5_000))
                code = ErrorCode(answer.topics[0].error_code)
            except PeerError as e:
                self.world.trace.event(f"create: {e}")
            await pause(0.2)

    def _start_clients(self) -> None:
        for partition in range(PARTITIONS):
            for i in range(2 - partition):
                self._make_producer(f"p{partition}{i}", TOPIC, partition)
        self._make_producer("l0", TOPIC, 0, ScatteringProducer, idempotent=False)
        self._make_consumer("c00", TOPIC, 0)
        self._make_consumer("c01", TOPIC, 0).again = 0.05
        self._make_consumer("c10", TOPIC, 1, SessionConsumer)
        for topic, kind in ((COMPACTED, KeyedProducer), (RETAINED, Producer)):
            self._make_producer(f"p{topic}", topic, 0, kind)
            self._make_consumer(f"c{topic}", topic, 0, SessionConsumer).again = 0.05
        if self.rng.random() < 0.5:
            self._make_members()
        pause_s = self.rng.choice((0.1, 0.3, 1.0))
        for producer in self.producers:
            self.tasks.append(self._in_client(producer.wire, producer.run(pause_s)))
        for consumer in self.consumers:
            self.tasks.append(self._in_client(consumer.wire, consumer.run()))
        for member in self.members:
            self.tasks.append(self._in_client(member.wire, member.run()))

    def _make_producer(
        self,
        name: str,
        topic: str,
        partition: int,
        kind: type[Producer] = Producer,
        *,
        idempotent: bool = True,
    ) -> None:
        world = self.world
        wire, rng = self._wire(name), world.random(name)
        self.producers.append(
            kind(wire, self.history, world.trace, rng, topic, partition, idempotent=idempotent)
        )

    def _make_consumer(
        self, name: str, topic: str, partition: int, kind: type[Consumer] = Consumer
    ) -> Consumer:
        world = self.world
        wire, rng = self._wire(name), world.random(name)
        consumer = kind(wire, self.history, world.trace, rng, topic, partition)
        self.consumers.append(consumer)
        return consumer

    def _make_members(self) -> None:
        kinds: tuple[tuple[str, type[ClassicMember | ConsumerMember]], ...] = (
            ("g", ClassicMember),
            ("h", ConsumerMember),
        )
        for group, kind in kinds:
            for i in range(self.rng.randint(1, 3)):
                name = f"{group}{i}"
                rng = self.world.random(name)
                self.members.append(
                    kind(
                        self._wire(name),
                        self.groups,
                        self.world.trace,
                        rng,
                        group,
                        TOPIC,
                        PARTITIONS,
                    )
                )

    def _start_outsiders(self, operator: Wire) -> None:
        world = self.world
        wire, rng = self._wire(STRANGER), world.random(STRANGER)
        stranger = Outsider(wire, world.paths, rng, TOPIC)
        rng = world.random(GUEST)
        self.guest = Guest(
            self._wire(GUEST),
            world.paths,
            rng,
            TOPIC,
            lambda request: self._in_client(operator, changed(operator, request)),
        )
        self.outsiders = [stranger, self.guest]
        for one in self.outsiders:
            self.tasks.append(self._in_client(one.wire, one.run()))

    async def _rights_followed(self) -> None:
        for one in self.outsiders:
            one.stopping = True
        give_up = self.world.loop.time() + HEAL_S_MAX
        for allowed in (True, False):
            work = self.guest.follows(allowed, give_up, self.world.loop.time)
            await self._in_client(self.guest.wire, work)

    def _clients(self) -> Sequence[Client]:
        return [*self.producers, *self.consumers, *self.members]

    # -- waiting and judging -------------------------------------------------------------------

    async def _until(
        self, condition: Callable[[], bool], what: str | Callable[[], str], seconds: float
    ) -> None:
        give_up = self.world.loop.time() + seconds
        while not condition():
            self._check_running()
            if self.world.loop.time() >= give_up:
                waited_for = what if isinstance(what, str) else f"sync: {what()}"
                raise Violation(f"waited {seconds} s in vain for {waited_for}")
            await asyncio.sleep(0.05)
        self._check_running()

    def _check_running(self) -> None:
        for task in self.tasks:
            if task.done() and not task.cancelled() and task.exception() is not None:
                raise task.exception()  # type: ignore[misc]
        holds(not self.world.broken, "; ".join(self.world.broken[:3]))

    async def _recovered(self) -> None:
        """Every machine serves, and every replica is in sync."""
        machines = self.world.machines.values()
        await self._until(
            lambda: all(m.well for m in machines),
            "all nodes to serve",
            HEAL_S_MAX,
        )
        began = self.world.loop.time()

        def in_sync() -> bool:
            late = self.world.loop.time() > began + LOADED_S_MAX
            out_of_sync = self.observer.out_of_sync()
            for producer in self.producers:
                producer.rests_s = REST_S if late and out_of_sync else 0.0
            return not out_of_sync

        await self._until(in_sync, self.observer.out_of_sync, HEAL_S_MAX)

    async def _judge(self) -> None:
        """All is healed: writing and reading must work again, and everything must be there."""
        await self._recovered()
        await self._at_work_again()
        if self.locked:
            await self._rights_followed()
        for client in self._clients():
            client.stopping = True
        await self._until(lambda: not self.observer.unequal(), self.observer.unequal, HEAL_S_MAX)
        await self._until(
            lambda: not self.observer.images_apart(), self.observer.images_apart, HEAL_S_MAX
        )
        self.observer.check_images()
        self.observed = True
        await asyncio.gather(*self.tasks)
        self._check_running()
        await self._verdict()

    async def _at_work_again(self) -> None:
        """Wait until all clients do what they came for."""
        before = {p: p.sent for p in self.producers}
        rounds = {m: m.rounds for m in self.members}
        await self._until(
            lambda: all(p.sent > before[p] for p in self.producers),
            "every producer to be acknowledged again",
            HEAL_S_MAX,
        )
        await self._until(
            lambda: all(m.rounds > rounds[m] for m in self.members),
            "every member of a group to commit again",
            HEAL_S_MAX,
        )

    async def _verdict(self) -> None:
        """Nobody writes any more: read everything, and judge."""
        for consumer in self.consumers:
            await self._in_client(consumer.wire, self._read_all(consumer))
        self.history.check_complete()
        # Sessions of members that have stopped end meanwhile, and that is written, too.
        await self._until(lambda: not self.observer.unequal(), self.observer.unequal, HEAL_S_MAX)
        self.observer.check_replicas()

    async def _read_all(self, consumer: Consumer) -> None:
        give_up = self.world.loop.time() + HEAL_S_MAX
        end = None
        consumer.offset = 0
        self.history.of(consumer.topic, consumer.partition).is_over = True
        while end is None or consumer.offset < end:
            holds(self.world.loop.time() < give_up, f"{consumer.wire.name} cannot read to {end}")
            if end is None:
                end = await consumer.listed_offset(LATEST)
            if end is None or not await consumer.fetch(max_wait_ms=10):
                await pause(0.1)
