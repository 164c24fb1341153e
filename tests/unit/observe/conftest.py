"""A scrape as a test reads it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import pytest
from prometheus_client.parser import text_string_to_metric_families

from penstock.observe.metrics import Registry

Scrape: TypeAlias = Callable[[Registry], dict[tuple[str, ...], float]]


@pytest.fixture
def scrape() -> Scrape:
    """Every sample by its name and its label values, these in the order of the labels' names."""

    def read(registry: Registry) -> dict[tuple[str, ...], float]:
        found: dict[tuple[str, ...], float] = {}
        for family in text_string_to_metric_families(registry.render().decode()):
            for sample in family.samples:
                key = (sample.name, *(sample.labels[label] for label in sorted(sample.labels)))
                assert key not in found, f"{key} stands twice"
                found[key] = sample.value
        return found

    return read
