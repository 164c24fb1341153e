"""What must hold of transactions, whatever happens; a breach is a `Violation`. Pure.

`TxnHistory` is told what transactional clients asked for and were answered, and what readers that
read only what is committed were given:
* nothing is read of a transaction whose commit nobody has asked for: of one that is open (a
  precommitted read), that was aborted, or whose commit was refused (aborted reads);
* in the end a transaction is there whole, in all its partitions, or not at all; an acknowledged
  commit is there, what was read once is still there;
* a value is there once, and a transaction's values lie in a partition in the order in which they
  were sent;
* what a producer does after a newer one of its transactional id was given its epoch has no effect
  (a zombie is fenced);
* the last stable offset is never above the high watermark and does not go back in a leader epoch;
* a chain's output is its input, once, in order, up to the offset that its group has committed: data
  and offsets are of one transaction.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from .checks import holds

Place = tuple[str, int]
"""A topic and the number of a partition."""


@dataclass(eq=False)
class Transaction:
    """One transaction, as its client sees it."""

    name: str
    transactional_id: str
    incarnation: int
    values: dict[bytes, Place] = field(default_factory=dict)
    """Acknowledged values."""
    wants_commit: bool | None = None
    """What the client has asked for; None while it is open."""
    asked_at: float = 0.0
    committed: bool | None = None
    """What the client knows: True was acknowledged, False was refused or aborted for certain."""
    read: dict[bytes, str] = field(default_factory=dict)
    """Values that somebody has read as committed, and who."""


class Chained(NamedTuple):
    """A record of a chain's input: where it is, and its key."""

    partition: int
    offset: int
    key: bytes


