"""Writers of `bench/cluster` end with the measurement, also with one that fails."""

from __future__ import annotations

import contextlib
from typing import Any, ClassVar, cast

import pytest

pytest.importorskip("confluent_kafka", reason="bench.cluster needs confluent-kafka")

from bench.cluster import going
from tests.support.cluster import Cluster


class FakeCluster:
    bootstrap = ""
    nodes: ClassVar[dict[int, Any]] = {}

    def make_topic(self, name: str, partitions: int) -> None:
        pass


class FakeWriter:
    """Has written enough at once, and knows whether it runs."""

    made: ClassVar[list[FakeWriter]] = []
    stop_fails = False

    def __init__(self, *_: Any) -> None:
        self.acks = [None] * (going.WARM_UP_ACKS + 1)
        self.running = False
        self.made.append(self)

    def start(self) -> None:
        self.running = True

    def stop(self) -> None:
        self.running = False
        if self.stop_fails:
            raise RuntimeError("does not end")


@pytest.mark.parametrize("stop_fails", [False, True])
def test_writers_are_stopped_when_a_measurement_fails(
    monkeypatch: pytest.MonkeyPatch, stop_fails: bool
) -> None:
    monkeypatch.setattr(FakeWriter, "made", [])
    monkeypatch.setattr(FakeWriter, "stop_fails", stop_fails)
    monkeypatch.setattr(going, "ConfluentWriter", FakeWriter)
    monkeypatch.setattr(going, "RawWriter", FakeWriter)
    cluster = cast(Cluster, FakeCluster())
    with contextlib.suppress(RuntimeError), going._writing(cluster, raw=True):
        assert [writer.running for writer in FakeWriter.made] == [True, True]
        raise RuntimeError("nothing goes on")
    assert [writer.running for writer in FakeWriter.made] == [False, False]
