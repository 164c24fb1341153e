"""The classic group protocol: JoinGroup, SyncGroup, Heartbeat and LeaveGroup.

* `states.py`: the states of a group and the table of moves between them
* `member.py`: one member: what it can, what it has, which of its requests wait
* `roster.py`: the members: static ids, the leader, the vote on the protocol
* `subscriptions.py`: the topics that consumers name in their metadata
* `responses.py`: answers in the shape that each version wants
* `machine.py`: generations: the join phase, the sync phase and every timer
* `joining.py`: JoinGroup: member ids, static members, room in the group
* `group.py`: `ClassicGroup`: the other requests, rules for offsets, loading, describing
* `taking_over.py`: empty groups of other protocols that become classic
"""

from penstock.coordinator.classic.group import ClassicGroup
from penstock.coordinator.classic.member import ClassicMember
from penstock.coordinator.classic.states import State
from penstock.coordinator.classic.taking_over import take_over

__all__ = ["ClassicGroup", "ClassicMember", "State", "take_over"]
