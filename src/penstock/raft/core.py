"""The state that all parts of the quorum share, and the few ways to change it.

Everything that happens goes through here: effects are collected in order, the election state is
changed only together with the effect that writes it, and the log's mirror, the voter history and
the high watermark move together.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from penstock.base.clock import Rng
from penstock.base.endpoints import choose
from penstock.base.errors import ErrorCode, invariant
from penstock.raft.control_records import read_control
from penstock.raft.effects import (
    Append,
    Committed,
    Destination,
    Effect,
    NoLongerLeader,
    Reply,
    Send,
    Truncate,
    WriteState,
)
from penstock.raft.epochs import LogMirror
from penstock.raft.state import QuorumState
from penstock.raft.states import TRANSITIONS, Follower, Leader, Role, Unattached
from penstock.raft.types import NEVER_MS, NO_NODE, Endpoint, QuorumConfig, ReplicaKey
from penstock.raft.voters import History, VoterNode, VoterSet
from penstock.wire.records import BatchHeader, Record, build_batch, parse_header
from penstock.wire.schema import Message

NOT_VOTED = VoterSet()


class Sent(NamedTuple):
    """A request that is not answered yet. Its answer is ignored after the role has changed."""

    to: Destination
    key: ReplicaKey
    request: Message
    role: Role
    deadline_ms: int


SLOW_SYNC_MS: Final = 100
"""The time-outs have room for disks that are quicker."""
SYNCS_PER_ROUND: Final = 4
"""Times that states are written before a round has brought a leader: the candidate its vote, a
voter its own, the leader that it leads, a follower whom it follows.
"""


class Core:
    __slots__ = (
        "_next_token",
        "asked_by",
        "config",
        "effects",
        "election",
        "election_failures",
        "endpoints",
        "high_watermark",
        "in_flight",
        "leader_address",
        "leader_said_where",
        "log",
        "me",
        "rng",
        "role",
        "sync_ms",
        "versions",
        "voter_sets",
    )

    def __init__(
        self,
        me: ReplicaKey,
        config: QuorumConfig,
        endpoints: tuple[Endpoint, ...],
        log: LogMirror,
        election: QuorumState,
        rng: Rng,
    ) -> None:
        self.me = me
        self.config = config
        self.endpoints = endpoints
        self.log = log
        self.election = election
        self.rng = rng
        self.role: Role = Unattached(NEVER_MS, NEVER_MS, config.retry_backoff_ms)
        self.high_watermark = log.start_offset
        """Everything below is committed. Never goes back, never passes what is flushed here."""
        self.voter_sets: History[VoterSet] = History()
        self.versions: History[int] = History()
        self.effects: list[Effect] = []
        self.in_flight: dict[int, Sent] = {}
        self.leader_address: Destination | None = None
        self.leader_said_where = False
        """The leader itself has, with all its listeners: what others or the voter set say of it is
        older.
        """
        self.election_failures = 0
        """Rounds in a row that brought no leader; the pause before the next grows with them."""
        self.sync_ms = 0
        """The longest that it took to write the state since this node last had a leader, if it was
        long. Who waits for others waits for their disks, too, which are taken to be like this one:
        with time-outs that are shorter than a round takes there would never be a leader.
        """
        self.asked_by = ""
        """The listener by which the request that is being handled came in."""
        self._next_token = 0

    # -- what is so ----------------------------------------------------------------------------

    @property
    def epoch(self) -> int:
        return self.election.leader_epoch

    @property
    def voters(self) -> VoterSet:
        """The voter set in force: the last one in the log, committed or not."""
        return self.voter_sets.last or NOT_VOTED

    @property
    def kraft_version(self) -> int:
        return self.versions.last or 0

    @property
    def is_voter(self) -> bool:
        return self.me in self.voters

    @property
    def may_stand(self) -> bool:
        """Whether this replica stands for election: as a voter, or because the record that removed
        it may not be committed. It may then be the only one whose log is complete enough to lead
        until that is so; its own vote does not count.
        """
        if self.is_voter:
            return True
        open_change = self.voter_sets.last_offset >= self.high_watermark
        return open_change and self.me in (self.voter_sets.previous or NOT_VOTED)

    @property
    def leader_id(self) -> int:
        """The leader that this node is or follows; -1: none."""
        if isinstance(self.role, Leader):
            return self.me.id
        return self.role.leader_id if isinstance(self.role, Follower) else NO_NODE

    def address_of(self, node_id: int) -> Destination | None:
        """Where `node_id` is reached, as far as voters and the present leader are known: by the
        listener that is wanted if it is known to offer that, else by another one, else where the
        settings say that it is.
        """
        told = self.leader_address
        if told is None or told.node_id != node_id:
            return self._registered(node_id) or self._listed(node_id)
        if self.leader_said_where:
            return told
        return self.better(told, self._registered(node_id))

    def better(self, told: Destination | None, known: Destination | None) -> Destination | None:
        """Of two addresses of a node: the one by the listener that is wanted, else the told one."""
        if told is None or (known is not None and self._is_wanted(known) > self._is_wanted(told)):
            return known
        return told

    def leader_is_at(self, address: Destination | None, *, said_itself: bool = False) -> None:
        """None: there is no leader to be reached."""
        self.leader_address = address
        self.leader_said_where = said_itself

    def address_to_tell(self, node_id: int) -> Destination | None:
        """Where whoever asks reaches `node_id`: by the listener by which it asks."""
        if not self.asked_by:
            return self.address_of(node_id)
        named = choose(self._endpoints(node_id), (self.asked_by,))
        if named is not None:
            return Destination(node_id, named.host, named.port, named.name)
        known = self.address_of(node_id)
        return known if known is not None and known.listener == self.asked_by else None

    def destination(self, node_id: int, endpoints: Sequence[Endpoint]) -> Destination | None:
        """Where this replica reaches a node that offers `endpoints`."""
        found = choose(endpoints, self.config.listeners)
        return None if found is None else Destination(node_id, found.host, found.port, found.name)

    def _registered(self, node_id: int) -> Destination | None:
        return self.destination(node_id, self._endpoints(node_id))

    def _endpoints(self, node_id: int) -> tuple[Endpoint, ...]:
        if node_id == self.me.id:
            return self.endpoints
        node = self.voters.node(node_id)
        return () if node is None else node.endpoints

    def _listed(self, node_id: int) -> Destination | None:
        for listed_id, host, port in self.config.listed:
            if listed_id == node_id:
                return Destination(node_id, host, port, self.wanted_listener)
        return None

    def _is_wanted(self, to: Destination) -> bool:
        return to.listener == self.wanted_listener or not self.wanted_listener

    @property
    def wanted_listener(self) -> str:
        """The one by which this replica is to reach others."""
        return self.config.listeners[0] if self.config.listeners else ""

    def random_ms(self, bound_ms: int) -> int:
        return self.rng.below(max(bound_ms, 1))

    def election_timeout_ms(self) -> int:
        fixed_ms = self.config.election_timeout_ms + SYNCS_PER_ROUND * self.sync_ms
        return fixed_ms + self.random_ms(fixed_ms)

    def request_timeout_ms(self) -> int:
        return self.config.request_timeout_ms + SYNCS_PER_ROUND * self.sync_ms

    def fetch_timeout_ms(self) -> int:
        """With a random part, so that followers of a silent leader do not all stand for election at
        once.
        """
        fixed_ms = self.config.fetch_timeout_ms + SYNCS_PER_ROUND * self.sync_ms
        return fixed_ms + self.random_ms(fixed_ms // 10)

    # -- what changes --------------------------------------------------------------------------

    def become(self, role: Role) -> None:
        before = self.role
        invariant(
            type(role) in TRANSITIONS[type(before)],
            f"replica {self.me} cannot turn from {before} to {role} in epoch {self.epoch}",
        )
        self.role = role
        if isinstance(before, Leader):
            self.effects.append(NoLongerLeader(self.epoch))
            if before.pending is not None:
                answer = before.pending.answer(ErrorCode.NOT_LEADER_OR_FOLLOWER)
                self.reply(before.pending.token, answer)

    def elect(self, election: QuorumState) -> None:
        """Take `election` as the present state; it is durable before anything that follows."""
        before = self.election
        invariant(
            election.leader_epoch > before.leader_epoch
            or (
                election.leader_epoch == before.leader_epoch
                and before.leader_id in (NO_NODE, election.leader_id)
                and before.voted in (None, election.voted)
            ),
            f"the election state cannot turn from {before} to {election}",
        )
        if election == before:
            return
        self.election = election
        if self.effects and isinstance(self.effects[-1], WriteState):
            self.effects.pop()
        self.effects.append(WriteState(election.to_json()))

    def reply(self, token: object, response: Message) -> None:
        self.effects.append(Reply(token, response))

    def send(
        self, to: Destination, key: ReplicaKey, request: Message, version: int, now_ms: int
    ) -> None:
        token, timeout_ms = self._next_token, self.request_timeout_ms()
        self._next_token += 1
        self.in_flight[token] = Sent(to, key, request, self.role, now_ms + timeout_ms)
        self.effects.append(Send(token, to, request, version, timeout_ms))

    def append(self, records: list[Record], *, control: bool) -> Append:
        """The leader's own batch at the end of the log."""
        first = self.log.end_offset
        batch = build_batch(
            records, base_offset=first, control=control, partition_leader_epoch=self.epoch
        )
        self.take(batch, parse_header(batch))
        return Append(batch, first, self.log.end_offset - 1)

    def take(self, batch: bytes | memoryview, header: BatchHeader) -> None:
        """`batch` follows the log's end: its epoch and what it says of voters count at once."""
        self.log.appended(header.partition_leader_epoch, header.base_offset, header.last_offset)
        for offset, said in read_control(batch, header):
            if isinstance(said, VoterSet):
                self.voter_sets.add(offset, said)
            else:
                self.versions.add(offset, said)

    def truncate(self, offset: int) -> None:
        invariant(
            offset >= self.high_watermark,
            f"replica {self.me} would cut its log at {offset}, below the high watermark "
            f"{self.high_watermark}",
        )
        self.log.truncate(offset)
        self.voter_sets.truncate(offset)
        self.versions.truncate(offset)
        self.effects.append(Truncate(offset))

    def commit(self, high_watermark: int) -> bool:
        """Move the high watermark, as far as the log is flushed; whether it moved."""
        reached = min(high_watermark, self.log.flushed_offset)
        if reached <= self.high_watermark:
            return False
        self.high_watermark = reached
        self.effects.append(Committed(reached))
        return True

    def found(self) -> None:
        """With no voter set in the log the founder is the only voter."""
        self.voter_sets.add(-1, VoterSet([VoterNode(self.me, self.endpoints)]))
