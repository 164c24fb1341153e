"""Share groups (KIP-932): the coordinator gives partitions to members, each to as many as needed.

group.py            `ShareGroup`: the face towards the shard
heartbeat.py        the conversation with a member
engine.py           changes of a group: members, epochs, targets, timers
roster.py           the state of a group and of its members
states.py           which partitions have a state at the share coordinator
assignor.py         `simple`
admin.py            offsets that are moved or forgotten, and what a deletion begins with
entries.py          records of the log
"""

from penstock.coordinator.share_group.group import ShareGroup

__all__ = ["ShareGroup"]
