"""To whom a leader that cannot go on gives its leadership up."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from penstock.metadata import image as metadata
from penstock.partitions.partition import Partition
from penstock.partitions.resigning import Resignations
from unit.net.served import run

ME, OTHER = 2, 1


class Leading:
    """A partition that this node leads, as far as it matters here."""

    leader = object()
    leader_id = ME
    index = 0
    topic_id = bytes(16)


def registration(isr: tuple[int, ...], elr: tuple[int, ...] = ()) -> metadata.Partition:
    return metadata.Partition((OTHER, ME), isr, ME, 3, 7, elr=elr)


@pytest.mark.parametrize(
    ("now", "asked"),
    [
        (registration((OTHER, ME)), [OTHER]),
        (registration((ME,), (OTHER,)), []),
        (registration((ME,)), None),
    ],
    ids=["another is in sync", "another is eligible", "nobody else can"],
)
def test_who_is_to_lead_instead(now: metadata.Partition, asked: list[int] | None) -> None:
    async def test() -> None:
        looked = asyncio.Event()
        told: list[Any] = []

        def registered(partition: Partition) -> metadata.Partition:
            if looked.is_set():
                return now._replace(leader=OTHER)
            looked.set()
            return now

        async def call(request: Any) -> Any:
            told.append(request.topics[0].partitions[0])

        resignations = Resignations(ME, lambda: 5, call, registered)
        resignations.begin(cast(Partition, Leading()))
        await looked.wait()
        await asyncio.sleep(0)
        await resignations.stop()
        if asked is None:
            assert not told
        else:
            [data] = told
            assert [state.broker_id for state in data.new_isr_with_epochs] == asked
            assert (data.leader_epoch, data.partition_epoch) == (3, 7)

    run(test)
