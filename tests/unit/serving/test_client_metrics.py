"""The numbers that clients have pushed: what is shown, for how long, and never too much."""

from __future__ import annotations

from penstock.config.client_metrics_config import ClientMetricsConfig
from penstock.observe.metrics import Registry
from penstock.serving.client_instances import SILENT_MS_MIN, Client, ClientInstances, Instance
from penstock.serving.client_metrics import (
    EXPIRE_EVERY_MS,
    LABEL_CHARACTERS_MAX,
    SERIES_PER_CLIENT_MAX,
    ClientMetrics,
)
from penstock.wire.otlp import Number

SERIES_MAX = 2_000


class Rig:
    def __init__(self) -> None:
        self.now_ms = 0
        instances = ClientInstances(lambda: self.now_ms, lambda: bytes(16), 100)
        instances.subscribe([ClientMetricsConfig(("*",), 1_000)])
        self._instances = instances
        self.metrics = ClientMetrics(lambda: self.now_ms, SERIES_MAX)
        self._registry = Registry()
        self._registry.add_source(self.metrics.readings)

    def client(self, number: int = 2, client_id: str = "c") -> Instance:
        client = Client(client_id, "java", "4", "10.0.0.1", 1)
        return self._instances.ask(number.to_bytes(16), client)

    def lines(self) -> list[str]:
        text = self._registry.render().decode()
        return [line for line in text.splitlines() if not line.startswith("#")]

    def values(self) -> dict[str, float]:
        """By the name of the client's metric."""
        found = [line for line in self.lines() if 'metric="' in line]
        return {
            line.split('metric="')[1].split('"')[0]: float(line.rpartition(" ")[2])
            for line in found
        }


def counted(name: str, value: float, *, delta: bool = True) -> Number:
    return Number(name, "", value, counts=True, delta=delta)


def test_the_labels_say_whose_number_it_is() -> None:
    rig = Rig()
    rig.metrics.take(rig.client(), [Number("a.b", "node_id=1", 2.5), counted("c.total", 3)])
    assert rig.lines() == [
        'penstock_client_info{client_id="c",client_instance_id="AAAAAAAAAAAAAAAAAAAAAg",'
        'software_name="java",software_version="4"} 1.0',
        'penstock_client_gauge{attributes="node_id=1",client_id="c",'
        'client_instance_id="AAAAAAAAAAAAAAAAAAAAAg",metric="a.b"} 2.5',
        'penstock_client_sum_total{attributes="",client_id="c",'
        'client_instance_id="AAAAAAAAAAAAAAAAAAAAAg",metric="c.total"} 3.0',
    ]


def test_differences_add_up_and_others_replace() -> None:
    rig = Rig()
    client = rig.client()
    for value in (3.0, 4.0, -5.0):
        rig.metrics.take(
            client,
            [
                counted("difference", value),
                counted("all", value, delta=False),
                Number("up-and-down", "", value, delta=True),
                Number("gauge", "", value),
            ],
        )
    assert rig.values() == {"difference": 7.0, "all": -5.0, "up-and-down": 2.0, "gauge": -5.0}


def test_numbers_stay_for_a_while_after_the_last_push() -> None:
    rig = Rig()
    rig.metrics.take(rig.client(2), [counted("a", 1)])
    rig.now_ms += SILENT_MS_MIN - 1
    rig.metrics.take(rig.client(3), [counted("b", 1)])
    assert rig.values().keys() == {"a", "b"}
    rig.now_ms += 1
    assert rig.values().keys() == {"b"}
    assert rig.metrics.series == 1


def test_clients_cannot_flood_the_labels() -> None:
    rig = Rig()
    clients = [rig.client(number) for number in range(2, 12)]
    for client in clients:
        flood = [Number(f"m{number}", "", 1.0) for number in range(SERIES_PER_CLIENT_MAX + 5)]
        rig.metrics.take(client, flood)
    assert len(rig.values()) == SERIES_PER_CLIENT_MAX
    assert len([line for line in rig.lines() if 'metric="' in line]) == SERIES_MAX
    assert rig.metrics.dropped == 10 * (SERIES_PER_CLIENT_MAX + 5) - SERIES_MAX
    # Those that are shown are still counted on.
    rig.metrics.take(clients[0], [Number("m0", "", 9.0)])
    assert any('m0"' in line and line.endswith(" 9.0") for line in rig.lines())


def test_room_is_made_without_a_scrape() -> None:
    rig = Rig()
    for client in range(2, 6):
        rig.metrics.take(
            rig.client(client),
            [Number(f"m{number}", "", 1.0) for number in range(SERIES_PER_CLIENT_MAX)],
        )
    rig.now_ms += max(SILENT_MS_MIN, EXPIRE_EVERY_MS)
    rig.metrics.take(rig.client(9), [Number("new", "", 1.0)])
    assert rig.values() == {"new": 1.0}
    assert rig.metrics.dropped == 0


def test_labels_are_short_and_stay_in_their_line() -> None:
    rig = Rig()
    hostile = 'x"} 1\npenstock_fake{a="\x00\x1b[31m\u202e'
    rig.metrics.take(rig.client(2, hostile), [Number("a", f"k={hostile}", 1.0)])
    rig.metrics.take(rig.client(3, "y" * 100_000), [Number("b", "", 1.0)])
    text = "\n".join(rig.lines())
    assert len(rig.lines()) == 4
    assert not any(line.startswith("penstock_fake") for line in rig.lines())
    assert "y" * LABEL_CHARACTERS_MAX in text
    assert "y" * (LABEL_CHARACTERS_MAX + 1) not in text
    assert not set("\x00\x1b\u202e") & set(text)
