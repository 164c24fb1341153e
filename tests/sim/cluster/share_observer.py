"""Looks into the nodes for what concerns share groups.

* Which life of a share-partition, and which share session, an answer came from (`ShareHistory`).
* At every look, and before a node prunes: what is newly committed in the state topic is told to the
  history.
* In the end: how far each group is; that the log of the state topic, from its start, says what was
  ever committed, and that the coordinators know nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from penstock.coordinating.share_coordinator import ShareCoordinator
from penstock.coordinator.share_state import PruneTo
from penstock.coordinator.share_state.records import ShareSnapshotValue, Value
from penstock.metadata.names import SHARE_STATE_TOPIC
from penstock.partitions.leadership import Role
from penstock.partitions.partition import Partition
from penstock.share.types import ShareKey
from penstock.wire.records import Record, parse_header, read_records

from .checks import Violation, holds
from .cluster import World
from .observer import committed_batches, partitions_of
from .share_history import ARCHIVED, ARCHIVING, DeadLetter, Receipt, ShareHistory, SharePlace
from .share_states import Known, StateTopic, add, check_equal, entries
from .txn_logs import Data, Marker, parse
from .txn_observer import TxnObserver


class ShareObserver(TxnObserver):
    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.shares = ShareHistory(self._is_alive)
        self._topic = StateTopic()
        self.states = self._topic.states
        """By all that was ever committed."""
        self._things: dict[int, tuple[Any, int]] = {}
        self._places: dict[int, tuple[int, SharePlace]] = {}
        before_pruning(self._look_within_a_node)

    # -- lives ---------------------------------------------------------------------------------

    def life(self, node_id: int, place: SharePlace) -> int:
        """Which life of a share-partition a node has in memory; 0 for none."""
        share = self._share(node_id)
        driver = share and share.partitions._drivers.get(ShareKey(*place))
        if driver is None or not driver.is_active:
            return 0
        number = self._number(driver)
        self._places[number] = node_id, place
        return number

    def session(self, node_id: int, group: str, member: str) -> int:
        """Which session a member has on a node; 0 for none."""
        share = self._share(node_id)
        session = share and share.sessions.get(group, member)
        return self._number(session) if session is not None else 0

    def _is_alive(self, place: SharePlace, receipt: Receipt) -> bool:
        if receipt.life not in self._places:
            return False
        node_id, _ = self._places[receipt.life]
        return (
            self.life(node_id, place) == receipt.life
            and self.session(node_id, place.group, receipt.member) == receipt.session
        )

    def _share(self, node_id: int) -> Any:
        machine = self._world.machines[node_id]
        if machine.node is None or machine.node._broker is None:
            return None
        return machine.node._broker.share

    def _number(self, thing: Any) -> int:
        """Kept with the thing itself, so that no other gets its place in memory."""
        return self._things.setdefault(id(thing), (thing, len(self._things) + 1))[1]

    # -- the state topic -----------------------------------------------------------------------

    def look(self) -> None:
        super().look()
        for machine in self._world.machines.values():
            if machine.serving:
                for partition in partitions_of(machine):
                    self._look_at_states(partition)

    def _look_within_a_node(self, partition: Partition) -> None:
        """A node that is in the middle of something would take a violation for a failure of its
        own.
        """
        try:
            self._look_at_states(partition)
        except Violation as e:
            self._world.broken.append(str(e))

    def _look_at_states(self, partition: Partition) -> None:
        topic, index = self._topic, partition.index
        seen_to = topic.seen_to(index)
        leads = partition.topic == SHARE_STATE_TOPIC and partition.role is Role.LEADER
        if not leads or partition.high_watermark <= seen_to:
            return
        found = entries(committed_batches(partition, seen_to))
        for key, before, value in topic.news(index, partition.log.log_start_offset, found):
            self._note_path(before, value)
            place = SharePlace(*key)
            for b in [] if value is None else value.state_batches:
                if b.delivery_state == ARCHIVING:
                    self._world.paths.reach("share record to become a dead letter")
                if b.delivery_state == ARCHIVED:
                    self._world.paths.reach("share record archived")
                self.shares.persisted(
                    place, b.first_offset, b.last_offset, b.delivery_state, b.delivery_count
                )

    def _note_path(self, known: Known | None, value: Value | None) -> None:
        reach = self._world.paths.reach
        if known is not None and value is None:
            reach("share state forgotten")
        elif known is not None and value is not None:
            if isinstance(value, ShareSnapshotValue):
                reach("share state snapshot")
            if value.leader_epoch > known.leader_epoch:
                reach("share leader changed")

    def behind(self, groups: dict[str, tuple[str, ...]]) -> str:
        """What is not finished by a group that subscribes to topics; empty for nothing."""
        leaders = {(p.topic, p.index): p for p in self._leaders()}
        for group, topics in groups.items():
            for (topic, index), partition in leaders.items():
                if topic in topics:
                    known = self.states.get(ShareKey(group, partition.topic_id, index))
                    start = -1 if known is None else known.finished_to
                    if start < partition.log.log_end_offset:
                        return (
                            f"{group} has finished {topic}-{index} ({partition.topic_id.hex()[:8]})"
                            f" to {start} of {partition.log.log_end_offset}"
                        )
        return ""

    def forgotten(self) -> str:
        """States of topics that are gone; empty for none."""
        topics = {partition.topic_id for partition in self._leaders()}
        left = [key.text for key in self.states if key.topic_id not in topics]
        return ", ".join(left)

    def _leaders(self) -> Iterator[Partition]:
        for machine in self._world.machines.values():
            for partition in partitions_of(machine):
                if partition.role is Role.LEADER:
                    yield partition

    # -- in the end ----------------------------------------------------------------------------

    def check_shares(self, groups: dict[str, tuple[tuple[str, ...], bool]]) -> None:
        """`groups` are topics, and whether only what is committed counts."""
        self._check_state_topic()
        for partition in self._leaders():
            for group, (topics, committed) in groups.items():
                if partition.topic in topics:
                    place = SharePlace(group, partition.topic_id, partition.index)
                    known = self.states[ShareKey(*place)]
                    visible = _visible(partition, committed=committed)
                    self.shares.check_complete(place, visible, known.finished_to)
                    self.shares.check_archived(place, visible)
                    self.shares.check_states(place, known.records)

    def check_dead_letters(
        self, dead: str, group: str, topics: tuple[str, ...], *, committed: bool
    ) -> None:
        """`dead` is the topic that has them; of `topics` each has been the same all the time."""
        letters: dict[tuple[str, int], list[DeadLetter]] = {}
        for partition in self._leaders():
            if partition.topic == dead:
                for record in _records(partition, committed=True):
                    said = {name: (value or b"").decode() for name, value in record.headers}
                    of = {name: said[f"__dlq.errors.{name}"] for name in _HEADERS}
                    holds(of["group"] == group, f"{dead} has a dead letter of {of['group']}")
                    letters.setdefault((of["topic"], int(of["partition"])), []).append(
                        DeadLetter(int(of["offset"]), int(of["delivery.count"]), of["reason"])
                    )
                    self._world.paths.reach("share dead letter")
        for partition in self._leaders():
            if partition.topic in topics:
                place = SharePlace(group, partition.topic_id, partition.index)
                of_place = letters.get((partition.topic, partition.index), [])
                visible = _visible(partition, committed=committed)
                self.shares.check_dead_letters(place, of_place, visible)

    def _check_state_topic(self) -> None:
        from_start: dict[ShareKey, Known] = {}
        for partition in self._leaders():
            if partition.topic != SHARE_STATE_TOPIC:
                continue
            start = partition.log.log_start_offset
            if start:
                self._world.paths.reach("share states pruned")
            states: dict[ShareKey, Known] = {}
            for _, key, value in entries(committed_batches(partition)):
                add(states, key, value)
            from_start |= states
        in_memory: dict[ShareKey, Known] = {}
        for machine in self._world.machines.values():
            coordinator = machine.node._broker.share_states  # type: ignore[union-attr]
            for shard in coordinator._active_shards():
                for key, state in shard.states.items():
                    in_memory[key] = _known(state)
        check_equal("the coordinator's memory", in_memory, from_start)
        check_equal("the state topic after pruning", from_start, self.states)


def before_pruning(look: Callable[[Partition], None]) -> None:
    """Have the partitions of a node looked at before it prunes the state topic, in all runs of this
    process. A record and the pruning that waited for it to be committed come in one turn of the
    loop: looks that come from time to time would miss it.
    """
    prune = ShareCoordinator._action

    def look_and_prune(self: Any, index: int, action: PruneTo) -> None:
        for partition in self._env.replicas.open_partitions():
            look(partition)
        prune(self, index, action)

    ShareCoordinator._action = look_and_prune  # type: ignore[method-assign]


def _known(state: Any) -> Known:
    known = Known(state.start_offset, state.leader_epoch, state.state_epoch)
    for first, last, of, count, *_ in state.batches:
        known.records.update(dict.fromkeys(range(first, last + 1), (of, count)))
    return known


_HEADERS = ("topic", "partition", "offset", "group", "delivery.count", "reason")


def _visible(partition: Partition, *, committed: bool) -> list[int]:
    """The offsets of the records that a group may get."""
    return [record.offset for record in _records(partition, committed=committed)]


def _records(partition: Partition, *, committed: bool) -> list[Record]:
    batches = list(committed_batches(partition))
    hidden = _aborted(batches) if committed else set()
    return [
        record
        for batch in batches
        if not parse_header(batch).is_control and parse_header(batch).base_offset not in hidden
        for record in read_records(batch)
    ]


def _aborted(batches: list[bytes]) -> set[int]:
    """The base offsets of batches whose transaction was aborted."""
    open_: dict[int, list[int]] = {}
    hidden: set[int] = set()
    for entry in parse(batches):
        if isinstance(entry, Data):
            open_.setdefault(entry.producer_id, []).append(entry.first)
        elif isinstance(entry, Marker):
            ended = open_.pop(entry.producer_id, [])
            hidden |= set() if entry.commit else set(ended)
    holds(not open_, f"transactions are open in the end: {open_}")
    return hidden
