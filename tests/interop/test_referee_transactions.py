"""Apache Kafka as the referee for transaction coordinators: bad requests, and the right ones.

The same requests go to both brokers, in every version, and the answers are compared field by field.
What differs on purpose stands in `DEVIATIONS`, with its reason; everything else must agree. What
Produce and markers do to a partition is in `test_transaction_codes.py`, offsets in transactions and
what is shown in `test_referee_transactions_shown.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from penstock.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest
from support.process import BrokerProcess
from support.referee import Script
from support.transactional_id import LAST_EPOCH, OFFSETS, STATES, STRANGER, Id, left, topic
from support.transactions import (
    END_TELLS_EPOCH_FROM,
    Topics,
    add_request,
    await_end,
    init_request,
)
from support.waiting import eventually

pytestmark = pytest.mark.java

COMMIT, ABORT = True, False
MAX_TIMEOUT_MS = 900_000

# (script, pattern of the difference, why it is right)
DEVIATIONS: list[tuple[str, str, str]] = [
    (
        "owners_that_say_who_they_are",
        r"^/\d epoch (below|above), (open|after it)",
        "who names another epoch than the owner's must not abort the owner's transaction",
    ),
    (
        "added_by_brokers",
        r"/__transaction_state[:/]",
        "a marker in the log of transactions could not be replayed: nobody may write there",
    ),
]


# InitProducerId


def new_owners(run: Script) -> None:
    known = topic(run, "x")
    for version in range(6):
        one = Id(run, f"v{version}")

        def ask(label: str, version: int = version, name: str = one.name, **fields: Any) -> Any:
            return run.ask(f"{version} {label}", init_request(name, **fields), version)

        for timeout in (0, -1, -(2**31), MAX_TIMEOUT_MS + 1, 2**31 - 1):
            ask(f"timeout {timeout}", transaction_timeout_ms=timeout)
        one.describe(f"{version} nobody yet")
        ask("empty id", name="")
        ask("first")
        ask("longest", transaction_timeout_ms=MAX_TIMEOUT_MS)
        one.describe(f"{version} longest: state")
        ask("bad timeout of a known id", transaction_timeout_ms=0)
        one.init().add({known.name: [0]})
        ask("bad timeout in a transaction", transaction_timeout_ms=0)
        one.describe(f"{version} still open: state")
        ask("in a transaction", transaction_timeout_ms=30_000)
        await_end(one.client, one.name)
        one.describe(f"{version} aborted: state")
        ask("after it")
        one.describe(f"{version} after it: state")


def owners_that_say_who_they_are(run: Script) -> None:
    known = topic(run, "x")
    for version in (3, 4, 5):
        one = Id(run, f"v{version}").init().init()

        def ask(label: str, id_: int, epoch: int, name: str = one.name, v: int = version) -> Any:
            request = init_request(name, producer_id=id_, producer_epoch=epoch)
            return run.ask(f"{v} {label}", request, v)

        here = one.producer_id
        ask("id alone", here, -1)
        ask("epoch alone", -1, one.epoch)
        ask("of a new id", here, 0, name=f"{one.name}-new")
        ask("of a stranger", here + STRANGER, one.epoch)
        ask("epoch below", here, one.epoch - 1)
        ask("epoch above", here, one.epoch + 1)
        ask("last epoch", here, LAST_EPOCH)
        ask("right", here, one.epoch)
        ask("again", here, one.epoch)
        ask("once more", here, one.epoch)
        one.describe(f"{version} again: state")
        ask("next", here, one.epoch + 1)
        ask("no longer", here, one.epoch)
        for label, stranger, step in (
            ("epoch below", 0, -1),
            ("epoch above", 0, 1),
            ("of a stranger", STRANGER, 0),
            ("right", 0, 0),
        ):
            one = Id(run, f"v{version}-{label}").init().init().add({known.name: [0]})
            here = one.producer_id + stranger
            ask(f"{label}, open", here, one.epoch + step, name=one.name)
            await_end(one.client, one.name)
            one.describe(f"{version} {label}, open: state")
            for step in (0, 1):
                ask(f"{label}, after it +{step}", here, one.epoch + step, name=one.name)
            one.describe(f"{version} {label}, after it: state")


# AddPartitionsToTxn


def added_by_clients(run: Script) -> None:
    known, other = topic(run, "x", 3), topic(run, "y")
    for version in range(4):
        one = Id(run, f"v{version}").init().init()

        def ask(label: str, topics: Topics, one: Id = one, v: int = version, **how: Any) -> None:
            one.ask_add(label, v, topics, **how)

        here: Topics = {known.name: [0]}
        ask("unknown id", here, name=f"{one.name}-nobody")
        ask("empty id", here, name="")
        ask("stranger", here, producer_id=one.producer_id + STRANGER)
        ask("no producer", here, producer_id=-1, epoch=-1)
        ask("older epoch", here, epoch=one.epoch - 1)
        ask("newer epoch", here, epoch=one.epoch + 1)
        ask("last epoch", here, epoch=LAST_EPOCH)
        ask("unknown topic", {"no-such-topic": [0]})
        ask("unknown topics", {"no-such-topic": [0, 1], known.name: [0]})
        ask("unknown partition", {known.name: [0, 7]})
        ask("negative partition", {known.name: [-1]})
        ask("bad name", {"a b": [0]})
        ask("empty name", {"": [0]})
        ask("offsets", {OFFSETS: [0]})
        ask("states", {STATES: [0]})
        ask("states and unknown", {STATES: [0], "no-such-topic": [0], known.name: [0]})
        ask("unknown topic, stranger", {"no-such-topic": [0]}, producer_id=one.producer_id + 1)
        one.describe(f"{version} nothing yet: state")
        ask("nothing", {})
        ask("topic without partitions", {known.name: []})
        one.describe(f"{version} nothing: state")
        ask("right", here)
        ask("again", here)
        ask("more", {known.name: [0, 2], other.name: [0]})
        ask("twice in one", {known.name: [1, 1]})
        one.describe(f"{version} right: state")
        one.finish(commit=True)
        ask("older epoch, complete", here, epoch=one.epoch - 1)
        ask("complete", here)
        one.describe(f"{version} complete: state")
        one.init()


def added_by_brokers(run: Script) -> None:
    known, other = topic(run, "x", 3), topic(run, "y")
    for version in (4, 5):
        one = Id(run, f"v{version}").init().init()
        two = Id(run, f"v{version}-two").init()
        here: Topics = {known.name: [0]}
        for verify in (True, False):
            kind = "verify" if verify else "add"

            def ask(
                label: str,
                topics: Topics,
                one: Id = one,
                v: int = version,
                kind: str = kind,
                verify: bool = verify,
                **how: Any,
            ) -> None:
                one.ask_add(f"{kind} {label}", v, topics, verify_only=verify, **how)

            ask("unknown id", here, name=f"{one.name}-nobody")
            ask("empty id", here, name="")
            ask("stranger", here, producer_id=one.producer_id + STRANGER)
            ask("no producer", here, producer_id=-1, epoch=-1)
            ask("older epoch", here, epoch=one.epoch - 1)
            ask("newer epoch", here, epoch=one.epoch + 1)
            ask("last epoch", here, epoch=LAST_EPOCH)
            ask("unknown topic", {"no-such-topic": [0], known.name: [1]})
            ask("unknown partition", {known.name: [0, 7]})
            ask("offsets", {OFFSETS: [0]})
            ask("states", {STATES: [0]})
            ask("nothing", {})
            ask("right", here)
            one.describe(f"{version} {kind}: state")
        one.ask_add("verify what is there", version, here, verify_only=True)
        one.ask_add("verify what is not", version, {known.name: [0, 2]}, verify_only=True)
        one.ask_add("more", version, {known.name: [0, 2], other.name: [0]})
        both = [
            *add_request(version, one.name, one.producer_id, one.epoch, here).transactions,
            *add_request(version, two.name, two.producer_id, 77, here).transactions,
            *add_request(version, two.name + "-no", two.producer_id, 0, here).transactions,
        ]
        run.ask(f"{version} several", AddPartitionsToTxnRequest(transactions=both), version)
        one.finish(commit=False, version=5)
        one.ask_add("verify what is over", version, here, verify_only=True)
        one.ask_add("epoch of before", version, here, epoch=one.epoch - 1)
        one.ask_add("verify epoch of before", version, here, epoch=one.epoch - 1, verify_only=True)
        one.ask_add("next", version, here)
        one.describe(f"{version} next: state")


# EndTxn


def ended_badly(run: Script) -> None:
    known = topic(run, "x")
    for version in range(6):
        one = Id(run, f"v{version}").init().init()
        for when in ("empty", "open"):
            for commit in (COMMIT, ABORT):
                verdict = "commit" if commit else "abort"

                def ask(
                    label: str,
                    one: Id = one,
                    v: int = version,
                    kind: str = f"{when} {verdict}",
                    commit: bool = commit,
                    **how: Any,
                ) -> None:
                    one.ask_end(f"{kind} {label}", v, commit=commit, **how)

                ask("unknown id", name=f"{one.name}-nobody")
                ask("empty id", name="")
                ask("stranger", producer_id=one.producer_id + STRANGER)
                ask("no producer", producer_id=-1, epoch=-1)
                ask("older epoch", epoch=one.epoch - 1)
                ask("oldest epoch", epoch=0)
                ask("newer epoch", epoch=one.epoch + 1)
                ask("last epoch", epoch=LAST_EPOCH)
                ask("last epoch of clients", epoch=LAST_EPOCH - 1)
            one.add({known.name: [0]})


def ended_twice(run: Script) -> None:
    """Repetitions of the same verdict and of the other, also in the middle of the next one."""
    known = topic(run, "x")
    for version in range(6):
        for first in (COMMIT, ABORT):
            verdict = "commit" if first else "abort"
            one = Id(run, f"v{version}-{verdict}").init().init()

            def ask(
                label: str,
                commit: bool,
                epoch: int,
                one: Id = one,
                v: int = version,
                verdict: str = verdict,
            ) -> Any:
                answer = one.ask_end(f"{verdict}, {label}", v, commit=commit, epoch=epoch)
                if v >= END_TELLS_EPOCH_FROM and answer.error_code == 0:
                    one.epoch = answer.producer_epoch
                return answer

            one.add({known.name: [0]})
            epoch = one.epoch
            ask("first", first, epoch)
            ask("again", first, epoch)
            ask("other", not first, epoch)
            ask("with the epoch of now", first, one.epoch)
            ask("other, with the epoch of now", not first, one.epoch)
            before = one.epoch
            one.add({known.name: [0]})
            ask("again, next is open", first, before - 1)
            ask("other, next is open", not first, before - 1)
            ask("next", first, one.epoch)
            one.init()
            ask("after the next owner", first, before)
            ask("after the next owner, with its epoch", first, one.epoch)


def nothing_in_it(run: Script) -> None:
    """Transactions of version 2 that no partition was put into, and what can follow."""
    known = topic(run, "x")
    for version in (4, 5):
        one = Id(run, f"v{version}").init()
        for step in range(3):
            for commit in (ABORT, COMMIT):
                label = f"{step} {'commit' if commit else 'abort'}"
                answer = one.ask_end(label, version, commit=commit)
                if version >= END_TELLS_EPOCH_FROM and answer.error_code == 0:
                    one.epoch = answer.producer_epoch
        one.add({known.name: [0]}, 4).finish(commit=True, version=version)
        one.describe(f"{version} committed: state")


def both_versions(run: Script) -> None:
    """A client that was updated in between: the partitions by one version, the end by the other."""
    known = topic(run, "x")
    one = Id(run, "x").init()
    for adds, ends in ((3, 5), (4, 4), (4, 5), (3, 4), (4, 3), (5, 5)):
        for commit in (COMMIT, ABORT):
            label = f"{adds} {ends} {commit}"
            one.add({known.name: [0]}, adds)
            one.describe(f"{label}: open")
            answer = one.ask_end(label, ends, commit=commit)
            if ends >= END_TELLS_EPOCH_FROM:
                one.epoch = answer.producer_epoch
    one.init()
    one.describe("initialised: state")


def too_slow(run: Script) -> None:
    """What the owner of a transaction is told that was aborted because its time was over."""
    known = topic(run, "x")
    for adds, ends, commits in ((3, 4, 4), (0, 1, 0), (5, 5, 5)):
        one = Id(run, f"v{ends}").init(transaction_timeout_ms=1).add({known.name: [0]}, adds)

        def aborted(one: Id = one) -> bool:
            return bool(await_end(one.client, one.name).transaction_state == "CompleteAbort")

        eventually(aborted)
        one.describe(f"{ends} aborted: state")
        one.ask_add("add", adds, {known.name: [0]})
        one.ask_add_offsets("offsets", min(adds, 4), f"{run.name}-g")
        one.ask_commit("commit offsets", commits, f"{run.name}-g", {known.name: {0: 1}})
        one.ask_end("commit", ends, commit=True)
        one.ask_end("abort", ends, commit=False)
        request = init_request(one.name, producer_id=one.producer_id, producer_epoch=one.epoch)
        run.ask(f"{ends} the owner", request, max(ends, 3))
        run.ask(f"{ends} a new owner", init_request(one.name), ends)
        one.describe(f"{ends} owned: state")


SCRIPTS: dict[str, Callable[[Script], None]] = {
    script.__name__: script
    for script in (
        new_owners,
        owners_that_say_who_they_are,
        added_by_clients,
        added_by_brokers,
        ended_badly,
        ended_twice,
        nothing_in_it,
        both_versions,
        too_slow,
    )
}


@pytest.mark.parametrize("name", SCRIPTS)
def test_the_brokers_agree(txn_kafka: BrokerProcess, txn_node: BrokerProcess, name: str) -> None:
    found = left(SCRIPTS[name], DEVIATIONS, txn_kafka, txn_node)
    assert not found, "\n".join([f"as Kafka's | {txn_node.KIND}'s:", *found])
