"""The load of queues: what counts as work, and that nothing is waited for in vain."""

from __future__ import annotations

from pathlib import Path

import pytest
from bench.peers.queue_load import QueueLoad, Working
from bench.peers.wire import PeerError

from unit.bench_peers.test_rounds import Sleeper


class Unmeasured(Sleeper):
    """Needs no processor time."""

    def cpu_seconds(self) -> float:
        return 0.0


@pytest.mark.parametrize(
    ("began", "ended", "busy"),
    [(0.0, 10.0, 5.0), (2.0, 4.0, 3.0), (1.5, 2.5, 1.5), (3.5, 10.0, 0.5), (4.0, 9.0, 0.0)],
)
def test_work_counts_as_far_as_it_lies_in_the_time(began: float, ended: float, busy: float) -> None:
    load = Working(Unmeasured(Path()), 0.005)
    load._spells = [(1.0, 3.0), (2.0, 4.0), (0.5, 1.5)]
    assert load.busy_s(began, ended) == busy
    load.close()


def test_a_queue_that_gives_out_nothing_is_an_error() -> None:
    load = QueueLoad(Unmeasured(Path()))
    with pytest.raises(PeerError, match="gave out nothing"):
        load.run(1, 0.05)
    load.drain()
    load.close()
