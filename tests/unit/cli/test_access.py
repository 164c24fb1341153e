"""How options become settings of both clients, and how a command gets them."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Annotated

import pytest
import typer

from penstock.cli.access import Access
from penstock.cli.errors import CliError
from penstock.cli.lazy import command_of
from penstock.cli.options import TIMEOUT_S_DEFAULT, spread
from penstock.kafka.errors import SettingError

TLS = ["security.protocol=SSL", "ssl.ca.location=/ca.pem"]


def test_both_clients_follow_the_same_settings() -> None:
    found = Access.of("h:1", 3, [*TLS, "client.id=me", "request.timeout.ms=1500"])
    assert found.bootstrap == "h:1"
    assert (found.client.client_id, found.client.answer_s, found.client.connect_s) == ("me", 1.5, 3)
    assert found.client.security.protocol == "SSL"
    assert found.config["bootstrap.servers"] == "h:1"
    assert found.config["client.id"] == "me"
    assert found.config["socket.timeout.ms"] == "1500"
    assert found.config["ssl.ca.location"] == "/ca.pem"


def test_brokers_by_option_count_above_all(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text("bootstrap.servers=file:1\n")
    environment = {"PENSTOCK_BOOTSTRAP": "environment:1"}
    assert Access.of(None, 1).bootstrap == "localhost:9092"
    assert Access.of(None, 1, file=str(file)).bootstrap == "file:1"
    assert Access.of(None, 1, (), str(file), environment).bootstrap == "environment:1"
    xs = ["bootstrap.servers=typed:1"]
    assert Access.of(None, 1, xs, str(file), environment).bootstrap == "typed:1"
    assert Access.of("option:1", 1, xs, str(file), environment).bootstrap == "option:1"


def test_addresses() -> None:
    assert Access.of("a,b:1,[::1]:2,[::2]", 1).addresses == [
        ("a", 9092),
        ("b", 1),
        ("::1", 2),
        ("::2", 9092),
    ]
    for wrong in ("h:port", ":1", "h:0", "h:70000"):
        with pytest.raises(CliError, match="is not an address: write --bootstrap HOST:PORT"):
            _ = Access.of(wrong, 1).addresses
    with pytest.raises(CliError, match="no broker is named"):
        _ = Access.of(",", 1).addresses


def test_passwords_are_not_shown() -> None:
    secure = ["security.protocol=SASL_SSL", "sasl.mechanism=PLAIN", "sasl.username=ann"]
    found = Access.of("h:1", 1, [*secure, "sasl.password=pencil"])
    assert found.config["sasl.password"] == "pencil"
    assert "ann" in repr(found)
    assert "pencil" not in repr(found)


def verb(
    access: Access,
    name: Annotated[str, typer.Argument(metavar="NAME")],
    many: Annotated[int, typer.Option("--many")] = 3,
) -> None:
    """Says what it was given."""
    print(access.bootstrap, access.timeout_s, name, many)


def test_a_command_has_the_options_in_place_of_the_parameter(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PENSTOCK_BOOTSTRAP", raising=False)
    names = list(inspect.signature(spread(verb)).parameters)
    assert names == ["name", "many", "bootstrap", "xs", "config_file", "profile", "timeout"]
    command = command_of("verb", verb)
    command(["a", "--many", "4", "-b", "h:1", "--timeout", "2"], standalone_mode=False)
    command(["b", "-X", "bootstrap.servers=h:2"], standalone_mode=False)
    assert capsys.readouterr().out == f"h:1 2.0 a 4\nh:2 {TIMEOUT_S_DEFAULT} b 3\n"
    with pytest.raises(SettingError, match=r"did you mean client\.id"):
        command(["b", "-X", "cleint.id=x"], standalone_mode=False)
    with pytest.raises(CliError, match="--config names a file"):
        command(["b", "--config", "client.id=x"], standalone_mode=False)
