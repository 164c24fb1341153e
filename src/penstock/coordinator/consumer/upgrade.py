"""A member of the consumer protocol comes to a group that is classic."""

from __future__ import annotations

from penstock.base.errors import ApiError, ErrorCode
from penstock.coordinator.classic import ClassicGroup
from penstock.coordinator.consumer.group import ConsumerGroup
from penstock.coordinator.consumer.heartbeat import check_request, check_room
from penstock.coordinator.consumer.migration import announce, end_classic, fill
from penstock.coordinator.effects import Caller, Effects
from penstock.coordinator.reconcile import JOIN_EPOCH
from penstock.coordinator.refusals import refuse
from penstock.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest


def upgrade(
    group: ClassicGroup, request: ConsumerGroupHeartbeatRequest, caller: Caller, now_ms: int
) -> Effects:
    """Answer a ConsumerGroupHeartbeat that found a classic group; `group.successor` is set if it
    has become a consumer group by this.
    """
    try:
        new = _successor(group, request, caller)
    except ApiError as e:
        return Effects.reply(caller, refuse(request, caller.version, e.code, e.message))
    effects = Effects()
    end_classic(group, effects)
    if not new.is_empty:
        announce(new.engine, effects, now_ms)
    effects.extend(new.handle(request, caller, now_ms))
    group.successor = new
    return effects


def _successor(
    group: ClassicGroup, request: ConsumerGroupHeartbeatRequest, caller: Caller
) -> ConsumerGroup:
    """The consumer group in which the request will be accepted; ApiError if there is none."""
    environment = group.environment
    check_request(request, caller.version, environment.config)
    if request.member_epoch != JOIN_EPOCH:
        raise ApiError(
            ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group.group_id} is not a consumer group."
        )
    new = ConsumerGroup(group.group_id, environment)
    new.engine.subscriptions.check(request.subscribed_topic_regex)
    if len(group.roster):
        fill(new.engine, group)
    check_room(new.engine, request.member_id, request.instance_id)
    return new
