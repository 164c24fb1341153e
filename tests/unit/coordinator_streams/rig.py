"""A shard with streams groups; settings whose names begin with `streams_` are the group's own."""

from __future__ import annotations

from typing import Any

from penstock.config.group_config import StreamsGroupConfig
from penstock.coordinator.shard import GroupShard
from penstock.coordinator.streams_group import StreamsGroup
from penstock.wire.messages.streams_group_heartbeat import (
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
    Subtopology,
    TaskIds,
    Topology,
)
from unit.coordinator_consumer.rig import GROUP, Rig

Tasks = set[tuple[str, int]]


class StreamsRig(Rig):
    def __init__(self, **settings: Any) -> None:
        own = {name: value for name, value in settings.items() if name.startswith("streams_")}
        self.own: dict[str, int] = {
            "streams_assignment_interval_ms": 0,
            "streams_initial_rebalance_delay_ms": 0,
            **own,
        }
        super().__init__(**{n: value for n, value in settings.items() if n not in own})

    def make_shard(self) -> GroupShard:
        return GroupShard(
            self.config,
            self.topics,
            self.rng,
            streams_config=lambda _: StreamsGroupConfig(**self.own),
        )

    @property
    def streams(self) -> StreamsGroup:
        group = self.shard.groups[GROUP]
        assert isinstance(group, StreamsGroup)
        return group

    def check_replay(self) -> None:
        rebuilt = self.rebuilt()
        for group in rebuilt.groups.values():
            if isinstance(group, StreamsGroup):
                group.engine.roster.reindex()
        assert streams_snapshot(rebuilt) == streams_snapshot(self.shard)
        rebuilt.invariants()

    # -- members -------------------------------------------------------------------------------

    def streams_beat(
        self,
        member_id: str,
        epoch: int,
        *,
        active: Tasks | None = None,
        standby: Tasks | None = None,
        **fields: Any,
    ) -> StreamsGroupHeartbeatResponse:
        request = StreamsGroupHeartbeatRequest(
            group_id=GROUP, member_id=member_id, member_epoch=epoch, **fields
        )
        if active is not None or standby is not None:
            request.active_tasks = task_ids(active or set())
            request.standby_tasks = task_ids(standby or set())
            request.warmup_tasks = []
        response = self.send(request, 0)
        assert isinstance(response, StreamsGroupHeartbeatResponse)
        return response

    def streams_join(
        self, member_id: str, subtopologies: list[Subtopology], epoch: int = 1, **fields: Any
    ) -> StreamsGroupHeartbeatResponse:
        fields.setdefault("rebalance_timeout_ms", 60_000)
        fields.setdefault("process_id", f"process-of-{member_id}")
        return self.streams_beat(
            member_id,
            0,
            active=set(),
            topology=Topology(epoch=epoch, subtopologies=subtopologies),
            **fields,
        )


def task_ids(tasks: Tasks) -> list[TaskIds]:
    grouped: dict[str, list[int]] = {}
    for subtopology, number in sorted(tasks):
        grouped.setdefault(subtopology, []).append(number)
    return [TaskIds(subtopology_id=id_, partitions=found) for id_, found in grouped.items()]


def tasks_of(found: list[TaskIds] | None) -> Tasks:
    return {(one.subtopology_id, number) for one in found or () for number in one.partitions}


def streams_snapshot(shard: GroupShard) -> dict[str, Any]:
    """What must survive a fail-over, of streams groups."""
    found: dict[str, Any] = {}
    for group_id, group in shard.groups.items():
        if not isinstance(group, StreamsGroup):
            continue
        roster = group.engine.roster
        found[group_id] = (
            roster.epoch,
            roster.metadata_hash,
            roster.validated_epoch,
            dict(roster.assignment_configs),
            roster.assignment_epoch,
            roster.assignment_ms,
            roster.topology,
            {m.member_id: (m.profile, m.progress) for m in roster.members.values()},
            {m: target for m, target in roster.target.items() if target},
            roster.holders,
        )
    return found
