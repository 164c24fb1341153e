"""Simulated members of share groups: heartbeats, share sessions, and every kind of acknowledgement.

A member asks the leaders of what it was assigned in turns. What it gets it finishes, gives back,
rejects, keeps for longer (renewed or not), or never speaks of again; it says so with its next
fetch or by itself. Now and then it drops a connection, ends a session, leaves the group, or dies
and comes back as another. `calm` ends all that: whatever comes is accepted at once.

All it was given and said it tells the `ShareHistory`, and what it read to `seen`.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from penstock.base.errors import ErrorCode
from penstock.base.ids import Uuid
from penstock.peers.connection import Address
from penstock.peers.errors import PeerError
from penstock.wire.messages.find_coordinator import FindCoordinatorRequest
from penstock.wire.messages.share_acknowledge import ShareAcknowledgeRequest
from penstock.wire.messages.share_fetch import ShareFetchRequest
from penstock.wire.messages.share_group_heartbeat import ShareGroupHeartbeatRequest

from .checks import holds
from .share_history import (
    ACCEPT,
    GAP,
    REJECT,
    RELEASE,
    RENEW,
    Held,
    Receipt,
    ShareHistory,
    SharePlace,
)
from .share_observer import ShareObserver
from .share_session import (
    CLOSE,
    OPEN,
    Intent,
    Said,
    Session,
    acknowledge_topics,
    fetch_topics,
    forgotten_topics,
    offsets_in,
)
from .trace import Trace
from .wire import Wire, pause

HEARTBEAT_S = 1.0
RETRY_S = 0.2
JOIN, LEAVE = 0, -1
NOT_HELD = frozenset({ErrorCode.INVALID_RECORD_STATE, ErrorCode.INVALID_REQUEST})
SPAN_MAX = 500
"""Records that a fetch asks for at most."""


@dataclass(frozen=True)
class ShareGroup:
    name: str
    topics: tuple[str, ...]
    committed: bool
    """Whether it reads what is committed."""
    lock_s: float
    settings: dict[str, str]


class ShareMember:
    def __init__(
        self,
        wire: Wire,
        observer: ShareObserver,
        trace: Trace,
        rng: random.Random,
        group: ShareGroup,
        seen: Callable[[str, int, bytes, set[int], str], None],
    ) -> None:
        self.wire = wire
        self.observer = observer
        self.history: ShareHistory = observer.shares
        self.trace = trace
        self.rng = rng
        self.group = group
        self.stopping = self.calm = False
        self.rounds = 0
        """Fetches that were answered."""
        self._seen = seen
        self._coordinator: Address | None = None
        self._assigned: dict[tuple[Uuid, int], None] = {}
        self._sessions: dict[int, Session] = {}
        self._heartbeat_at = 0.0
        self._born()

    def _born(self) -> None:
        self.member_id = f"{self.wire.name}-{self.rng.getrandbits(64):016x}"
        self.epoch = JOIN
        self._assigned.clear()

    @property
    def _now(self) -> float:
        return asyncio.get_running_loop().time()

    # -- the course of a member ----------------------------------------------------------------

    async def run(self) -> None:
        while not self.stopping:
            await self.round()
            if not self.calm:
                await self._misbehave()
        await self.leave()

    async def round(self) -> None:
        """A heartbeat if it is time, and a fetch at each leader."""
        if self._now >= self._heartbeat_at:
            await self._heartbeat()
            self._heartbeat_at = self._now + HEARTBEAT_S * self.rng.uniform(0.5, 1.0)
        await self.fetch()

    async def leave(self) -> None:
        for session in list(self._sessions.values()):
            await self._close(session)
        await self._call(self._heartbeat_request(LEAVE))

    def die(self) -> None:
        """Nobody is told but by the connections."""
        for session in list(self._sessions.values()):
            self._drop(session)

    def in_hand(self) -> list[tuple[SharePlace, int]]:
        """The records that the member holds, as far as it knows."""
        return [
            (place, offset)
            for session in self._sessions.values()
            for place, hand in session.hand.items()
            for offset in hand
        ]

    def does_as(self, other: ShareMember) -> None:
        """Fetch what another was assigned: leaders do not ask."""
        self._assigned = dict(other._assigned)

    async def _misbehave(self) -> None:
        rng = self.rng
        if rng.random() < 0.02 and self._sessions:
            session = rng.choice(list(self._sessions.values()))
            if rng.random() < 0.5:
                self.trace.say(self.wire.name, f"drops its connection to n{session.node_id}")
                self._drop(session)
            else:
                await self._close(session)
        if rng.random() < 0.01:
            dies = rng.random() < 0.6
            self.trace.say(self.wire.name, "dies" if dies else "leaves")
            self.die() if dies else await self.leave()
            self._born()
        if rng.random() < 0.02:
            await pause(self.group.lock_s * rng.choice((0.3, 1.0, 1.5)))

    # -- membership ----------------------------------------------------------------------------

    async def _heartbeat(self) -> None:
        answer = await self._call(self._heartbeat_request(self.epoch))
        if answer is None:
            return
        code = ErrorCode(answer.error_code)
        self.trace.event(f"{self.wire.name} heartbeat {code.name} {answer.member_epoch}")
        self.trace.paths.answered(code.name)
        if code in (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE):
            self._coordinator = None
        elif code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH):
            self.epoch = JOIN
            self._assigned.clear()
        elif not code:
            self.epoch = answer.member_epoch
            if answer.assignment is not None:
                topics = answer.assignment.topic_partitions
                self._assigned = {(t.topic_id, p): None for t in topics for p in t.partitions}

    def _heartbeat_request(self, epoch: int) -> ShareGroupHeartbeatRequest:
        return ShareGroupHeartbeatRequest(
            group_id=self.group.name,
            member_id=self.member_id,
            member_epoch=epoch,
            subscribed_topic_names=list(self.group.topics) if epoch == JOIN else None,
        )

    async def _call(self, request: Any) -> Any:
        """Ask the group's coordinator; None when there is no answer."""
        try:
            if self._coordinator is None:
                find = FindCoordinatorRequest(key_type=0, coordinator_keys=[self.group.name])
                [found] = (await self.wire.call_any(find)).coordinators
                if found.error_code:
                    return None
                self._coordinator = Address(found.host, found.port)
            return await self.wire.call(self._coordinator, request)
        except PeerError:
            self._coordinator = None
            return None

    # -- fetching ------------------------------------------------------------------------------

    async def fetch(self) -> None:
        """One at each leader."""
        by_node = await self._leaders()
        for node_id in by_node:
            self._sessions.setdefault(node_id, Session(node_id))
        good = bool(by_node)
        for session in list(self._sessions.values()):
            if self.stopping:
                break
            wanted = by_node.get(session.node_id, {})
            if wanted:
                good &= await self._fetch(session, wanted)
            else:
                await self._close(session)
        if not good:
            await pause(RETRY_S * self.rng.uniform(0.5, 1.5))

    async def _leaders(self) -> dict[int, dict[SharePlace, str]]:
        """What was assigned, by the node that leads it, as far as that is known."""
        try:
            known = {id_: name for name, id_ in self.wire.topic_ids.items()}
            if any(topic_id not in known for topic_id, _ in self._assigned):
                await self.wire.refresh(*self.group.topics)
                known = {id_: name for name, id_ in self.wire.topic_ids.items()}
            found: dict[int, dict[SharePlace, str]] = {}
            for topic_id, index in self._assigned:
                name = known.get(topic_id)
                leader = None if name is None else await self.wire.leader_of(name, index)
                if name is not None and leader is not None:
                    place = SharePlace(self.group.name, topic_id, index)
                    found.setdefault(leader.node_id, {})[place] = name
        except PeerError:
            return {}
        return found

    async def _fetch(self, session: Session, wanted: Mapping[SharePlace, str]) -> bool:
        said = {} if session.epoch == OPEN else session.take(self._now)
        if said and self.rng.random() < 0.4:
            if not await self._acknowledge(session, said):
                return False
            said = {}
        if session.epoch != OPEN and not await self._renew(session):
            return False
        request = self._fetch_request(session, wanted, said)
        sent, node_id = self._now, session.node_id
        lives = {place: self.observer.life(node_id, place) for place in wanted}
        before = self._say(session, said)
        try:
            answer = await self.wire.call_node(node_id, request)
        except PeerError:
            for place in session.named:
                self.history.unanswered_fetch(place, sent)
            self._drop(session)
            return False
        if answer.error_code:
            self._refused(session, ErrorCode(answer.error_code))
            return False
        session.epoch += 1
        self.rounds += 1
        for topic in answer.responses:
            for told in topic.partitions:
                place = SharePlace(self.group.name, topic.topic_id, told.partition_index)
                self._told(place, said, before, sent, told.acknowledge_error_code)
                life = self.observer.life(node_id, place)
                self._took(session, place, told, sent, life if lives.get(place) == life else 0)
        return True

    def _fetch_request(
        self,
        session: Session,
        wanted: Mapping[SharePlace, str],
        said: Mapping[SharePlace, Said],
    ) -> ShareFetchRequest:
        rng = self.rng
        new = [place for place in wanted if place not in session.named]
        topics = fetch_topics(new, said, rng)
        # What a request only acknowledges joins the session, too.
        gone = [place for place in {**session.named, **said} if place not in wanted]
        session.named = dict(wanted)
        records = SPAN_MAX if self.calm else rng.choice((1, 3, 20, SPAN_MAX))
        return ShareFetchRequest(
            group_id=self.group.name,
            member_id=self.member_id,
            share_session_epoch=session.epoch,
            max_wait_ms=rng.choice((20, 100, 500)),
            min_bytes=1,
            max_bytes=1 << 20 if self.calm else rng.choice((1, 4096, 1 << 20)),
            max_records=records,
            batch_size=rng.choice((1, 10, records)),
            share_acquire_mode=rng.choice((0, 0, 1)),
            topics=topics,
            forgotten_topics_data=forgotten_topics(gone),
        )

    def _refused(self, session: Session, code: ErrorCode) -> None:
        """The whole request was refused: the session is another one, or there is none."""
        self.trace.event(f"{self.wire.name} at n{session.node_id}: {code.name}")
        self.trace.paths.answered(code.name)
        holds(
            code != ErrorCode.INVALID_SHARE_SESSION_EPOCH,
            f"{self.wire.name} counts the requests of its session with n{session.node_id}, and is "
            f"told that {session.epoch} is not the next",
        )
        self._drop(session)

    def _took(self, session: Session, place: SharePlace, told: Any, sent: float, life: int) -> None:
        code = ErrorCode(told.error_code)
        name = session.named.get(place)
        if code:
            self.trace.event(f"{self.wire.name} {place} {code.name}")
            self.trace.paths.answered(code.name)
            if name is not None:
                self.wire.forget(name, place.partition)
            return
        if not told.acquired_records or name is None:
            return
        who = f"{self.wire.name} from n{session.node_id}"
        there = offsets_in(told.records or b"")
        mine = {
            o for run in told.acquired_records for o in range(run.first_offset, run.last_offset + 1)
        }
        self._seen(name, place.partition, bytes(told.records or b""), mine, who)
        node, now = session.node_id, self._now
        number = self.observer.session(node, place.group, self.member_id)
        receipt = Receipt(self.member_id, life, number, sent, now)
        hand = session.hand.setdefault(place, {})
        for run in told.acquired_records:
            offsets = range(run.first_offset, run.last_offset + 1)
            self.trace.event(f"{who} has {place} {offsets} for time {run.delivery_count}")
            for offset in offsets:
                self.history.given(place, offset, run.delivery_count, receipt)
                held = self.history.of(place, offset).held
                assert held is not None
                hand[offset] = held
            session.intents += self._intents(place, [o for o in offsets if o in there])
            gaps = {offset: GAP for offset in offsets if offset not in there}
            if gaps:
                self.trace.paths.reach("share gap")
                session.intents.append(Intent(now, place, gaps))

    def _intents(self, place: SharePlace, offsets: list[int]) -> list[Intent]:
        """What becomes of records that are there."""
        rng, now, lock_s = self.rng, self._now, self.group.lock_s
        if not offsets:
            return []
        if self.calm or rng.random() < 0.5:
            return [Intent(now, place, dict.fromkeys(offsets, ACCEPT))]
        later = now + lock_s * rng.choice((0.1, 0.5, 0.9, 1.3))
        chance = rng.random()
        if chance < 0.1:
            return []
        if chance < 0.3:
            kinds = (ACCEPT, ACCEPT, RELEASE, REJECT)
            return [Intent(later, place, {offset: rng.choice(kinds) for offset in offsets})]
        if chance < 0.5:
            renewed = Intent(now + lock_s * 0.5, place, dict.fromkeys(offsets, RENEW))
            last = dict.fromkeys(offsets, rng.choice((ACCEPT, RELEASE)))
            return [renewed, Intent(now + lock_s * rng.choice((0.8, 1.3, 1.6)), place, last)]
        kind = rng.choice((ACCEPT, ACCEPT, RELEASE, RELEASE, REJECT))
        return [Intent(later if chance < 0.8 else now, place, dict.fromkeys(offsets, kind))]

    # -- acknowledging -------------------------------------------------------------------------

    def _say(
        self, session: Session, said: Mapping[SharePlace, Said]
    ) -> dict[SharePlace, dict[int, Held]]:
        """Before it is sent; what the member had of it."""
        had: dict[SharePlace, dict[int, Held]] = {}
        for place, kinds in said.items():
            hand = session.hand.get(place, {})
            had[place] = {offset: hand[offset] for offset in kinds}
            for offset, kind in kinds.items():
                self.trace.paths.reach(f"share {_NAMES[kind]}")
                if kind != RENEW:
                    del hand[offset]
            self.history.saying(place, kinds)
        return had

    def _told(
        self,
        place: SharePlace,
        said: Mapping[SharePlace, Said],
        had: Mapping[SharePlace, Mapping[int, Held]],
        sent: float,
        error: int,
    ) -> None:
        """An acknowledgement was answered."""
        if place not in said:
            return
        code, now = ErrorCode(error), self._now
        self.trace.event(f"{self.wire.name} {place} acknowledged: {code.name}")
        self.trace.paths.answered(code.name)
        if not code:
            self.history.answered(place, said[place], self.member_id, sent, now)
        elif code in NOT_HELD:
            self.history.refused(place, said[place], had[place], code.name, now)

    async def _renew(self, session: Session) -> bool:
        """Ask for more time, by itself; whether the session goes on."""
        now = self._now
        due = [i for i in session.intents if i.due <= now and RENEW in i.said.values()]
        session.intents = [i for i in session.intents if i not in due]
        for intent in due:
            hand = session.hand.get(intent.place, {})
            said = {offset: kind for offset, kind in intent.said.items() if offset in hand}
            if said and not await self._acknowledge(session, {intent.place: said}, renews=True):
                return False
        return True

    async def _acknowledge(
        self,
        session: Session,
        said: Mapping[SharePlace, Said],
        *,
        renews: bool = False,
        closes: bool = False,
    ) -> bool:
        """A request of its own; whether the session goes on."""
        request = ShareAcknowledgeRequest(
            group_id=self.group.name,
            member_id=self.member_id,
            share_session_epoch=CLOSE if closes else session.epoch,
            is_renew_ack=renews,
            topics=acknowledge_topics(said, self.rng),
        )
        sent = self._now
        had = self._say(session, said)
        try:
            answer = await self.wire.call_node(session.node_id, request)
        except PeerError:
            self._drop(session)
            return False
        if answer.error_code:
            self._refused(session, ErrorCode(answer.error_code))
            return False
        session.epoch += 1
        for topic in answer.responses:
            for told in topic.partitions:
                place = SharePlace(self.group.name, topic.topic_id, told.partition_index)
                self._told(place, said, had, sent, told.error_code)
        return True

    # -- the ends of sessions ------------------------------------------------------------------

    async def _close(self, session: Session) -> None:
        """End a session as members do that go; what is due is said with it."""
        if session.epoch != OPEN:
            said = session.take(self._now)
            self._lose(session)
            await self._acknowledge(session, said, closes=True)
        self._sessions.pop(session.node_id, None)

    def _drop(self, session: Session) -> None:
        """The connection ends, and the session with it."""
        self._lose(session)
        self._sessions.pop(session.node_id, None)
        self.wire.disconnect(session.node_id)
        for place, name in session.named.items():
            self.wire.forget(name, place.partition)

    def _lose(self, session: Session) -> None:
        for place, hand in session.hand.items():
            self.history.gone(place, hand, self.member_id)


_NAMES = {GAP: "gap said", ACCEPT: "accept", RELEASE: "release", REJECT: "reject", RENEW: "renew"}
