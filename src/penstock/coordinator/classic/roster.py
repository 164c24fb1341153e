"""The members of a classic group: static ids, members that are expected, the leader, the vote.

Counters make every question about the whole group cheap: how many still have to join, and which
protocols all members share. The vote is kept until a member joins, leaves or offers other
protocols. Nothing here knows of states, timers or answers.

Invariants (`invariants` checks them): there is a leader exactly if there are members, and it is one
of them; a static id names one member, which carries it; the counters agree with the members; all
members share a protocol; no member is also expected to become one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from penstock.base.errors import invariant
from penstock.coordinator.classic.member import ClassicMember
from penstock.coordinator.effects import Caller
from penstock.coordinator.java_order import hash_map_order


class Roster:
    """The members in the order in which they came."""

    __slots__ = (
        "_joins",
        "_offers",
        "_vote",
        "leader_id",
        "members",
        "members_max",
        "pending",
        "pending_sync",
        "static_ids",
    )

    def __init__(self) -> None:
        self.members: dict[str, ClassicMember] = {}
        self.members_max = 0
        """The most members at any time, which decides the order of a description."""
        self.static_ids: dict[str, str] = {}
        """Member ids by `group.instance.id`."""
        self.pending: set[str] = set()
        """Ids given out with MEMBER_ID_REQUIRED whose owners have not joined with them yet."""
        self.pending_sync: set[str] = set()
        """Members of the generation whose SyncGroup has not come yet."""
        self.leader_id: str | None = None
        self._joins = 0
        self._offers: dict[str, int] = {}
        self._vote: str | None = None

    def __len__(self) -> int:
        return len(self.members)

    def __iter__(self) -> Iterator[ClassicMember]:
        return iter(self.members.values())

    def in_described_order(self) -> list[ClassicMember]:
        """The members as Kafka would list them."""
        return [self.members[id_] for id_ in hash_map_order(self.members, self.members_max)]

    @property
    def joins(self) -> int:
        """How many members have a JoinGroup waiting."""
        return self._joins

    @property
    def all_joined(self) -> bool:
        """All members have a JoinGroup waiting and nobody else is expected."""
        return self._joins == len(self.members) and not self.pending

    @property
    def rebalance_timeout_ms(self) -> int:
        """The longest that any member asks for, and not less than nothing."""
        return max(0, max((m.rebalance_timeout_ms for m in self), default=0))

    # -- joining and leaving --------------------------------------------------------------------

    def add(self, member: ClassicMember) -> None:
        invariant(
            member.member_id not in self.members and member.instance_id not in self.static_ids,
            f"member {member.member_id} is added twice",
        )
        self.members[member.member_id] = member
        self.members_max = max(self.members_max, len(self.members))
        if member.instance_id is not None:
            self.static_ids[member.instance_id] = member.member_id
        if self.leader_id is None:
            self.leader_id = member.member_id
        self.pending.discard(member.member_id)
        self._joins += member.join is not None
        self._count(member.protocols, 1)

    def remove(self, member_id: str) -> ClassicMember | None:
        """Forget a member or one that was expected; the oldest member follows a leader."""
        self.pending.discard(member_id)
        self.pending_sync.discard(member_id)
        member = self.members.pop(member_id, None)
        if member is None:
            return None
        if member.instance_id is not None:
            del self.static_ids[member.instance_id]
        if self.leader_id == member_id:
            self.leader_id = next(iter(self.members), None)
        self._joins -= member.join is not None
        self._count(member.protocols, -1)
        return member

    def replace_static(self, old: ClassicMember, new_id: str) -> ClassicMember:
        """The process behind a static id has restarted: what was `old`'s is now `new_id`'s.

        The requests of `old` that wait are not carried over: their answer is the caller's duty.
        """
        invariant(old.instance_id is not None, f"member {old.member_id} has no static id")
        was_leader = self.leader_id == old.member_id
        owes_sync = old.member_id in self.pending_sync
        self.remove(old.member_id)
        new = ClassicMember(
            new_id,
            old.instance_id,
            old.client_id,
            old.client_host,
            old.rebalance_timeout_ms,
            old.session_timeout_ms,
            old.protocols,
            old.assignment,
        )
        self.add(new)
        if was_leader:
            self.leader_id = new_id
        if owes_sync:
            self.pending_sync.add(new_id)
        return new

    # -- requests that wait --------------------------------------------------------------------

    def park_join(self, member: ClassicMember, caller: Caller) -> Caller | None:
        """Let `caller` wait; returns the caller that waited there before."""
        before, member.join = member.join, caller
        self._joins += before is None
        return before

    def take_join(self, member: ClassicMember) -> Caller | None:
        """Take the caller that waits for the end of the join phase for `member`."""
        caller, member.join = member.join, None
        self._joins -= caller is not None
        return caller

    # -- leader and protocol -------------------------------------------------------------------

    def elect_joined_leader(self) -> bool:
        """Make sure that the leader is one whose JoinGroup waits; False if nobody's does."""
        if self.leader_id is None:
            return False
        if self.members[self.leader_id].join is None:
            joined = next((m.member_id for m in self if m.join is not None), None)
            if joined is None:
                return False
            self.leader_id = joined
        return True

    def offer(self, member: ClassicMember, protocols: dict[str, bytes]) -> None:
        """`member` offers these protocols from now on."""
        if list(member.protocols) != list(protocols):
            self._count(member.protocols, -1)
            self._count(protocols, 1)
        member.protocols = protocols

    def shares(self, names: Collection[str]) -> bool:
        """Whether all members offer one of `names`."""
        size = len(self.members)
        return any(self._offers.get(name, 0) == size for name in names)

    def vote(self) -> str:
        """The protocol that most members want most, of those that all offer.

        A tie goes to the one that was named first, by the oldest member.
        """
        if self._vote is None:
            size = len(self.members)
            votes: dict[str, int] = {}
            for member in self:
                choice = next((n for n in member.protocols if self._offers[n] == size), None)
                if choice is not None:
                    votes[choice] = votes.get(choice, 0) + 1
            invariant(bool(votes), "the members of a group share no protocol")
            self._vote = max(votes, key=votes.__getitem__)
        return self._vote

    def _count(self, protocols: dict[str, bytes], change: int) -> None:
        self._vote = None
        for name in protocols:
            count = self._offers.get(name, 0) + change
            if count:
                self._offers[name] = count
            else:
                del self._offers[name]

    # -- for tests -----------------------------------------------------------------------------

    def invariants(self) -> None:
        members = self.members
        invariant((self.leader_id is None) == (not members), "a leader without members or none")
        invariant(self.leader_id is None or self.leader_id in members, "the leader is no member")
        ids = {m.instance_id: m.member_id for m in self if m.instance_id is not None}
        invariant(ids == self.static_ids, "static ids disagree with the members")
        invariant(self._joins == sum(m.join is not None for m in self), "joins miscounted")
        invariant(self.pending_sync <= members.keys(), "a SyncGroup is expected of a stranger")
        invariant(self.pending.isdisjoint(members), "a member is expected to become one")
        offers: dict[str, int] = {}
        for member in self:
            for name in member.protocols:
                offers[name] = offers.get(name, 0) + 1
        invariant(offers == self._offers, "offers miscounted")
        invariant(not members or len(members) in offers.values(), "no protocol is shared by all")
        kept, self._vote = self._vote, None
        invariant(kept is None or kept == self.vote(), "the kept vote is stale")
        self._vote = kept
