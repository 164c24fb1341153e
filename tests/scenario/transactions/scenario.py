"""The scenario language of transactions: one event per line in, effects as lines out.

An event is `t=MILLISECONDS VERB ...`; timers that are due before it go off first. Indented below it
stands what must come of it:

    ! timer                         a timer went off, at the given time if it is not the event's
    NAME: answer                    an answer to a client; PID/EPOCH if it was given a producer
    + ID STATE PID/EPOCH [...]      a record that is written, with the transaction's partitions,
                                    and `next=PID` where the epochs are used up
    > COMMIT|ABORT ID PID/EPOCH @COORDINATOR-EPOCH [...]   markers that are to be written
    ~ timers                        timers set (`@` deadline) and cancelled (`off`)

A client remembers its transactional id (`t` unless it says another), what it speaks (version 2 of
transactions unless it says `v1`) and the producer id and epoch that it was given last, so that
later lines need only name what is different. `as=PID/EPOCH` makes it claim to be another producer.

    init NAME [v1] [id=ID] [timeout=MS]         a new process: it knows no producer
    bump NAME                                   InitProducerId with the producer it has (KIP-360)
    add NAME PARTITION ...                      v1: its own request; else that of its Produce
    verify NAME PARTITION ...                   the request of a broker that it produced to
    commit NAME, abort NAME                     EndTxn; `lost` at the end: the answer is not heard
    markers                                     all markers that are asked for are written
    describe ID, list [STATE ...], expire, wait
    crash                                       another coordinator takes over
    feature LEVEL                               the cluster's `transaction.version`
    epoch NAME EPOCH                            as if the producer had begun that often
    ids none|some                               whether producer ids are to be had
    config SETTING=NUMBER ...

After every event the shard must equal the one that is built from its records. Run with
`PENSTOCK_REWRITE=1` to write the present output into the files, then read the difference.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from penstock.base.errors import ErrorCode
from penstock.coordinator.effects import CoordinatorRecord, Effects, SetTimer
from penstock.coordinator.transaction import WriteMarkers
from penstock.coordinator.transaction.records import decode
from penstock.coordinator.transaction.states import BY_STATUS
from penstock.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from penstock.wire.messages.describe_transactions import DescribeTransactionsRequest
from penstock.wire.messages.end_txn import EndTxnRequest
from penstock.wire.messages.init_producer_id import InitProducerIdRequest
from penstock.wire.messages.list_transactions import ListTransactionsRequest
from unit.coordinator.transaction.rig import TIMEOUT_MS, Rig, add_request, partition

INIT, VERIFY, DESCRIBE, LIST = 5, 5, 0, 2
ADD = {1: 3, 2: 5}
END = {1: 4, 2: 5}
"""The versions of requests by the version of transactions that a client speaks."""


@dataclass
class Client:
    """What one client knows."""

    speaks: int = 2
    transactional_id: str = "t"
    timeout_ms: int = TIMEOUT_MS
    producer: tuple[int, int] = (-1, -1)


class Scenario:
    def __init__(self) -> None:
        self.rig = Rig()
        self.clients: dict[str, Client] = {}

    def run(self, line: str) -> Iterator[str]:
        when, verb, *words = line.split()
        yield from self.let_time_pass(int(when.removeprefix("t=")))
        options = dict(word.split("=", 1) for word in words if "=" in word)
        rest = [word for word in words if "=" not in word]
        method: Callable[..., Iterator[str]] = getattr(self, f"do_{verb}")
        yield from method(rest, options)

    def let_time_pass(self, end: int) -> Iterator[str]:
        rig = self.rig
        assert end >= rig.now, f"time goes back to {end}"
        while (timer := rig.next_timer()) is not None and timer[1] <= end:
            key, rig.now = timer
            at = "" if rig.now == end else f" at {rig.now}"
            yield f"! {'/'.join(key)}{at}"
            yield from effects_shown(rig.fire(key))
        rig.now = end

    # -- clients -------------------------------------------------------------------------------

    def do_init(self, words: list[str], options: dict[str, str]) -> Iterator[str]:
        name, *rest = words
        client = self.clients.setdefault(name, Client())
        client.speaks = 1 if "v1" in rest else client.speaks
        client.transactional_id = options.get("id", client.transactional_id)
        client.timeout_ms = int(options.get("timeout", client.timeout_ms))
        yield from self._init(name, (-1, -1))

    def do_bump(self, words: list[str], options: dict[str, str]) -> Iterator[str]:
        (name,) = words
        yield from self._init(name, self._producer(name, options))

    def _init(self, name: str, producer: tuple[int, int]) -> Iterator[str]:
        client = self.clients[name]
        request = InitProducerIdRequest(
            transactional_id=client.transactional_id,
            transaction_timeout_ms=client.timeout_ms,
            producer_id=producer[0],
            producer_epoch=producer[1],
        )
        answer, effects = self.rig.send(request, INIT)
        if not answer.error_code:
            client.producer = (answer.producer_id, answer.producer_epoch)
        yield f"{name}: {producer_shown(answer)}"
        yield from effects_shown(effects)

    def do_add(self, words: list[str], options: dict[str, str]) -> Iterator[str]:
        name, *partitions = words
        version = ADD[self.clients[name].speaks]
        yield from self._add(name, partitions, options, version, verify_only=False)

    def do_verify(self, words: list[str], options: dict[str, str]) -> Iterator[str]:
        name, *partitions = words
        yield from self._add(name, partitions, options, VERIFY, verify_only=True)

    def _add(
        self,
        name: str,
        partitions: list[str],
        options: dict[str, str],
        version: int,
        *,
        verify_only: bool,
    ) -> Iterator[str]:
        producer_id, epoch = self._producer(name, options)
        wanted = AddPartitionsToTxnTransaction(
            transactional_id=self.clients[name].transactional_id,
            producer_id=producer_id,
            producer_epoch=epoch,
            verify_only=verify_only,
            topics=[
                AddPartitionsToTxnTopic(name=p.topic, partitions=[p.partition])
                for p in map(partition, partitions)
            ],
        )
        answer, effects = self.rig.send(add_request(version, wanted), version)
        results = answer.results_by_topic_v3_and_below
        for one in answer.results_by_transaction:
            results = one.topic_results
        found = {
            f"{topic.name}-{p.partition_index}": ErrorCode(p.partition_error_code).name
            for topic in results
            for p in topic.results_by_partition
        }
        codes = [found[name] for name in partitions]
        shown = codes[:1] if len(set(codes)) == 1 else codes
        yield f"{name}: {' '.join(shown)}"
        yield from effects_shown(effects)

    def do_commit(self, words: list[str], options: dict[str, str]) -> Iterator[str]:
        yield from self._end(words, options, commit=True)

    def do_abort(self, words: list[str], options: dict[str, str]) -> Iterator[str]:
        yield from self._end(words, options, commit=False)

    def _end(self, words: list[str], options: dict[str, str], *, commit: bool) -> Iterator[str]:
        name, *rest = words
        client = self.clients[name]
        producer_id, epoch = self._producer(name, options)
        request = EndTxnRequest(
            transactional_id=client.transactional_id,
            producer_id=producer_id,
            producer_epoch=epoch,
            committed=commit,
        )
        answer, effects = self.rig.send(request, END[client.speaks])
        yield f"{name}: {producer_shown(answer)}"
        if client.speaks == 2 and not answer.error_code and rest != ["lost"]:
            client.producer = (answer.producer_id, answer.producer_epoch)
        yield from effects_shown(effects)

    def _producer(self, name: str, options: dict[str, str]) -> tuple[int, int]:
        if "as" not in options:
            return self.clients[name].producer
        producer_id, _, epoch = options["as"].partition("/")
        return int(producer_id), int(epoch)

    # -- the world -----------------------------------------------------------------------------

    def do_markers(self, _: list[str], __: dict[str, str]) -> Iterator[str]:
        yield from effects_shown(self.rig.write_markers())

    def do_crash(self, _: list[str], __: dict[str, str]) -> Iterator[str]:
        yield from effects_shown(self.rig.crash())

    def do_expire(self, _: list[str], __: dict[str, str]) -> Iterator[str]:
        yield from effects_shown(self.rig.expire())

    def do_wait(self, _: list[str], __: dict[str, str]) -> Iterator[str]:
        yield from ()

    def do_feature(self, words: list[str], _: dict[str, str]) -> Iterator[str]:
        self.rig.transaction_version = int(words[0])
        yield from ()

    def do_epoch(self, words: list[str], _: dict[str, str]) -> Iterator[str]:
        client = self.clients[words[0]]
        client.producer = self.rig.set_epoch(int(words[1]), client.transactional_id)
        yield from ()

    def do_ids(self, words: list[str], _: dict[str, str]) -> Iterator[str]:
        self.rig.out_of_ids = words == ["none"]
        yield from ()

    def do_config(self, _: list[str], options: dict[str, str]) -> Iterator[str]:
        named = {name.replace(".", "_"): int(value) for name, value in options.items()}
        self.rig.config = replace(self.rig.config, **named)
        yield from effects_shown(self.rig.crash())

    # -- the operator --------------------------------------------------------------------------

    def do_describe(self, words: list[str], _: dict[str, str]) -> Iterator[str]:
        answer, _effects = self.rig.send(DescribeTransactionsRequest(transactional_ids=words), 0)
        for one in answer.transaction_states:
            if one.error_code:
                yield f"{one.transactional_id}: {ErrorCode(one.error_code).name}"
                continue
            partitions = sorted(f"{t.topic}-{i}" for t in one.topics for i in t.partitions)
            yield (
                f"{one.transactional_id}: {one.transaction_state} {one.producer_id}"
                f"/{one.producer_epoch} since {one.transaction_start_time_ms}"
                f" [{', '.join(partitions)}]"
            )

    def do_list(self, words: list[str], _: dict[str, str]) -> Iterator[str]:
        answer, _effects = self.rig.send(ListTransactionsRequest(state_filters=words), LIST)
        found = [f"{t.transactional_id}={t.transaction_state}" for t in answer.transaction_states]
        yield f"{' '.join(found) or 'none'}"


# -- effects as lines --------------------------------------------------------------------------


def effects_shown(effects: Effects) -> Iterator[str]:
    for record in effects.records:
        yield f"+ {record_shown(record)}"
    for action in effects.actions:
        assert isinstance(action, WriteMarkers)
        what = "COMMIT" if action.commit else "ABORT"
        partitions = ", ".join(map(str, action.partitions))
        yield (
            f"> {what} {action.transactional_id} {action.producer_id}/{action.producer_epoch}"
            f" @{action.coordinator_epoch} [{partitions}]"
        )
    timers = [
        f"{'/'.join(timer.key)} @{timer.deadline_ms}"
        if isinstance(timer, SetTimer)
        else f"{'/'.join(timer.key)} off"
        for timer in effects.timers
    ]
    if timers:
        yield f"~ {', '.join(timers)}"


def record_shown(record: CoordinatorRecord) -> str:
    decoded = decode(*record)
    assert decoded is not None
    value = decoded.value
    if value is None:
        return f"{decoded.transactional_id} gone"
    parts = [
        decoded.transactional_id,
        BY_STATUS[value.transaction_status].value,
        f"{value.producer_id}/{value.producer_epoch}",
    ]
    names = [
        f"{t.topic}-{index}"
        for t in value.transaction_partitions or ()
        for index in t.partition_ids
    ]
    if names:
        parts.append(f"[{', '.join(names)}]")
    if value.next_producer_id >= 0:
        parts.append(f"next={value.next_producer_id}")
    return " ".join(parts)


def producer_shown(answer: Any) -> str:
    if answer.error_code:
        return ErrorCode(answer.error_code).name
    if answer.producer_id < 0:
        return "NONE"
    return f"{answer.producer_id}/{answer.producer_epoch}"
