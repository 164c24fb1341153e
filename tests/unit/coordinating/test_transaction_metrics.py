"""What a scrape shows of transactions, at the coordinator and at the partitions."""

from __future__ import annotations

import re
import time
from pathlib import Path

from penstock.base.errors import ErrorCode
from penstock.metadata.records import NO_LEADER
from support.batches import Rec, batch
from support.calls import RawTopic
from unit.coordinating.transaction_rig import (
    FEW,
    PRODUCE_VERSION,
    TRANSACTIONAL,
    Identity,
    add,
    begin,
    elect,
    end,
    open_transaction,
    state_becomes,
    write,
)
from unit.net.served import run
from unit.serving.rig import Peer, Rig, one, produce_request, running, until

SCRAPE_CPU_SECONDS_MAX = 1.0


def scrape(rig: Rig) -> dict[str, float]:
    """Every number about transactions, by name and labels."""
    assert rig.node.metrics is not None
    text = rig.node.metrics.registry.render().decode()
    found = re.findall(r"^(penstock_\w*(?:transaction|last_stable)\S*) (\S+)$", text, re.MULTILINE)
    return {name.removeprefix("penstock_"): float(value) for name, value in found}


def ended(numbers: dict[str, float]) -> list[float]:
    names = ("committed", "aborted", "timed_out", "verification_failures")
    return [numbers[f"transactions_{name}_total"] for name in names]


async def write_now(peer: Peer, topic: RawTopic, who: Identity) -> None:
    """A second record of a transaction whose first one is from long ago."""
    records = batch(
        [Rec(timestamp=int(time.time() * 1000))],
        attributes=TRANSACTIONAL,
        producer_id=who.producer_id,
        producer_epoch=who.epoch,
        base_sequence=1,
    )
    request = produce_request(topic, records, PRODUCE_VERSION)
    request.transactional_id = "x"
    assert one(await peer.call(request, PRODUCE_VERSION)).error_code == 0


def test_an_open_transaction_is_seen_until_it_ends(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path, **FEW) as rig:
            peer, topic = await rig.peer(), await rig.topic()
            who = await open_transaction(peer, topic)
            seen = scrape(rig)
            assert seen['transactions_open{state="Ongoing"}'] == 1
            assert seen['transactions_open{state="PrepareCommit"}'] == 0
            assert seen["last_stable_offset_lag_messages"] == 1
            assert seen["last_stable_offset_lag_max_messages"] == 1
            at = f'{{partition="0",topic="{topic.name}"}}'
            assert seen[f"partition_last_stable_offset_lag_messages{at}"] == 1
            oldest = seen[f"partition_oldest_transaction_seconds{at}"]
            assert seen["partitions_oldest_transaction_seconds"] == oldest > 0
            assert ended(seen) == [0, 0, 0, 0]

            await write_now(peer, topic, who)
            again = scrape(rig)
            assert again["last_stable_offset_lag_messages"] == 2
            later = again[f"partition_oldest_transaction_seconds{at}"]
            assert later >= oldest, "a new write does not make the transaction younger"

            assert await end(peer, who) == 0
            await state_becomes(peer, "CompleteCommit")
            seen = scrape(rig)
            assert seen['transactions_open{state="Ongoing"}'] == 0
            assert seen["last_stable_offset_lag_messages"] == 0
            assert seen["partitions_oldest_transaction_seconds"] == 0
            assert f"partition_oldest_transaction_seconds{at}" not in seen
            assert ended(seen) == [1, 0, 0, 0]

    run(test)


def test_how_transactions_end_is_counted(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path, **FEW) as rig:
            peer, topic = await rig.peer(), await rig.topic()
            who = await open_transaction(peer, topic)
            assert await end(peer, who, commit=False) == 0
            await state_becomes(peer, "CompleteAbort")
            assert ended(scrape(rig)) == [0, 1, 0, 0]

            late = await begin(peer, "late", timeout_ms=1)
            assert await add(peer, late, topic.name, id_="late") == [ErrorCode.NONE]
            await until(lambda: ended(scrape(rig)) == [0, 2, 1, 0])

            other = await begin(peer, "never-added")
            assert await write(peer, topic, other, id_="never-added") != 0
            assert ended(scrape(rig)) == [0, 2, 1, 1]

    run(test)


def test_a_decided_transaction_waits_for_its_markers(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path, **FEW) as rig:
            peer, topic = await rig.peer(), await rig.topic()
            who = await open_transaction(peer, topic)
            await elect(rig, topic.name, 0, NO_LEADER)
            assert await end(peer, who) == 0
            seen = scrape(rig)
            assert seen["transactions_markers_waiting"] == 1
            assert seen['transactions_open{state="PrepareCommit"}'] == 1

    run(test)


def test_series_by_partition_can_be_left_out(tmp_path: Path) -> None:
    async def test() -> None:
        settings = {"penstock_metrics_per_partition": "false", **FEW}
        async with running(tmp_path, **settings) as rig:
            peer, topic = await rig.peer(), await rig.topic()
            await open_transaction(peer, topic)
            seen = scrape(rig)
            assert seen["last_stable_offset_lag_max_messages"] == 1
            assert [name for name in seen if "topic=" in name] == []

    run(test)


def test_many_partitions_are_read_at_once(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(tmp_path, **FEW) as rig:
            peer, topic = await rig.peer(), await rig.topic(partitions=1000)
            await open_transaction(peer, topic)
            for index in range(1000):
                rig.broker.replicas.leader_of(topic.name, index)
            assert rig.node.metrics is not None
            began = time.process_time()
            seen = scrape(rig)
            assert time.process_time() - began < SCRAPE_CPU_SECONDS_MAX
            assert sum("stable_offset_lag_messages{" in name for name in seen) >= 1000

    run(test)
