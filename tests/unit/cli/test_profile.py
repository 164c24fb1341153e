"""`penstock profile`: what the commands store and show."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from penstock.cli.app import run
from penstock.cli.profile.show import public
from penstock.kafka.settings import FOLLOWED

SECRET = "pencil-of-ann"
SECURE = f"""\
bootstrap.servers=h:1
security.protocol=SASL_SSL
sasl.mechanisms=PLAIN
sasl.username=ann
sasl.password={SECRET}
ssl.ca.location=ca.pem
group.id=of-another-tool
"""


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "client.properties").write_text(SECURE)
    return tmp_path


def said(capsys: pytest.CaptureFixture[str], *args: str, code: int = 0) -> str:
    """What a command has printed."""
    assert run(["profile", *args]) == code
    out, err = capsys.readouterr()
    assert SECRET not in out + err
    return out if code == 0 else err


def test_a_file_becomes_a_profile(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said(capsys, "set", "a", "--config", "client.properties")
    assert SECRET in (home / "config/penstock/profiles/a.properties").read_text()
    shown = json.loads(said(capsys, "show", "a", "--format", "json"))
    assert shown == {
        "profile": "a",
        "used": False,
        "settings": {
            "bootstrap.servers": "h:1",
            "sasl.mechanism": "PLAIN",
            "sasl.password": "(hidden)",
            "sasl.username": "ann",
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(home / "ca.pem"),
        },
    }
    assert "sasl.password      (hidden)\n" in said(capsys, "show", "a")


def test_single_settings_change_and_a_file_replaces(capsys: pytest.CaptureFixture[str]) -> None:
    said(capsys, "set", "a", "-b", "h:2", "-X", "client.id=c")
    said(capsys, "set", "a", "-X", "client.id=d", "-X", "client.rack=r")
    shown = json.loads(said(capsys, "show", "a", "--format", "json"))["settings"]
    assert shown == {"bootstrap.servers": "h:2", "client.id": "d", "client.rack": "r"}
    said(capsys, "set", "a", "--config", "client.properties", "-b", "h:3")
    shown = json.loads(said(capsys, "show", "a", "--format", "json"))["settings"]
    assert shown["bootstrap.servers"] == "h:3"
    assert "client.id" not in shown


def test_a_list_has_a_star_for_the_one_in_use(capsys: pytest.CaptureFixture[str]) -> None:
    assert said(capsys, "list") == ""
    said(capsys, "set", "a", "--config", "client.properties")
    said(capsys, "set", "b", "-b", "h:2")
    said(capsys, "use", "b")
    assert [line.split() for line in said(capsys, "list").splitlines()] == [
        ["PROFILE", "BOOTSTRAP", "SECURITY"],
        ["a", "h:1", "SASL_SSL"],
        ["*", "b", "h:2", "PLAINTEXT"],
    ]
    assert [p["used"] for p in json.loads(said(capsys, "list", "--format", "json"))] == [
        False,
        True,
    ]
    assert said(capsys, "show") == "bootstrap.servers  h:2\n"
    said(capsys, "use", "--none")
    assert "no profile is in use" in said(capsys, "show", code=1)
    said(capsys, "delete", "a", "b")
    assert said(capsys, "list", "--format", "json") == "[]\n"


@pytest.mark.parametrize(
    ("args", "sentence"),
    [
        (("set", "a"), "nothing to set"),
        (("set", "../a", "-b", "h:1"), "cannot be the name of a profile"),
        (("set", "a", "-b", "h:port"), "is not an address"),
        (("set", "a", "-X", "cleint.id=c"), "did you mean client.id"),
        (("set", "a", "-X", "sasl.username=ann"), "security.protocol is not"),
        (("set", "a", "--config", "missing"), "missing cannot be read"),
        (("use",), "say which profile to use"),
        (("use", "a", "--none"), "say which profile to use"),
        (("use", "a"), "there is no profile a (known: none)"),
        (("delete", "a"), "there is no profile a"),
        (("show", "a"), "there is no profile a"),
    ],
)
def test_what_cannot_be_done(
    home: Path, capsys: pytest.CaptureFixture[str], args: tuple[str, ...], sentence: str
) -> None:
    assert sentence in said(capsys, *args, code=2)
    assert not (home / "config").exists()


def test_every_setting_that_holds_a_secret_is_hidden() -> None:
    shown = public(dict.fromkeys(FOLLOWED, SECRET))
    assert {name for name, value in shown.items() if value != SECRET} == {
        "sasl.jaas.config",
        "sasl.password",
        "ssl.ca.pem",
        "ssl.certificate.pem",
        "ssl.key.password",
        "ssl.key.pem",
        "ssl.keystore.certificate.chain",
        "ssl.keystore.key",
        "ssl.truststore.certificates",
    }
