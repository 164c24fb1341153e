"""Looks into the nodes for what concerns transactions.

* At every look: no last stable offset is above the high watermark, none goes back while one node
  leads in one epoch.
* In the end: nothing is open in any log, and what all logs say fits together (`txn_logs`).
"""

from __future__ import annotations

from penstock.metadata.names import TRANSACTIONS_TOPIC
from penstock.partitions.leadership import Role

from .checks import holds
from .cluster import World
from .observer import Observer, committed_batches, partitions_of
from .txn_history import Place
from .txn_logs import (
    Aborted,
    Entry,
    State,
    check_agreement,
    check_index,
    check_log,
    parse,
    parse_states,
)


class TxnObserver(Observer):
    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._stable: dict[tuple[str, bytes], int] = {}

    def look(self) -> None:
        super().look()
        for machine in self._world.machines.values():
            if not machine.serving or machine.process is None:
                continue
            for partition in partitions_of(machine):
                if partition.role is Role.LEADER:
                    name = f"{machine.process.name} {partition!r}"
                    stable = partition.last_stable_offset
                    holds(
                        stable <= partition.high_watermark,
                        f"{name}: the last stable offset {stable} is above the high watermark "
                        f"{partition.high_watermark}",
                    )
                    key = name, partition.topic_id  # a topic may be made again
                    before = self._stable.get(key, 0)
                    holds(
                        stable >= before,
                        f"{name}: the last stable offset went from {before} back to {stable}",
                    )
                    self._stable[key] = stable

    def unstable(self) -> str:
        """A partition in which something is open; empty for none."""
        for name, index, replicas in self.by_partition():
            for node, partition in replicas.items():
                if partition.role is Role.LEADER:
                    stable, end = partition.last_stable_offset, partition.log.log_end_offset
                    if stable < end:
                        open_ = dict(partition.log.producers.ongoing)
                        return (
                            f"{name}-{index} on node {node}: last stable offset {stable}, "
                            f"high watermark {partition.high_watermark}, end {end}, open {open_}"
                        )
        return ""

    def check_transactions(self) -> None:
        """All logs of all nodes together."""
        logs: dict[Place, list[Entry]] = {}
        states: list[State] = []
        for name, index, replicas in self.by_partition():
            whole = max(replicas.values(), key=lambda p: -p.log.log_start_offset)
            batches = list(committed_batches(whole))
            if name == TRANSACTIONS_TOPIC:
                states += parse_states(batches)
                continue
            entries = logs[name, index] = parse(batches)
            expected = check_log(f"{name}-{index}", entries)
            indexes = {
                node: [
                    Aborted(txn.producer_id, txn.first_offset, txn.last_offset)
                    for txn in p.log.aborted_transactions(0, p.log.log_end_offset)
                ]
                for node, p in replicas.items()
                if p.log.log_start_offset == whole.log.log_start_offset
            }
            check_index(f"{name}-{index}", expected, indexes)
        check_agreement(states, logs)
