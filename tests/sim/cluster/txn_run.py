"""A run with transactions: writers, a chain from one topic to another, zombies, and their readers.

The faults are those of every run. In the end the chain has to have read all its input, and nothing
may be open any more: what nobody ends its coordinator ends.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from penstock.metadata.names import OFFSETS_TOPIC, TRANSACTIONS_TOPIC

from .checks import holds
from .faults import CLOCK_SKEW_MS_MAX
from .run import HEAL_S_MAX, PARTITIONS, TOPIC, Client, Run, Topic
from .schedule import CLOCK
from .txn_aim import Aim
from .txn_ghosts import Ghosts
from .txn_history import TxnHistory
from .txn_observer import TxnObserver
from .txn_session import VERSION_1, VERSION_2, TxnSession
from .txn_workers import Chain, ClassicChain, CommittedReader, ConsumerChain, Stall, Writer
from .wire import pause

OUT, OUT_PARTITIONS = "u", 3
GROUP = "chain"
STABLE_S_MAX = 60.0
"""After its time a transaction has to be over within this."""
CLEANUP_S = 2.0


class TransactionRun(Run):
    def __init__(self, seed: int, nodes: int = 3) -> None:
        super().__init__(seed, nodes)
        self.observer: TxnObserver = TxnObserver(self.world)
        self.transactions = TxnHistory()
        self.writers: list[Writer] = []
        self.chains: list[Chain] = []
        self.readers: list[CommittedReader] = []
        self.timeout_s = self.rng.choice((6.0, 15.0, 25.0))
        self.stall = Stall(self.world.random("stall"), self.timeout_s, self._replace)
        self.ghosts = Ghosts(self.world.random("ghosts"), self._wire("ghosts"), self._haunt)
        self._chain_kind = self.rng.choice((ClassicChain, ConsumerChain))
        self._made = 0

    def _haunt(self, work: Any) -> None:
        self.tasks.append(self._in_client(self.ghosts.wire, work))

    def _note(self) -> str:
        seen = self.transactions
        return (
            f", {len(seen.transactions)} transactions: {seen.commits} committed, {seen.aborts} "
            f"aborted, {seen.fenced} fencings, {len(seen.chained)} chained"
        )

    def _more_settings(self) -> dict[str, str]:
        replicas = str(min(3, self.nodes))
        return {
            "log.cleaner.enable": "false",  # what is checked is the whole of all logs
            "transaction.state.log.num.partitions": "2",
            "transaction.state.log.replication.factor": replicas,
            "transaction.state.log.min.isr": str(min(2, self.nodes)),
            "transaction.abort.timed.out.transaction.cleanup.interval.ms": str(
                int(CLEANUP_S * 1000)
            ),
        }

    def _topics(self) -> list[Topic]:
        return [Topic(TOPIC, PARTITIONS), Topic(OUT, OUT_PARTITIONS)]

    def _administered(self) -> tuple[str, int]:
        topics = {OUT: OUT_PARTITIONS, TRANSACTIONS_TOPIC: 2, OFFSETS_TOPIC: 2}
        return self.rng.choice(list(topics.items()))

    # -- clients -------------------------------------------------------------------------------

    def _clients(self) -> Sequence[Client]:
        return [*self.producers, *self.consumers, *self.writers, *self.chains, *self.readers]

    def _workers(self) -> list[Writer | Chain]:
        return [*self.writers, *self.chains]

    def _start_clients(self) -> None:
        self.ghosts.haunt_markers()
        world, trace, rng = self.world, self.world.trace, self.rng
        pause_s = rng.choice((0.3, 1.0))
        for partition in range(PARTITIONS):
            self._make_producer(f"p{partition}", TOPIC, partition)
        for producer in self.producers:
            self.tasks.append(self._in_client(producer.wire, producer.run(1.0)))
        self.write_pause_s = pause_s
        for i, version in enumerate((VERSION_1, VERSION_2)):
            self._start_writer(f"w{i}", version)
        for i in range(2):
            self._start_chain(f"x{i}", rng.choice((VERSION_1, VERSION_2)))
        for partition in range(OUT_PARTITIONS):
            name = f"rc{partition}"
            reader = CommittedReader(
                self._wire(name), self.transactions, trace, world.random(name), OUT, partition
            )
            reader.again = 0.03
            self.readers.append(reader)
            self.tasks.append(self._in_client(reader.wire, reader.run()))
        for topic in self._topics():
            for partition in range(topic.partitions):
                self._make_consumer(f"ru-{topic.name}{partition}", topic.name, partition)
        self.aim = Aim(world, world.random("aim"))
        self.tasks.append(world.spawn(world.process("aim"), self.aim.run()))
        # The others read once, in the end.
        consumer = rng.choice(self.consumers)
        self.tasks.append(self._in_client(consumer.wire, consumer.run()))

    def _session(self, transactional_id: str, version: int) -> TxnSession:
        self._made += 1
        name = f"{transactional_id}-{self._made}"
        session = TxnSession(
            self._wire(name),
            self.transactions,
            self.history,
            self.world.trace,
            self.world.random(name),
            transactional_id,
            version,
            int(self.timeout_s * 1000),
        )
        session.ghosts = self.ghosts
        return session

    def _start_writer(self, transactional_id: str, version: int) -> None:
        session = self._session(transactional_id, version)
        writer = Writer(session, self.stall, OUT, OUT_PARTITIONS)
        self.writers.append(writer)
        self.tasks.append(self._in_client(writer.wire, writer.run(self.write_pause_s)))

    def _start_chain(self, transactional_id: str, version: int) -> None:
        session = self._session(transactional_id, version)
        world = self.world
        chain = self._chain_kind(
            session.wire, self.groups, world.trace, session.rng, GROUP, TOPIC, PARTITIONS
        )
        chain.session, chain.stall, chain.out = session, self.stall, (OUT, OUT_PARTITIONS)
        self.chains.append(chain)
        self.tasks.append(self._in_client(chain.wire, chain.run()))

    def _replace(self, session: TxnSession) -> None:
        """A client stalls: another takes its place, and its transactional id."""
        for worker in self._workers():
            if worker.session is session and not worker.replaced:
                worker.replaced = True
                start = self._start_chain if isinstance(worker, Chain) else self._start_writer
                start(session.transactional_id, self.rng.choice((VERSION_1, VERSION_2)))

    # -- the judgement -------------------------------------------------------------------------

    async def _at_work_again(self) -> None:
        self.stall.on = False
        self.aim.stopping = True
        self.ghosts.on = False
        if any(episode.kind == CLOCK for episode in self.plan):
            # A clock that was put back keeps transactions open for as long; so all go ahead.
            for machine in self.world.machines.values():
                machine.clock.skew_ms = CLOCK_SKEW_MS_MAX
        before = {p: p.sent for p in self.producers}
        writers = {w: w.rounds for w in self.writers if not w.replaced}
        await self._until(
            lambda: (
                all(p.sent > before[p] for p in self.producers)
                and all(w.rounds > writers[w] for w in writers)
            ),
            "every writer to commit again",
            HEAL_S_MAX,
        )
        for producer in self.producers:
            producer.stopping = True
        await self._until(
            lambda: not self._behind(), lambda: f"the chain: {self._behind()}", HEAL_S_MAX
        )
        for client in self._workers():
            client.stopping = True
        await self._until(
            lambda: not self.observer.unstable(),
            self.observer.unstable,
            self.timeout_s + STABLE_S_MAX,
        )

    def _behind(self) -> str:
        """Input that the chain has not read; empty for none."""
        for name, index, replicas in self.observer.by_partition():
            if name == TOPIC:
                end = max(p.log.log_end_offset for p in replicas.values())
                at = self.groups.committed.get((GROUP, index), 0)
                if at < end:
                    return f"partition {index} is read to {at} of {end}"
        return ""

    async def _verdict(self) -> None:
        visible = {}
        for reader in self.readers:
            await self._in_client(reader.wire, self._read_committed(reader))
            visible[reader.topic, reader.partition] = reader.seen
        source, committed = {}, {}
        for producer in self.producers:
            partition = producer.partition
            source[partition] = await self._in_client(producer.wire, self._source(partition))
            committed[partition] = self.groups.committed.get((GROUP, partition), 0)
        self.transactions.check_complete(visible)
        self.transactions.check_chain(source, committed, visible)
        await super()._verdict()
        self.observer.check_transactions()

    async def _read_committed(self, reader: CommittedReader) -> None:
        """All of a partition, from its start."""
        give_up = self.world.loop.time() + HEAL_S_MAX
        reader.offset, reader.seen, reader.stable = 0, [], -1
        while reader.stable < 0 or reader.offset < reader.stable:
            holds(self.world.loop.time() < give_up, f"{reader.wire.name} cannot read on")
            records = await reader.fetch(max_wait_ms=10)
            for record in records or []:
                reader.take(record)
            if not records:
                await pause(0.05)

    async def _source(self, partition: int) -> list[tuple[int, bytes]]:
        """The chain's input as it is: offsets and keys."""
        reader = CommittedReader(
            self._wire("source"),
            self.transactions,
            self.world.trace,
            self.world.random("source"),
            TOPIC,
            partition,
        )
        found = []
        while reader.stable < 0 or reader.offset < reader.stable:
            for record in await reader.fetch(max_wait_ms=10) or []:
                found.append((record.offset, (record.value or b"").partition(b"/")[0]))
        return found
