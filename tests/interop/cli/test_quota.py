"""`penstock quota` on a broker: what is set is listed, explained and taken away."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from support.process import BrokerProcess
from support.waiting import eventually

from .conftest import Run, run_with


@pytest.fixture(scope="module")
def broker(
    broker_maker: Callable[[Path], BrokerProcess], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[BrokerProcess]:
    with broker_maker(tmp_path_factory.mktemp("quota")) as made:
        yield made


@pytest.fixture
def run(broker: BrokerProcess) -> Run:
    return lambda *args: run_with({"PENSTOCK_BOOTSTRAP": broker.bootstrap}, "quota", *args)


def test_the_life_of_quotas(run: Run) -> None:
    made = run("set", "producer_byte_rate=10M", "request_percentage=50", "--user", "ann").out
    assert "user ann: producer_byte_rate is 10,485,760 B/s" in made
    assert "user ann: request_percentage is 50 %" in made
    said = run(
        "set", "producer_byte_rate=1K", "--user-defaults", "--client", "c", "--format", "json"
    )
    assert said.json() == {
        "entity": {"user": None, "client-id": "c"},
        "set": {"producer_byte_rate": 1024.0},
    }
    run("set", "controller_mutation_rate=2.5", "--client-defaults")
    run("set", "connection_creation_rate=7", "--ip-defaults")
    run("set", "connection_creation_rate=8", "--ip", "10.0.0.1")
    eventually(lambda: len(run("list", "--format", "json").json()) == 5)
    listed = run("list", "--format", "json").json()
    assert {
        "entity": {"user": "ann"},
        "quotas": {"producer_byte_rate": 10485760.0, "request_percentage": 50.0},
    } in listed
    table = run("list").out
    assert "any other user, client-id c" in table
    assert "any other ip" in table

    held = run("describe", "--user", "ann", "--client", "c", "--format", "json").json()
    assert {one["quota"]: (one["value"], one["entity"]) for one in held} == {
        "producer_byte_rate": (10485760.0, {"user": "ann"}),
        "request_percentage": (50.0, {"user": "ann"}),
        "controller_mutation_rate": (2.5, {"client-id": None}),
    }
    assert held[0]["shared_by"] == "all clients of the user"
    [other] = run("describe", "--user", "bob", "--client", "c", "--format", "json").json()[:1]
    assert other["entity"] == {"client-id": "c", "user": None}
    assert "7 /s" in run("describe", "--ip", "10.9.9.9").out
    assert "8 /s" in run("describe", "--ip", "::ffff:10.0.0.1").out

    gone = run("unset", "producer_byte_rate", "--user", "ann", "--format", "json").json()
    assert gone == {"entity": {"user": "ann"}, "unset": ["producer_byte_rate"]}
    eventually(lambda: "10,485,760" not in run("list").out)
    assert (
        "has no quota producer_byte_rate"
        in run("unset", "producer_byte_rate", "--user", "ann").sentence
    )
    for whose in (
        ("--user", "ann"),
        ("--user-defaults", "--client", "c"),
        ("--client-defaults",),
        ("--ip-defaults",),
        ("--ip", "10.0.0.1"),
    ):
        assert run("unset", "--all", *whose).code == 0
    eventually(lambda: run("list", "--format", "json").json() == [])


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (("set", "producer_byte_rate=1"), "say whose quotas"),
        (("set", "producer_byte_rat=1", "--user", "a"), "did you mean"),
        (("set", "producer_byte_rate=lots", "--user", "a"), "is not a size"),
        (("set", "request_percentage=lots", "--user", "a"), "is a number"),
        (("set", "request_percentage=0", "--user", "a"), "greater than 0"),
        (("set", "request_percentage=nan", "--user", "a"), "greater than 0"),
        (("set", "request_percentage=1", "--ip", "1.1.1.1"), "has no quota request_percentage"),
        (("set", "request_percentage=1", "--ip", "1.1.1.1", "--user", "a"), "not combined"),
        (("set", "request_percentage=1", "--user", "a", "--user-defaults"), "not both"),
        (("set", "request_percentage=1", "--user", ""), "has no name"),
        (("set", "connection_creation_rate=1.5", "--ip", "1.1.1.1"), "fractional"),
        (("set", "connection_creation_rate=1", "--ip", "not an address"), "INVALID_REQUEST"),
        (("unset", "--user", "a"), "name the quotas"),
        (("unset", "--all", "producer_byte_rate", "--user", "a"), "name the quotas"),
        (("describe",), "say whose quotas"),
    ],
)
def test_what_makes_no_sense_is_a_sentence(run: Run, args: tuple[str, ...], says: str) -> None:
    assert says in run(*args).sentence
