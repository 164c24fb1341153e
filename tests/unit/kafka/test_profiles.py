"""Profiles: where they are kept, which one counts, and what stands above it."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.kafka.errors import SettingError
from penstock.kafka.given import gather
from penstock.kafka.librdkafka import VOCABULARY
from penstock.kafka.profiles import Profiles


@pytest.fixture
def home(tmp_path: Path) -> dict[str, str]:
    """An environment with the profiles prod and test."""
    environment = {"XDG_CONFIG_HOME": str(tmp_path / "config"), "HOME": str(tmp_path / "home")}
    profiles = of(environment)
    profiles.write("prod", {"bootstrap.servers": "prod:1", "client.id": "prod"})
    profiles.write("test", {"bootstrap.servers": "test:1", "client.id": "test"})
    return environment


def of(environment: dict[str, str]) -> Profiles:
    found = Profiles.of(environment)
    assert found is not None
    return found


def client_id(environment: dict[str, str], *xs: str, **named: str | None) -> str:
    options = {"file": None, "profile": None} | named
    found = gather(VOCABULARY, xs, options["file"], environment, options["profile"])
    return found.get("client.id", "none")


def test_where_they_are(tmp_path: Path) -> None:
    xdg, home = str(tmp_path / "x"), str(tmp_path / "h")
    path = of({"XDG_CONFIG_HOME": xdg, "HOME": home}).path("a")
    assert path == tmp_path / "x/penstock/profiles/a.properties"
    for not_absolute in ("", "relative"):
        path = of({"XDG_CONFIG_HOME": not_absolute, "HOME": home}).path("a")
        assert path == tmp_path / "h/.config/penstock/profiles/a.properties"
    assert Profiles.of({}) is None


def test_nobody_else_can_read_them(home: dict[str, str]) -> None:
    profiles = of(home)
    profiles.use("prod")
    top = Path(home["XDG_CONFIG_HOME"]) / "penstock"
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in [top, *top.rglob("*")]}
    assert modes == {
        "penstock": 0o700,
        "profiles": 0o700,
        "prod.properties": 0o600,
        "test.properties": 0o600,
        "profile": 0o600,
    }


@given(value=st.text())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_what_is_written_is_read_again(tmp_path: Path, value: str) -> None:
    profiles = Profiles(tmp_path)
    profiles.write("a", {"sasl.password": value, "client.id": "c"})
    assert profiles.read("a") == {"sasl.password": value, "client.id": "c"}


def test_one_set_counts_the_nearest_to_the_command(home: dict[str, str], tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text("client.id=file\n")
    assert client_id(home) == "none"
    of(home).use("prod")
    assert client_id(home) == "prod"
    assert client_id(home | {"PENSTOCK_PROFILE": "test"}) == "test"
    assert client_id(home | {"PENSTOCK_CONFIG": str(file)}) == "file"
    assert client_id(home | {"PENSTOCK_PROFILE": "test"}, profile="prod") == "prod"
    assert client_id(home | {"PENSTOCK_CONFIG": str(file)}, profile="test") == "test"
    assert client_id(home | {"PENSTOCK_PROFILE": "test"}, file=str(file)) == "file"


def test_what_is_given_singly_stands_above(home: dict[str, str]) -> None:
    of(home).use("prod")
    environment = home | {"PENSTOCK_X_CLIENT_ID": "environment"}
    assert client_id(environment, profile="test") == "environment"
    assert client_id(environment, "client.id=typed", profile="test") == "typed"
    found = gather(VOCABULARY, (), None, home | {"PENSTOCK_BOOTSTRAP": "h:1"}).values
    assert found == {"bootstrap.servers": "h:1", "client.id": "prod"}


def test_a_file_stands_in_place_of_the_profile_not_above_it(
    home: dict[str, str], tmp_path: Path
) -> None:
    of(home).use("prod")
    file = tmp_path / "client.properties"
    file.write_text("client.rack=a\n")
    assert gather(VOCABULARY, (), str(file), home).values == {"client.rack": "a"}


def test_two_sets_from_one_place_are_refused(home: dict[str, str]) -> None:
    with pytest.raises(SettingError, match="--config and --profile each name a set of settings"):
        client_id(home, file="client.properties", profile="prod")
    with pytest.raises(SettingError, match="PENSTOCK_CONFIG and PENSTOCK_PROFILE of the"):
        client_id(home | {"PENSTOCK_CONFIG": "f", "PENSTOCK_PROFILE": "prod"})


def test_a_profile_that_is_not_there_is_named_with_those_that_are(home: dict[str, str]) -> None:
    for missing in ({"profile": "prdo"}, {}):
        with pytest.raises(SettingError, match=r"no profile prdo \(known: prod, test\)"):
            client_id(home | {"PENSTOCK_PROFILE": "prdo"}, **missing)
    with pytest.raises(SettingError, match="no profile prdo"):
        of(home).use("prdo")
    with pytest.raises(SettingError, match="profile prod: the environment has no HOME"):
        client_id({}, profile="prod")


@pytest.mark.parametrize("name", ["", "../prod", "a/b", ".a", "-a", "a" * 65, "a\nb", "ä"])
def test_names_that_could_lead_elsewhere_are_refused(home: dict[str, str], name: str) -> None:
    with pytest.raises(SettingError, match="cannot be the name of a profile"):
        of(home).write(name, {})


def test_a_setting_that_is_wrong_is_told_with_the_profile_and_without_the_value(
    home: dict[str, str],
) -> None:
    of(home).write("prod", {"sasl.pasword": "pencil"})
    with pytest.raises(SettingError, match=r"profile prod: unknown setting sasl\.pasword") as e:
        client_id(home, profile="prod")
    assert "pencil" not in str(e.value)


def test_a_deleted_profile_is_not_in_use_any_more(home: dict[str, str]) -> None:
    profiles = of(home)
    profiles.use("prod")
    profiles.delete("test")
    assert profiles.used() == "prod"
    profiles.delete("prod")
    assert profiles.used() is None
    assert profiles.names() == []
    assert client_id(home) == "none"
