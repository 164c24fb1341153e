"""Streams groups (KIP-1071): the coordinator gives the tasks of a topology to its members.

group.py      `StreamsGroup`: the face towards the shard
heartbeat.py  the conversation with a member
engine.py     changes of a group: members, topology, epochs, targets, timers
roster.py     the state of a group and of its members; ../reconcile.py: how a member comes to its
              target, as a table
topology.py   what a topology is; resolving.py: what the topics that exist make of it
tasks.py      tasks and their types
assignor.py   `sticky`
endpoints.py  which partitions lie behind which endpoint
entries.py    records of the log
describing.py what StreamsGroupDescribe shows
"""

from penstock.coordinator.streams_group.group import StreamsGroup

__all__ = ["StreamsGroup"]
