"""A shard with share groups, and a share coordinator that answers when it is told to.

Settings whose names begin with `share_` are the group's own, all others the coordinator's.
"""

from __future__ import annotations

from typing import Any

from penstock.config.group_config import ShareGroupConfig
from penstock.coordinator.effects import Effects
from penstock.coordinator.share_group import ShareGroup
from penstock.coordinator.share_group.engine import Initialize
from penstock.coordinator.shard import GroupShard
from penstock.wire.messages.share_group_heartbeat import (
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
)
from unit.coordinator_consumer.rig import GROUP, Owned, Rig

VERSION = 1


class ShareRig(Rig):
    def __init__(self, **settings: Any) -> None:
        own = {name: value for name, value in settings.items() if name.startswith("share_")}
        self.share_config = ShareGroupConfig(**{"share_assignment_interval_ms": 0, **own})
        self.asked: list[Initialize] = []
        """What the share coordinator has not answered."""
        super().__init__(**{n: value for n, value in settings.items() if n not in own})

    def make_shard(self) -> GroupShard:
        return GroupShard(
            self.config, self.topics, self.rng, share_config=lambda _: self.share_config
        )

    @property
    def share(self) -> ShareGroup:
        return self.shard.share_group(GROUP)

    def apply(self, effects: Effects) -> Effects:
        self.asked += effects.actions
        return super().apply(effects)

    def fail_over(self) -> None:
        self.asked.clear()
        super().fail_over()

    def check_replay(self) -> None:
        assert share_snapshot(self.rebuilt()) == share_snapshot(self.shard)

    # -- the share coordinator -----------------------------------------------------------------

    def answer(self, refused: Owned | None = None) -> None:
        """It answers all that it was asked, and refuses some."""
        bad = {(self.topics.ids[name], number) for name, number in refused or ()}
        asked, self.asked = self.asked, []
        for action in asked:
            done = [partition for partition in action.starts if partition not in bad]
            not_done = [partition for partition in action.starts if partition in bad]
            self.apply(self.shard.initialized(action.group_id, done, not_done, self.now_ms))

    # -- members -------------------------------------------------------------------------------

    def share_beat(self, member_id: str, epoch: int, **fields: Any) -> ShareGroupHeartbeatResponse:
        request = ShareGroupHeartbeatRequest(
            group_id=GROUP, member_id=member_id, member_epoch=epoch, **fields
        )
        response = self.send(request, VERSION)
        assert isinstance(response, ShareGroupHeartbeatResponse)
        return response

    def share_join(
        self, member_id: str, topics: list[str], **fields: Any
    ) -> ShareGroupHeartbeatResponse:
        return self.share_beat(member_id, 0, subscribed_topic_names=topics, **fields)

    def given(self, response: ShareGroupHeartbeatResponse) -> Owned | None:
        """The partitions of an answer by topic name; None if it carries none."""
        if response.assignment is None:
            return None
        return {
            (self.topics.name_of(t.topic_id) or t.topic_id.hex(), number)
            for t in response.assignment.topic_partitions
            for number in t.partitions
        }


def share_snapshot(shard: GroupShard) -> dict[str, Any]:
    """What must survive a fail-over."""
    found: dict[str, Any] = {}
    for group_id, group in shard.groups.items():
        if not isinstance(group, ShareGroup):
            found[group_id] = group.group_type
            continue
        roster = group.engine.roster
        found[group_id] = (
            roster.epoch,
            roster.metadata_hash,
            roster.assignment_epoch,
            roster.assignment_ms,
            {m.member_id: (m.profile, m.progress) for m in roster.members.values()},
            {m: target for m, target in roster.target.items() if target},
            {id_: (s.name, s.numbers) for id_, s in roster.states.initializing.items()},
            {id_: (s.name, s.numbers) for id_, s in roster.states.initialized.items()},
            dict(roster.states.deleting),
        )
    return found
