"""Transactional clients: writers over several partitions, chains, zombies, and their readers.

A writer commits or aborts; a chain reads its input as a member of a group, and its output and its
offsets are one transaction. Now and then a client stalls in the middle of a transaction, for longer
than its session and often than its transaction may last, and goes on as if nothing had happened;
mostly another takes its transactional id over in the meantime. Or it vanishes and leaves its
transaction open.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any
from zlib import crc32

from penstock.base.errors import ErrorCode
from penstock.peers.errors import PeerError
from penstock.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from penstock.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from penstock.wire.records import (
    ControlType,
    Record,
    control_type,
    parse_header,
    read_records,
)

from .checks import holds
from .groups import SESSION_TIMEOUT_S, ClassicMember, ConsumerMember, Member
from .trace import Trace
from .txn_history import Chained, Place, TxnHistory
from .txn_session import Abortable, Ended, Owner, TxnSession
from .wire import Leader, Wire, pause

READ_COMMITTED = 1
RETRY_S = 0.1
STALL = 0.04
"""The chance that a client stalls in a transaction."""
VANISH = 0.03
CHAINED_MAX = 40
"""Records of a partition in one transaction of a chain."""


class Stall:
    """How clients come to misbehave; the run says whether and what follows."""

    def __init__(
        self, rng: random.Random, timeout_s: float, replace: Callable[[TxnSession], None]
    ) -> None:
        self.rng = rng
        self.on = True
        self.timeout_s = timeout_s
        self._replace = replace
        """Starts another client with the session's transactional id, unless it was replaced."""

    async def maybe(self, session: TxnSession) -> None:
        if not self.on or self.rng.random() >= STALL:
            return
        if self.rng.random() < 0.5:
            self._replace(session)
        usual_s = (0.5, 3.0, SESSION_TIMEOUT_S * 1.2, self.timeout_s)
        seconds = self.rng.choice(usual_s) * self.rng.uniform(0.8, 1.6)
        session.trace.say(session.wire.name, f"{session.name} stalls for {seconds:.1f} s")
        await pause(seconds)

    def vanishes(self) -> bool:
        return self.on and self.rng.random() < VANISH


class Writer:
    """Writes to some partitions of a topic in each transaction."""

    def __init__(self, session: TxnSession, stall: Stall, topic: str, partitions: int) -> None:
        self.session = session
        self.wire = session.wire
        self.rng = session.rng
        self.stall = stall
        self.topic, self.partitions = topic, partitions
        self.stopping = self.replaced = False
        self.rounds = 0
        """Transactions that were committed."""

    async def run(self, pause_s: float) -> None:
        while not self.stopping and not self.replaced:
            try:
                await self.session.init()
                while not self.stopping and not self.replaced:
                    await self._transaction()
                    await pause(self.rng.expovariate(1.0) * pause_s)
            except Ended as e:
                self.session.trace.say(self.wire.name, f"{self.session.name}: {e}")
                await pause(RETRY_S)

    async def _transaction(self) -> None:
        session, rng = self.session, self.rng
        current = session.begin()
        commit = rng.random() < 0.7
        try:
            for step in range(rng.randint(1, 3)):
                await session.write(self._values(current.name, step))
                await self.stall.maybe(session)
                if self.stall.vanishes():
                    raise Ended("it vanishes")
        except Abortable as e:
            session.trace.say(self.wire.name, f"{current.name}: {e}")
            commit = False
        await end(session, commit)
        self.rounds += commit

    def _values(self, name: str, step: int) -> dict[Place, list[bytes]]:
        rng = self.rng
        chosen = rng.sample(range(self.partitions), rng.randint(1, self.partitions))
        return {
            (self.topic, p): [
                f"{name}.{step}.{p}.{i} ".encode() + b"x" * rng.choice((0, 10, 300))
                for i in range(rng.randint(1, 3))
            ]
            for p in sorted(chosen)
        }


