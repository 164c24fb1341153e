"""Apache Kafka as the referee for offsets in transactions, and for what is shown of transactions.

As in `test_referee_transactions.py`: the same requests to both brokers, in every version.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from penstock.wire.messages.describe_producers import DescribeProducersRequest
from penstock.wire.messages.describe_producers import TopicRequest as ProducersTopic
from penstock.wire.messages.describe_transactions import DescribeTransactionsRequest
from penstock.wire.messages.find_coordinator import FindCoordinatorRequest
from penstock.wire.messages.list_transactions import ListTransactionsRequest
from penstock.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from penstock.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from support.batches import batch
from support.calls import produce_request
from support.group_calls import await_coordinator
from support.process import BrokerProcess
from support.raw import RawClient
from support.referee import Script
from support.transactional_id import LAST_EPOCH, OFFSETS, STRANGER, Id, left, timeless, topic
from support.transactions import TRANSACTION
from support.waiting import eventually

pytestmark = pytest.mark.java

TRANSACTIONAL = 0x10

# (script, pattern of the difference, why it is right)
DEVIATIONS: list[tuple[str, str, str]] = [
    ("coordinators", r"/error_message: ", "of success there is nothing to say"),
    (
        "markers",
        r"^/\d no (topics|partitions)/markers: 0 \| 1 entries$",
        "no marker goes unanswered",
    ),
    (
        "markers",
        r"error_code: -1 \| 42$",
        "Kafka fails by accident; a number that cannot be is an INVALID_REQUEST",
    ),
]


# AddOffsetsToTxn and TxnOffsetCommit


def offsets_added(run: Script) -> None:
    group = f"{run.name}-g"
    for version in range(5):
        one = Id(run, f"v{version}").init().init()

        def ask(label: str, one: Id = one, v: int = version, of: str = group, **how: Any) -> None:
            one.ask_add_offsets(label, v, of, **how)

        ask("unknown id", name=f"{one.name}-nobody")
        ask("empty id", name="")
        ask("stranger", producer_id=one.producer_id + STRANGER)
        ask("older epoch", epoch=one.epoch - 1)
        ask("newer epoch", epoch=one.epoch + 1)
        ask("last epoch", epoch=LAST_EPOCH)
        ask("right")
        one.describe(f"{version} right: state")
        ask("again")
        ask("older epoch, open", epoch=one.epoch - 1)
        ask("empty group", of="")
        one.describe(f"{version} empty group: state")
        one.finish(commit=True)
        ask("older epoch, complete", epoch=one.epoch - 1)
        ask("complete")
        one.describe(f"{version} complete: state")


def offsets_committed(run: Script) -> None:
    known = topic(run, "x", 2)
    with RawClient(run.broker.host, run.broker.port) as client:
        for version in range(6):
            group = f"{run.name}-{version}"
            await_coordinator(client, group)
            one = Id(run, f"v{version}").init().init()
            here = {known.name: {0: 5}}
            _bad_commits(one, version, group, here)
            one.ask_add_offsets(f"added for {version}", 3, group)
            one.ask_commit("right", version, group, here)
            one.ask_commit("again", version, group, here)
            one.ask_commit("stranger, open", version, group, here, producer_id=one.producer_id + 9)
            one.ask_commit("unknown topic", version, group, {"no-such-topic": {0: 1}, **here})
            one.ask_commit("unknown partition", version, group, {known.name: {7: 1, 1: 2}})
            one.ask_commit("negative offset", version, group, {known.name: {1: -1}})
            one.ask_commit("below", version, group, {known.name: {1: -5}})
            one.ask_commit("long", version, group, here, metadata="x" * 5000)
            one.ask_commit("no metadata", version, group, {known.name: {1: 9}}, metadata=None)
            one.ask_commit("nothing", version, group, {})
            one.describe(f"{version} open: state")
            _fetch(run, f"{version} open", group, known.name)
            one.finish(commit=version % 2 == 0, version=5)
            eventually(lambda group=group: _is_stable(client, group))
            _fetch(run, f"{version} over", group, known.name)
            one.ask_commit("epoch of before", version, group, here, epoch=one.epoch - 1)


def _bad_commits(one: Id, version: int, group: str, here: dict[str, dict[int, int]]) -> None:
    def ask(label: str, of: str = group, **how: Any) -> None:
        one.ask_commit(label, version, of, here, **how)

    ask("unknown id", name=f"{one.name}-nobody")
    ask("empty id", name="")
    ask("stranger", producer_id=one.producer_id + STRANGER)
    ask("older epoch", epoch=one.epoch - 1)
    ask("newer epoch", epoch=one.epoch + 1)
    ask("last epoch", epoch=LAST_EPOCH)
    ask("empty group", of="")
    if version >= 3:
        ask("member", member_id="m", generation_id=1)
        ask("generation alone", generation_id=3)
        ask("member alone", member_id="m")
        ask("instance alone", group_instance_id="i")
    if version < 5:
        ask("not added")
    one.describe(f"{version} bad ones: state")


def _fetch_request(group: str, name: str | None, *, stable: bool) -> OffsetFetchRequest:
    topics = None
    if name is not None:
        topics = [OffsetFetchRequestTopics(name=name, partition_indexes=[0, 1])]
    asked = OffsetFetchRequestGroup(group_id=group, topics=topics)
    return OffsetFetchRequest(groups=[asked], require_stable=stable)


def _fetch(run: Script, label: str, group: str, name: str) -> None:
    for stable in (False, True):
        run.ask(f"{label}, stable={stable}", _fetch_request(group, name, stable=stable), 9)
    run.ask(f"{label}, all", _fetch_request(group, None, stable=False), 9)


def _is_stable(client: RawClient, group: str) -> bool:
    [found] = client.call(_fetch_request(group, None, stable=True), 9).groups
    return all(p.error_code == 0 for t in found.topics for p in t.partitions)


# What is shown


def shown(run: Script) -> None:
    known = topic(run, "x", 3)
    ids = [Id(run, name).init() for name in ("empty", "open", "committed", "aborted")]
    for one in ids[1:]:
        one.add({known.name: [2, 0]})
    ids[2].finish(commit=True)
    ids[3].finish(commit=False)
    names = [one.name for one in ids]
    for label, asked in {
        "all": names,
        "none": [],
        "twice": [names[0], names[0]],
        "unknown": ["no-such-id", names[1]],
        "empty id": [""],
    }.items():
        run.ask(f"describe {label}", DescribeTransactionsRequest(transactional_ids=asked), 0)
        timeless(run, f"describe {label}")

    def listed(label: str, version: int, **filters: Any) -> None:
        label = f"list {version} {label}"
        run.ask(label, ListTransactionsRequest(**filters), version)
        answer = run.answers[label]
        answer["transaction_states"] = [
            (state["transactional_id"], state["transaction_state"])
            for state in answer["transaction_states"]
            if state["transactional_id"] in names
        ]

    producers = [one.producer_id for one in ids]
    for version in range(3):
        listed("all", version)
        for state in ("Ongoing", "Empty", "CompleteCommit", "PrepareAbort", "Dead"):
            listed(state, version, state_filters=[state])
        for states in (["ongoing"], ["nonsense", "Ongoing"], ["", "Empty"], ["Ongoing", "Empty"]):
            listed(f"{states}", version, state_filters=states)
        listed("producer", version, producer_id_filters=[producers[1]])
        listed("producers", version, producer_id_filters=[*producers[:2], -1, 12345678])
        listed("both", version, producer_id_filters=producers, state_filters=["Ongoing"])
        listed("neither", version, producer_id_filters=[producers[0]], state_filters=["Ongoing"])
    for version in (1, 2):
        for milliseconds in (-1, -2, 0, 3_600_000, 2**62):
            listed(f"older than {milliseconds}", version, duration_filter=milliseconds)
    for pattern in (".*open", "open", f"{run.name}-.*", names[0], "", "(", "[a", ".*(ed|ty)", "^$"):
        listed(f"like {pattern}", 2, transactional_id_pattern=pattern)
    listed("like, open", 2, transactional_id_pattern=f"{run.name}.*", state_filters=["Ongoing"])


def producers_shown(run: Script) -> None:
    known = topic(run, "x", 2)
    one = Id(run, "x").init().add({known.name: [0]})
    records = batch(
        [b"x"],
        producer_id=one.producer_id,
        producer_epoch=one.epoch,
        base_sequence=0,
        attributes=TRANSACTIONAL,
    )
    request = produce_request(known, records, 9)
    request.transactional_id = one.name
    run.ask("produce", request, 9)

    def look(label: str, **topics: list[int]) -> None:
        asked = [ProducersTopic(name=n, partition_indexes=p) for n, p in topics.items()]
        run.ask(label, DescribeProducersRequest(topics=asked), 0)
        for found in run.answers[label]["topics"]:
            for partition in found["partitions"]:
                for producer in partition["active_producers"]:
                    producer["last_timestamp"] = producer["last_timestamp"] >= 0

    look("open", **{known.name: [0, 1]})
    look("none")
    look("no partitions", **{known.name: []})
    look("unknown", **{known.name: [7, -1], "no-such-topic": [0]})
    look("bad name", **{"a b": [0], "": [0]})
    look("twice", **{known.name: [1, 1]})
    one.finish(commit=True, version=5)
    look("committed", **{known.name: [0, 1]})


def coordinators(run: Script) -> None:
    for version in range(7):  # version 0 knows of groups alone

        def ask(label: str, *keys: str, kind: int = TRANSACTION, version: int = version) -> None:
            request = FindCoordinatorRequest(key_type=kind if version else 0)
            if version >= 4:
                request.coordinator_keys = list(keys)
            else:
                [request.key] = keys
            run.ask(f"{version} {label}", request, version)

        ask("one", f"{run.name}-x")
        ask("empty", "")
        if version >= 1:
            ask("no such kind", "x", kind=9)
            ask("negative kind", "x", kind=-1)
        if version >= 4:
            ask("several", "a", "b", "")
            ask("twice", "a", "a")
            ask("none")


def markers(run: Script) -> None:
    """Markers to the topics of the cluster itself, and to none at all."""
    known = topic(run, "x")
    one = Id(run, "x").init()

    def mark(label: str, version: int, *topics: tuple[str, list[int]], **how: Any) -> None:
        base = {
            "producer_id": one.producer_id,
            "producer_epoch": one.epoch,
            "coordinator_epoch": 0,
            "transaction_result": True,
        }
        marker = WritableTxnMarker(
            **(base | how),
            topics=[WritableTxnMarkerTopic(name=n, partition_indexes=p) for n, p in topics],
        )
        run.ask(f"{version} {label}", WriteTxnMarkersRequest(markers=[marker]), version)

    for version in (1, 2):
        mark("no topics", version)
        mark("no partitions", version, (known.name, []))
        mark("bad name", version, ("a b", [0]))
        mark("offsets", version, (OFFSETS, [0]))
        mark("offsets and data", version, (OFFSETS, [1]), (known.name, [0]))
        mark("offsets that are not there", version, (OFFSETS, [99, -1]))
        mark("no producer", version, (known.name, [0]), producer_id=-1)
        mark("negative epoch", version, (known.name, [0]), producer_epoch=-1)
        mark("older epoch, offsets", version, (OFFSETS, [0]), producer_epoch=-1)
    mark("no such transaction version", 2, (known.name, [0]), transaction_version=9)
    mark("negative transaction version", 2, (known.name, [0]), transaction_version=-1)


SCRIPTS: dict[str, Callable[[Script], None]] = {
    script.__name__: script
    for script in (
        offsets_added,
        offsets_committed,
        shown,
        producers_shown,
        coordinators,
        markers,
    )
}


@pytest.mark.parametrize("name", SCRIPTS)
def test_the_brokers_agree(txn_kafka: BrokerProcess, txn_node: BrokerProcess, name: str) -> None:
    found = left(SCRIPTS[name], DEVIATIONS, txn_kafka, txn_node)
    assert not found, "\n".join([f"as Kafka's | {txn_node.KIND}'s:", *found])
