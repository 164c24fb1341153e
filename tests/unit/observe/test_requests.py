"""Request metrics by API and phase."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from penstock.base.errors import ErrorCode
from penstock.config.broker_config import broker_config
from penstock.config.table import ConfigError
from penstock.observe.metrics import Registry
from penstock.observe.requests import HISTOGRAMS, PHASES, RequestMetrics, RequestTimes

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
    sums = [found[phase.name + "_sum", "Produce"] for phase in PHASES]
    assert sums == [2e-6, 40e-6, 600e-6, 8e-3, 8.642e-3]
    assert found["penstock_request_remote_seconds_bucket", "Fetch", "0.268435456"] == 0
    assert found["penstock_request_remote_seconds_bucket", "Fetch", "0.536870912"] == 1
    assert all(found[phase.name + "_count", "Fetch"] == 1 for phase in PHASES)


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


SERIES_PER_API = {"full": 121, "coarse": 71, "total": 37, "none": 16}
"""With the counter of requests; docs/observability.md has these numbers."""


@pytest.mark.parametrize("histograms", SERIES_PER_API)
def test_thinned_histograms_show_fewer_series_and_the_same_sums(
    scrape: Scrape, histograms: str
) -> None:
    registry = Registry()
    requests = RequestMetrics(registry, {0: "Produce", 1: "Fetch"}, histograms)
    record(requests, 0, 1_000, 20_000, 300_000, 4_000_000)
    record(requests, 1, 1_000, 20_000, 300_000, 4_000_000)
    found = scrape(registry)
    assert len(found) == 2 * SERIES_PER_API[histograms]
    for phase, ns in zip(PHASES, (1_000, 20_000, 300_000, 4_000_000, 4_321_000), strict=True):
        assert found[phase.name + "_sum", "Fetch"] == ns / 1e9
        assert found[phase.name + "_bucket", "Fetch", "+Inf"] == 1
    bounds = [key for key in found if key[0] == "penstock_request_total_seconds_bucket"]
    assert (len(bounds) > 2) == (histograms != "none")


def test_the_setting_allows_what_there_is() -> None:
    name = "penstock.metrics.request.histograms"
    for value in HISTOGRAMS:
        assert broker_config({name: value}).penstock_metrics_request_histograms == value
    with pytest.raises(ConfigError, match="one of " + ", ".join(HISTOGRAMS)):
        broker_config({name: "some"})
