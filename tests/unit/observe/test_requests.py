"""Request metrics by API and phase."""

from __future__ import annotations

from collections.abc import Callable

from penstock.base.errors import ErrorCode
from penstock.observe.metrics import Registry
from penstock.observe.requests import PHASES, RequestMetrics, RequestTimes

Scrape = Callable[[Registry], dict[tuple[str, ...], float]]


def record(
    requests: RequestMetrics, api_key: int, queue: int, local: int, remote: int, send: int
) -> None:
    """An answered request that spent so many nanoseconds in each phase."""
    started, local_done = 1 + queue, 1 + queue + local
    ready = local_done + remote
    request = RequestTimes(api_key, 1, started)
    request.local_done_ns, request.ready_ns, request.sent_ns = local_done, ready, ready + send
    requests.answered(request)


def test_phases_and_their_total_are_recorded_by_api(scrape: Scrape) -> None:
    registry = Registry()
    requests = RequestMetrics(registry, {0: "Produce", 1: "Fetch", 3: "Metadata"})
    record(requests, 0, 1_000, 20_000, 300_000, 4_000_000)
    record(requests, 0, 1_000, 20_000, 300_000, 4_000_000)
    record(requests, 1, 0, 5_000, 500_000_000, 0)
    found = scrape(registry)
    assert found["penstock_requests_total", "Produce"] == 2
    assert found["penstock_requests_total", "Fetch"] == 1
    sums = [found[name + "_sum", "Produce"] for name in PHASES]
    assert sums == [2e-6, 40e-6, 600e-6, 8e-3, 8.642e-3]
    assert found["penstock_request_remote_seconds_bucket", "Fetch", "0.268435456"] == 0
    assert found["penstock_request_remote_seconds_bucket", "Fetch", "0.536870912"] == 1
    assert all(found[name + "_count", "Fetch"] == 1 for name in PHASES)


def test_an_api_that_was_never_called_has_no_series(scrape: Scrape) -> None:
    registry = Registry()
    requests = RequestMetrics(registry, {0: "Produce", 1: "Fetch"})
    assert scrape(registry) == {}
    record(requests, 0, 1, 1, 1, 1)
    assert not [key for key in scrape(registry) if "Fetch" in key]


def test_each_phase_has_one_head_over_all_apis() -> None:
    registry = Registry()
    requests = RequestMetrics(registry, {0: "Produce", 1: "Fetch"})
    record(requests, 0, 1, 1, 1, 1)
    record(requests, 1, 1, 1, 1, 1)
    assert registry.render().count(b"# TYPE penstock_request_") == len(PHASES)


def test_errors_are_counted_by_code_and_none_is_not(scrape: Scrape) -> None:
    registry = Registry()
    requests = RequestMetrics(registry, {0: "Produce"})
    requests.error(0, ErrorCode.NONE)
    requests.error(0, ErrorCode.MESSAGE_TOO_LARGE)
    for _ in range(4):
        requests.error(0, ErrorCode.MESSAGE_TOO_LARGE)
    assert scrape(registry) == {
        ("penstock_request_errors_total", "Produce", "MESSAGE_TOO_LARGE"): 5
    }
