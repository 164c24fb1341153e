"""The consumer group protocol (KIP-848): the coordinator itself assigns partitions.

group.py            `ConsumerGroup`: the face towards the shard
engine.py           changes of a group: members, epochs, targets, timers
heartbeat.py        members of the consumer protocol
classic_members.py  members of the classic protocol inside a consumer group
migration.py        groups that move between the protocols; upgrade.py: the way up
roster.py           the state of a group; member.py: one member; partitions.py
assignors.py        `uniform` and `range`; balance.py: different subscriptions
subscriptions.py    names, regular expressions and the topics behind them
regex.py            regular expressions over topic names, on base/regex.py
entries.py          records of the log
embedded.py         the consumer embedded protocol of classic members
"""

from penstock.coordinator.consumer.group import ConsumerGroup
from penstock.coordinator.consumer.upgrade import upgrade

__all__ = ["ConsumerGroup", "upgrade"]
