"""A run with share groups: members of two groups, beside producers, transactional writers, and the
members of other groups.

One group reads all that is committed by its partition's leader: of a topic that keeps everything,
of a compacted one, of one with retention, and of one that is deleted and made again. The other
reads what transactions have committed. The faults are those of every run. In the end both groups
have to finish whatever there is, without misbehaving any more.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from penstock.metadata.features import SHARE_VERSION
from penstock.metadata.image import ResourceType
from penstock.metadata.names import OFFSETS_TOPIC, SHARE_STATE_TOPIC, TRANSACTIONS_TOPIC
from penstock.peers.errors import PeerError
from penstock.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from penstock.wire.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from penstock.wire.records import Record, parse_header, read_records

from .admin import SET, Admin
from .checks import History, holds
from .clients import KeyedProducer, Producer
from .faults import CLOCK_SKEW_MS_MAX
from .run import COMPACTED, HEAL_S_MAX, PARTITIONS, RETAINED, START_S_MAX, TOPIC, Client, Run, Topic
from .schedule import CLOCK
from .share_history import Terms
from .share_members import HEARTBEAT_S, ShareGroup, ShareMember
from .share_observer import ShareObserver
from .share_probe import PROBE_GROUP, probe
from .txn_history import TxnHistory
from .txn_session import VERSION_1, VERSION_2, TxnSession
from .txn_workers import Stall, Writer
from .wire import Wire, pause

WRITTEN = "u"
"""The topic of transactions."""
COMES_AND_GOES = "b"
ALL, COMMITTED = "s", "c"
DEAD = "dlq.s"
RESTS: dict[str, Callable[[int], float]] = {
    "constant": lambda count: 1.0,
    "linear": float,
    "exponential": lambda count: 2.0 ** (count - 1),
}
"""How many times the first rest a record rests after so many deliveries."""
REST_MS_MAX = 5_000
DEAD_LETTERS_LEVEL = 2
"""Of the feature share.version."""
TXN_TIMEOUT_S = 6.0
SESSION_TIMEOUT_S = 10.0
FINISHED_S_MAX = 60.0


class ShareRun(Run):
    def __init__(self, seed: int, nodes: int = 3) -> None:
        super().__init__(seed, nodes)
        self.observer: ShareObserver = ShareObserver(self.world)
        self.observer.compacted.add(TRANSACTIONS_TOPIC)
        self.transactions = TxnHistory()
        self.writers: list[Writer] = []
        self.sharing: list[ShareMember] = []
        self.stall = Stall(self.world.random("stall"), TXN_TIMEOUT_S, lambda _: None)
        self.share_groups = [
            self._group(ALL, (TOPIC, COMPACTED, RETAINED, COMES_AND_GOES), committed=False),
            self._group(COMMITTED, (WRITTEN, TOPIC), committed=True),
        ]
        self.probe_group = self._group(PROBE_GROUP, (TOPIC,), committed=False, lock_s=60.0, limit=5)
        self.is_over = False
        """Whether the topic that comes and goes stays."""

    def _group(
        self,
        name: str,
        topics: tuple[str, ...],
        *,
        committed: bool,
        lock_s: float = 0.0,
        limit: int = 0,
    ) -> ShareGroup:
        rng = self.rng
        lock_s, limit = lock_s or rng.choice((1.0, 3.0, 15.0)), limit or rng.choice((2, 5, 10))
        settings = {
            "share.auto.offset.reset": "earliest",
            "share.isolation.level": "read_committed" if committed else "read_uncommitted",
            "share.record.lock.duration.ms": str(int(lock_s * 1000)),
            "share.delivery.count.limit": str(limit),
            "share.partition.max.record.locks": rng.choice(("100", "2000")),
        }
        if dead := name == ALL and self.world.seed % 2 == 0:
            settings["errors.deadletterqueue.topic.name"] = DEAD
            settings["errors.deadletterqueue.copy.record.enable"] = rng.choice(("true", "false"))
        rest_s = rng.choice((0.0, 0.0, 0.5, 2.0))
        settings["share.retry.backoff.ms"] = str(int(rest_s * 1000))
        settings["share.retry.backoff.max.ms"] = str(REST_MS_MAX)
        settings["share.retry.backoff.type"] = kind = rng.choice(list(RESTS))
        self.observer.shares.terms[name] = Terms(
            lock_s,
            limit,
            dead,
            lambda count: min(rest_s * RESTS[kind](count), REST_MS_MAX / 1000),
        )
        return ShareGroup(name, topics, committed, lock_s, settings)

    def _note(self) -> str:
        shares = self.observer.shares
        return (
            f", {shares.deliveries} deliveries to share groups, {shares.redeliveries} again, "
            f"{shares.acknowledged} acknowledged"
        )

    # -- what there is -------------------------------------------------------------------------

    def _more_settings(self) -> dict[str, str]:
        rng, replicas = self.rng, str(min(3, self.nodes))
        return {
            "transaction.state.log.num.partitions": "2",
            "transaction.state.log.replication.factor": replicas,
            "transaction.state.log.min.isr": str(min(2, self.nodes)),
            "share.coordinator.state.topic.num.partitions": "2",
            "share.coordinator.state.topic.replication.factor": replicas,
            "share.coordinator.state.topic.min.isr": str(min(2, self.nodes)),
            "share.coordinator.state.topic.segment.bytes": rng.choice(("6000", "104857600")),
            "share.coordinator.snapshot.update.records.per.snapshot": rng.choice(
                ("0", "5", "20", "500")
            ),
            "share.coordinator.state.topic.prune.interval.ms": rng.choice(("500", "3000")),
            "share.coordinator.cold.partition.snapshot.interval.ms": rng.choice(("1000", "10000")),
            "group.share.min.record.lock.duration.ms": "1000",
            "group.share.min.session.timeout.ms": "5000",
            "group.share.session.timeout.ms": str(int(SESSION_TIMEOUT_S * 1000)),
            "group.share.min.heartbeat.interval.ms": "500",
            "group.share.heartbeat.interval.ms": str(int(HEARTBEAT_S * 1000)),
            "group.share.assignment.interval.ms": rng.choice(("0", "1000")),
            "group.share.initialize.retry.interval.ms": rng.choice(("1000", "5000")),
        }

    def _topics(self) -> list[Topic]:
        return [
            Topic(TOPIC, PARTITIONS),
            self._compacted(),
            self._retained(),
            Topic(WRITTEN, 1),
            Topic(COMES_AND_GOES, 1),
            Topic(DEAD, 1, {"errors.deadletterqueue.group.enable": "true"}),
        ]

    def _administered(self) -> tuple[str, int]:
        topics = {TOPIC: PARTITIONS, WRITTEN: 1, DEAD: 1, SHARE_STATE_TOPIC: 2, OFFSETS_TOPIC: 2}
        return self.rng.choice(list(topics.items()))

    async def _prepare(self, setup: Wire) -> None:
        """Groups have their settings on every node before a member comes: where a group begins
        follows from them.
        """
        groups = [*self.share_groups, self.probe_group]
        give_up = self.world.loop.time() + START_S_MAX
        while not await self._in_client(setup, _configured(setup, groups)):
            holds(self.world.loop.time() < give_up, "share groups could not be configured")
            await pause(0.2)
        await self._until(
            lambda: not self.observer.images_apart(), "all nodes to have the settings", START_S_MAX
        )

    # -- clients -------------------------------------------------------------------------------

    def _clients(self) -> Sequence[Client]:
        return [*super()._clients(), *self.writers, *self.sharing]

    def _start_clients(self) -> None:
        rng = self.rng
        for topic, kind in ((TOPIC, Producer), (COMPACTED, KeyedProducer), (RETAINED, Producer)):
            for partition in range(PARTITIONS if topic == TOPIC else 1):
                self._make_producer(f"p{topic}{partition}", topic, partition, kind)
        for topic in (TOPIC, COMPACTED, RETAINED, WRITTEN):
            for partition in range(PARTITIONS if topic == TOPIC else 1):
                self._make_consumer(f"c{topic}{partition}", topic, partition)
        name = f"p{COMES_AND_GOES}"
        fleeting = Producer(self._wire(name), History(), self.world.trace, self.world.random(name),
                            COMES_AND_GOES, 0, idempotent=False)  # fmt: skip
        self.producers.append(fleeting)
        if rng.random() < 0.3:
            self._make_members()
        # One consumer follows, the others read once, in the end.
        for client in (rng.choice(self.consumers), *self.members):
            self.tasks.append(self._in_client(client.wire, client.run()))
        for producer in self.producers:
            self.tasks.append(self._in_client(producer.wire, producer.run(1.0)))
        for i, version in enumerate((VERSION_1, VERSION_2)):
            self._start_writer(f"w{i}", version)
        for group in self.share_groups:
            for i in range(rng.randint(2, 3)):
                self._start_member(f"{group.name}{i}", group)
        remake = self._wire("remake")
        self.remaking = self._in_client(remake, self._come_and_go(remake))
        self.tasks.append(self.remaking)

    def _start_writer(self, transactional_id: str, version: int) -> None:
        session = TxnSession(
            self._wire(transactional_id),
            self.transactions,
            self.history,
            self.world.trace,
            self.world.random(transactional_id),
            transactional_id,
            version,
            int(TXN_TIMEOUT_S * 1000),
        )
        writer = Writer(session, self.stall, WRITTEN, 1)
        self.writers.append(writer)
        self.tasks.append(self._in_client(writer.wire, writer.run(1.0)))

    def _member(self, name: str, group: ShareGroup) -> ShareMember:
        rng = self.world.random(name)
        return ShareMember(
            self._wire(name), self.observer, self.world.trace, rng, group, self._read
        )

    def _start_member(self, name: str, group: ShareGroup) -> None:
        member = self._member(name, group)
        self.sharing.append(member)
        self.tasks.append(self._in_client(member.wire, member.run()))

    def _read(self, topic: str, partition: int, data: bytes, mine: set[int], who: str) -> None:
        """What members read is what others read; the topic that begins anew has nobody else."""
        if topic == WRITTEN:
            for record in _records(data):
                if record.offset in mine:
                    self.transactions.read_committed(record.value or b"", f"{who}@{record.offset}")
        elif topic != COMES_AND_GOES:
            self.history.read(topic, partition, data, who)

    async def _come_and_go(self, wire: Wire) -> None:
        """A topic is deleted and made again, while share groups consume it."""
        rng = self.world.random(wire.name)
        admin = Admin(self.world, wire, rng, TOPIC, PARTITIONS)
        while not self.is_over:
            await pause(rng.uniform(4.0, 20.0))
            if self.is_over:
                break
            for act in (admin.delete, self._made_again):
                try:
                    told = await act(COMES_AND_GOES)
                except PeerError as e:
                    told = str(e)
                self.world.trace.say(wire.name, told)
                await pause(rng.uniform(0.0, 2.0))

    async def _made_again(self, name: str) -> str:
        self.world.paths.reach("share topic made again")
        await self._create_topic(self._wire("remake"), Topic(name, 1))
        return f"{name} is there again"

    # -- the judgement -------------------------------------------------------------------------

    async def _at_work_again(self) -> None:
        self.is_over = True
        self.stall.on = False
        if any(episode.kind == CLOCK for episode in self.plan):
            # A clock that was put back keeps transactions open for as long; so all go ahead.
            for machine in self.world.machines.values():
                machine.clock.skew_ms = CLOCK_SKEW_MS_MAX
        await self._until(self.remaking.done, "the topic to be there again", START_S_MAX)
        rounds = {m: m.rounds for m in self.sharing}
        await super()._at_work_again()
        for member in self.sharing:
            member.calm = True
        await self._until(
            lambda: all(m.rounds > rounds[m] for m in self.sharing),
            "every member of a share group to be answered",
            HEAL_S_MAX,
        )
        for client in (*self.producers, *self.writers):
            client.stopping = True
        await self._until(
            lambda: not self.observer.unstable(), self.observer.unstable, TXN_TIMEOUT_S + HEAL_S_MAX
        )
        topics = {group.name: group.topics for group in self.share_groups}
        await self._until(
            lambda: not self.observer.behind(topics),
            lambda: self.observer.behind(topics),
            FINISHED_S_MAX,
        )
        await self._probe()

    async def _probe(self) -> None:
        pair = [self._member(f"{PROBE_GROUP}{i}", self.probe_group) for i in range(2)]
        await self._in_client(pair[0].wire, probe(*pair))

    async def _verdict(self) -> None:
        await super()._verdict()
        await self._until(
            lambda: not self.observer.forgotten(),
            lambda: f"states of topics that are gone: {self.observer.forgotten()}",
            HEAL_S_MAX,
        )
        await self._until(lambda: not self.observer.unequal(), self.observer.unequal, HEAL_S_MAX)
        self.observer.look()
        if self.observer.shares.terms[ALL].dead_letters:
            kept = (TOPIC, COMPACTED, RETAINED)
            self.observer.check_dead_letters(DEAD, ALL, kept, committed=False)
        self.observer.check_shares(
            {group.name: (group.topics, group.committed) for group in self.share_groups}
        )


def _records(data: bytes) -> list[Record]:
    """Those of whole batches, but of control batches."""
    found: list[Record] = []
    view, position = memoryview(data), 0
    while position < len(view):
        header = parse_header(view, position)
        if not header.is_control:
            found += read_records(bytes(view[position : position + header.size]))
        position += header.size
    return found


async def _configured(wire: Wire, groups: Sequence[ShareGroup]) -> bool:
    """Whether the groups have their settings."""
    resources = [
        AlterConfigsResource(
            resource_type=ResourceType.GROUP,
            resource_name=group.name,
            configs=[
                AlterableConfig(name=name, config_operation=SET, value=value)
                for name, value in group.settings.items()
            ],
        )
        for group in groups
    ]
    level = FeatureUpdateKey(feature=SHARE_VERSION, max_version_level=DEAD_LETTERS_LEVEL)
    try:
        answer = await wire.call_any(UpdateFeaturesRequest(feature_updates=[level]))
        if answer.error_code:
            return False
        answer = await wire.call_any(IncrementalAlterConfigsRequest(resources=resources))
    except PeerError:
        return False
    return not any(one.error_code for one in answer.responses)