async def end(session: TxnSession, commit: bool) -> None:
    """Commit, or abort if that cannot be; what cannot even be aborted ends the producer."""
    try:
        await session.end(commit)
    except Abortable as e:
        # A commit that is refused is not to be had; the abort that clients send after it is only
        # to make sure, as an abort that was refused for there being nothing to abort.
        raise Ended(f"no end: {e}") from e


class CommittedReader:
    """Reads one partition as clients with `isolation.level=read_committed` do."""

    def __init__(
        self,
        wire: Wire,
        history: TxnHistory,
        trace: Trace,
        rng: random.Random,
        topic: str,
        partition: int,
    ) -> None:
        self.wire = wire
        self.history = history
        self.trace = trace
        self.rng = rng
        self.topic, self.partition = topic, partition
        self.offset = 0
        self.again = 0.0
        """The chance of beginning anew after a fetch."""
        self.stable = -1
        self.stopping = False
        self.seen: list[bytes] = []
        """What was read since offset 0."""

    async def run(self) -> None:
        while not self.stopping:
            records = await self.fetch()
            if records is None:
                await pause(RETRY_S * self.rng.uniform(0.5, 1.5))
                continue
            for record in records:
                self.take(record)
            if self.rng.random() < self.again:
                self.offset = 0

    def take(self, record: Record) -> None:
        value = record.value or b""
        self.history.read_committed(value, f"{self.wire.name}@{record.offset}")
        self.seen.append(value)

    async def fetch(self, max_wait_ms: int = 500) -> list[Record] | None:
        """One fetch from `offset` on, which moves; None when it was not answered."""
        try:
            leader = await self.wire.leader_of(self.topic, self.partition)
            if leader is None:
                return None
            floor = self.history.stable(self.topic, self.partition, leader.epoch)
            request = self._request(leader, max_wait_ms)
            answer = await self.wire.call_node(leader.node_id, request)
        except PeerError:
            self.wire.forget(self.topic, self.partition)
            return None
        if answer.error_code or not answer.responses:
            self.wire.forget(self.topic, self.partition)
            return None
        told = answer.responses[0].partitions[0]
        if told.error_code != ErrorCode.NONE:
            self.trace.event(f"{self.wire.name} fetch {ErrorCode(told.error_code).name}")
            holds(
                told.error_code != ErrorCode.OFFSET_OUT_OF_RANGE,
                f"{self.topic}-{self.partition}@{self.offset}: what was read is gone",
            )
            self.wire.forget(self.topic, self.partition)
            return None
        place = (self.topic, self.partition)
        self.stable = told.last_stable_offset
        self.history.told_stable(place, leader.epoch, self.stable, told.high_watermark, floor)
        return self._records(told)

    def _request(self, leader: Leader, max_wait_ms: int) -> FetchRequest:
        partition = FetchPartition(
            partition=self.partition,
            current_leader_epoch=leader.epoch,
            fetch_offset=self.offset,
            partition_max_bytes=self.rng.choice((1, 4096, 1 << 20)),
        )
        return FetchRequest(
            max_wait_ms=max_wait_ms,
            min_bytes=1,
            max_bytes=1 << 20,
            isolation_level=READ_COMMITTED,
            topics=[FetchTopic(topic_id=self.wire.topic_ids[self.topic], partitions=[partition])],
        )

    def _records(self, told: Any) -> list[Record]:
        """The committed records of an answer, by what it says of aborted transactions."""
        begins = sorted((a.first_offset, a.producer_id) for a in told.aborted_transactions or ())
        aborted: dict[int, None] = {}
        found: list[Record] = []
        view, position = memoryview(told.records or b""), 0
        while position < len(view):
            header = parse_header(view, position)
            batch = bytes(view[position : position + header.size])
            if len(batch) < header.size:
                break
            position += header.size
            holds(
                header.last_offset < told.last_stable_offset,
                f"{self.wire.name} was given {header.last_offset}, beyond the last stable offset "
                f"{told.last_stable_offset}",
            )
            while begins and begins[0][0] <= header.last_offset:
                aborted[begins.pop(0)[1]] = None
            if header.is_control:
                if control_type(read_records(batch)[0]) is ControlType.ABORT:
                    aborted.pop(header.producer_id, None)
            elif not (header.is_transactional and header.producer_id in aborted):
                found += [r for r in read_records(batch) if r.offset >= self.offset]
            self.offset = max(self.offset, header.last_offset + 1)
        self.trace.event(
            f"{self.wire.name} read to {self.offset}, stable {told.last_stable_offset}"
        )
        return found