class TxnHistory:
    def __init__(self) -> None:
        self.transactions: list[Transaction] = []
        self.given: dict[str, list[float]] = {}
        """When the producers of a transactional id were given their epochs."""
        self.chained: dict[bytes, Chained] = {}
        """From which input each value of a chain was made."""
        self._of_value: dict[bytes, Transaction] = {}
        self._first_sent: dict[bytes, float] = {}
        self._numbers: dict[bytes, int] = {}
        """In which order values were sent."""
        self._stable: dict[tuple[str, int, int], int] = {}
        self.commits = self.aborts = self.fenced = 0

    # -- what writers say ----------------------------------------------------------------------

    def new_producer(self, transactional_id: str, now: float) -> int:
        """A producer was given its epoch, which fences all before it; its number."""
        times = self.given.setdefault(transactional_id, [])
        times.append(now)
        return len(times) - 1

    def begin(self, name: str, transactional_id: str, incarnation: int) -> Transaction:
        transaction = Transaction(name, transactional_id, incarnation)
        self.transactions.append(transaction)
        return transaction

    def sending(self, transaction: Transaction, value: bytes, now: float) -> None:
        """A value is sent for the first time; values are unique."""
        holds(value not in self._of_value, f"the client sends {value!r} twice")
        self._of_value[value] = transaction
        self._first_sent[value] = now
        self._numbers[value] = len(self._numbers)

    def wrote(self, transaction: Transaction, value: bytes, place: Place) -> None:
        """A value was acknowledged."""
        transaction.values[value] = place
        replaced = self._replaced(transaction)
        sent = self._first_sent[value]
        holds(
            replaced is None or sent <= replaced,
            f"{transaction.name}: {value!r} was sent at {sent:.4f} and accepted, though a newer "
            f"producer of {transaction.transactional_id} had its epoch at {replaced}",
        )

    def ending(self, transaction: Transaction, commit: bool, now: float) -> None:
        """The client asks for the end."""
        transaction.wants_commit, transaction.asked_at = commit, now

    def ended(self, transaction: Transaction, committed: bool | None) -> None:
        """How it ended, as far as the client knows: None when it was not told."""
        transaction.committed = committed
        if committed is None:
            return
        if not committed:
            self.aborts += 1
            holds(
                not transaction.read,
                f"{transaction.name} was not committed, and had been read by "
                f"{list(transaction.read.items())[:1]}",
            )
            return
        self.commits += 1
        replaced = self._replaced(transaction)
        holds(
            replaced is None or transaction.asked_at <= replaced,
            f"{transaction.name} asked for its commit at {transaction.asked_at:.4f} and got it, "
            f"though a newer producer of {transaction.transactional_id} had its epoch at "
            f"{replaced}",
        )

    def _replaced(self, transaction: Transaction) -> float | None:
        """When a newer producer took the transactional id over."""
        times = self.given.get(transaction.transactional_id, [])
        after = transaction.incarnation + 1
        return times[after] if after < len(times) else None

    # -- what readers say ----------------------------------------------------------------------

    def read_committed(self, value: bytes, who: str) -> None:
        """Somebody who reads only what is committed was given a value."""
        transaction = self._of_value.get(value)
        holds(transaction is not None, f"{who} read {value!r}, which nobody sent")
        assert transaction is not None
        name = transaction.name
        if transaction.wants_commit is None:
            holds(False, f"precommitted read: {who} read {value!r} of {name}, which is open")
        holds(
            bool(transaction.wants_commit),
            f"aborted read: {who} read {value!r} of {name}, which was aborted",
        )
        holds(
            transaction.committed is not False,
            f"aborted read: {who} read {value!r} of {name}, whose commit was refused",
        )
        transaction.read[value] = who

    def stable(self, topic: str, partition: int, epoch: int) -> int:
        """What a leader of `epoch` has told of its last stable offset up to now."""
        return self._stable.get((topic, partition, epoch), -1)

    def told_stable(
        self, place: Place, epoch: int, stable: int, high_watermark: int, before: int
    ) -> None:
        """It told a reader again; `before` was known when the reader asked."""
        name = f"{place[0]}-{place[1]}"
        holds(
            stable <= high_watermark,
            f"{name}: the last stable offset {stable} is above high watermark {high_watermark}",
        )
        holds(
            stable >= before,
            f"{name}: the last stable offset went from {before} back to {stable} in leader epoch "
            f"{epoch}",
        )
        known = self._stable.get((*place, epoch), -1)
        self._stable[(*place, epoch)] = max(known, stable)

    # -- in the end ----------------------------------------------------------------------------

    def check_complete(self, visible: Mapping[Place, list[bytes]]) -> None:
        """All transactions are over: `visible` is everything that is committed, in order."""
        where: dict[bytes, tuple[Place, int]] = {}
        for place, values in visible.items():
            for number, value in enumerate(values):
                twice = where.setdefault(value, (place, number))
                holds(
                    twice == (place, number),
                    f"{value!r} stands in {twice[0]} and again in {place}",
                )
                holds(value in self._of_value, f"{place}: {value!r} was sent by nobody")
        for transaction in self.transactions:
            self._check_transaction(transaction, where)

    def _check_transaction(
        self, transaction: Transaction, where: Mapping[bytes, tuple[Place, int]]
    ) -> None:
        name, values = transaction.name, transaction.values
        there = [value for value in values if value in where]
        missing = [value for value in values if value not in where]
        holds(
            not there or not missing,
            f"torn transaction: of {name} {there[:2]} is there and {missing[:2]} is not",
        )
        holds(
            not (transaction.committed and missing),
            f"lost: {name} was committed and {missing[:2]} is not there",
        )
        holds(
            not (there and transaction.committed is False),
            f"aborted read: {name} was not committed and {there[:2]} is there",
        )
        gone = [value for value in transaction.read if value not in where]
        holds(not gone, f"{name}: {gone[:2]} was read and is gone")
        replaced = self._replaced(transaction)
        holds(
            not there or replaced is None or transaction.asked_at <= replaced,
            f"a zombie was not fenced: {name} asked for its commit at {transaction.asked_at:.4f}, "
            f"after {replaced}, and {there[:1]} is there",
        )
        places: dict[Place, int] = {}
        for value in sorted(there, key=self._numbers.__getitem__):
            place, number = where[value]
            holds(place == values[value], f"{name}: {value!r} stands in {place}")
            holds(number > places.get(place, -1), f"{name}: {value!r} is out of order in {place}")
            places[place] = number

    def check_chain(
        self,
        source: Mapping[int, list[tuple[int, bytes]]],
        committed: Mapping[int, int],
        visible: Mapping[Place, list[bytes]],
    ) -> None:
        """`source` are the input's offsets and keys by partition, `committed` the group's offsets,
        `visible` as above.
        """
        made: dict[tuple[int, int], bytes] = {}
        newest: dict[tuple[Place, bytes, int], int] = {}
        for place, values in visible.items():
            for value in values:
                origin = self.chained.get(value)
                if origin is None:
                    continue
                partition, offset, key = origin
                twice = made.setdefault((partition, offset), value)
                holds(
                    twice == value, f"chain: input {partition}@{offset} gave {twice!r}, {value!r}"
                )
                holds(
                    offset < committed.get(partition, 0),
                    f"torn between data and offsets: {value!r} is there, and the group is at "
                    f"{committed.get(partition, 0)} in partition {partition}",
                )
                last = newest.get((place, key, partition), -1)
                holds(offset > last, f"chain: {value!r} of key {key!r} comes after input {last}")
                newest[place, key, partition] = offset
        for partition, records in source.items():
            for offset, _ in records:
                holds(
                    offset >= committed.get(partition, 0) or (partition, offset) in made,
                    f"torn between data and offsets: the group is at {committed.get(partition, 0)} "
                    f"in partition {partition}, and nothing was made of {offset}",
                )