class Chain(Member):
    """A member of a group whose commits are transactions; mixed into members of both protocols."""

    session: TxnSession
    stall: Stall
    out: tuple[str, int]
    """The output's topic and how many partitions it has."""
    replaced = False

    async def fetch_offset(self, partition: int) -> int | None:
        floor = self.history.committed.get((self.group, partition), -1)
        topics = [OffsetFetchRequestTopics(name=self.topic, partition_indexes=[partition])]
        request = OffsetFetchRequest(
            groups=[OffsetFetchRequestGroup(group_id=self.group, topics=topics)],
            require_stable=True,
        )
        answer = await self.call(request, 9)
        if answer is None:
            return None
        [group] = answer.groups
        code = group.error_code or group.topics[0].partitions[0].error_code
        if code:
            self.lost(code)
            return None
        offset: int = group.topics[0].partitions[0].committed_offset
        self.history.fetched(self.group, partition, offset, floor, self.wire.name)
        self.trace.event(f"{self.wire.name} begins {partition} at {offset}")
        return max(offset, 0)

    async def commit(self) -> bool:
        """Read on, transform, and commit output and offsets in one transaction."""
        if self.replaced:
            self.stopping = True
            return False
        try:
            if self.session.incarnation < 0:
                await self.session.init()
            await self._transaction()
            return True
        except (Abortable, Ended) as e:
            self.trace.say(self.wire.name, f"{self.session.name}: {e}")
            self.session.incarnation = -1
        # The offsets in memory are ahead of those of the group.
        again = list(self.positions)
        self.positions.clear()
        await self.take(again)
        return True

    async def _transaction(self) -> None:
        session = self.session
        source = {p: await self._source(p, at) for p, at in self.positions.items()}
        if not any(records for records, _ in source.values()):
            return
        offsets = {p: after for p, (_, after) in source.items() if after > self.positions[p]}
        owner = Owner(self.group, self.member_id, self.epoch)
        current = session.begin()
        try:
            await session.write(self._transform(current.name, source))
            await self.stall.maybe(session)
            if self.stall.vanishes():
                raise Ended("it vanishes")
            await session.commit_offsets(owner, self.topic, offsets)
            await self.stall.maybe(session)
        except Abortable as e:
            self.trace.say(self.wire.name, f"{current.name}: {e}")
            await end(session, False)
            raise
        await end(session, True)
        for p, after in offsets.items():
            self.history.commit_acknowledged(self.group, p, after)
            if p in self.positions:
                self.positions[p] = after

    async def _source(self, partition: int, at: int) -> tuple[list[Record], int]:
        """Some records from `at` on, and the offset after them."""
        reader = CommittedReader(
            self.wire, self.session.history, self.trace, self.rng, self.topic, partition
        )
        reader.offset = at
        records = (await reader.fetch(max_wait_ms=0) or [])[:CHAINED_MAX]
        return records, records[-1].offset + 1 if records else at

    def _transform(
        self, name: str, source: dict[int, tuple[list[Record], int]]
    ) -> dict[Place, list[bytes]]:
        made: dict[Place, list[bytes]] = {}
        topic, partitions = self.out
        for partition, (records, _) in source.items():
            for record in records:
                key = (record.value or b"").partition(b"/")[0]
                value = f"{name} {partition}@{record.offset}".encode()
                self.session.history.chained[value] = Chained(partition, record.offset, key)
                made.setdefault((topic, crc32(key) % partitions), []).append(value)
        return made


class ClassicChain(Chain, ClassicMember):
    """Fenced by member and generation."""


class ConsumerChain(Chain, ConsumerMember):
    """Fenced by member and its epoch (KIP-848)."""
