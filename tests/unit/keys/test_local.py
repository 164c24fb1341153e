"""Keys in a file or in the environment."""

from __future__ import annotations

import base64
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.config.broker_config import broker_config
from penstock.config.table import ConfigError
from penstock.keys.local import VARIABLE, EnvironmentKeys, FileKeys, key_entry, parse_keys
from penstock.keys.provider import KeyUnavailable, WrappedKey
from penstock.keys.providers import provider_of

SECRET = b"the secret of a key, 32 bytes!!!"
TEXT = base64.b64encode(SECRET).decode()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "keys"
    path.write_text(f"# keys\n{key_entry('orders', 1, SECRET)}\n")
    path.chmod(0o600)
    return path


def test_a_key_is_wrapped_and_unwrapped(path: Path) -> None:
    keys = FileKeys(str(path))
    wrapped = keys.wrap("orders", [b"a" * 32, b"b" * 32])
    assert [key.version for key in wrapped] == [1, 1]
    assert b"a" * 32 not in wrapped[0].wrapped
    assert keys.unwrap(wrapped) == [b"a" * 32, b"b" * 32]


def test_a_new_version_counts_at_once_and_the_old_one_is_still_there(path: Path) -> None:
    keys = FileKeys(str(path))
    [old] = keys.wrap("orders", [b"a" * 32])
    assert FileKeys(str(path)).new_version("orders") == 2
    assert FileKeys(str(path)).new_version("bills") == 1
    assert keys.latest_version("orders") == 2
    [new] = keys.wrap("orders", [b"a" * 32])
    assert new.version == 2
    assert keys.unwrap([old, new]) == [b"a" * 32] * 2
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.read_text().startswith("# keys\n")


def test_a_file_is_made_by_the_first_key(tmp_path: Path) -> None:
    path = tmp_path / "new"
    assert FileKeys(str(path)).new_version("orders") == 1
    assert path.stat().st_mode & 0o777 == 0o600
    assert FileKeys(str(path)).latest_version("orders") == 1


def test_what_is_missing_or_wrong_is_never_a_key(path: Path) -> None:
    keys = FileKeys(str(path))
    [key] = keys.wrap("orders", [b"a" * 32])
    lost = [key._replace(version=2), key._replace(key_id="other")]
    damaged = [key._replace(wrapped=key.wrapped[:-1] + b"?"), key._replace(wrapped=b"")]
    for found in keys.unwrap(lost + damaged):
        assert isinstance(found, KeyUnavailable)
        assert str(path) in str(found)
    with pytest.raises(KeyUnavailable, match="no key 'other'"):
        keys.wrap("other", [b"a" * 32])


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (f"orders={TEXT}", "has no key in line 1"),
        (f"orders:0={TEXT}", "has no key in line 1"),
        (f"\n../orders:1={TEXT}", "has no key in line 2"),
        (f"orders:1={TEXT[:-8]}", "has no key in line 1"),
        (f"orders:1={TEXT}\norders:1={TEXT}", "twice"),
    ],
)
def test_a_file_that_is_wrong(path: Path, text: str, sentence: str) -> None:
    path.write_text(text)
    with pytest.raises(KeyUnavailable, match=sentence) as error:
        FileKeys(str(path)).latest_version("orders")
    assert TEXT[:8] not in str(error.value)


def test_a_file_that_everybody_may_read_is_refused(path: Path) -> None:
    path.chmod(0o644)
    with pytest.raises(KeyUnavailable, match="chmod 600"):
        FileKeys(str(path)).latest_version("orders")
    path.unlink()
    with pytest.raises(KeyUnavailable, match="cannot be read: No such file"):
        FileKeys(str(path)).latest_version("orders")


@given(st.text(max_size=80))
def test_no_text_is_more_than_refused(text: str) -> None:
    try:
        parse_keys(text, "it")
    except KeyUnavailable:
        return


def test_keys_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    other = key_entry("bills", 7, os.urandom(32))
    monkeypatch.setenv(VARIABLE, f"{key_entry('orders', 1, SECRET)} {other}")
    keys = EnvironmentKeys()
    assert keys.unwrap(keys.wrap("bills", [b"a" * 32])) == [b"a" * 32]
    assert keys.latest_version("bills") == 7
    with pytest.raises(KeyUnavailable, match="openssl rand"):
        keys.new_version("orders")


def test_settings_name_the_provider(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = {"penstock.encryption.provider": "file", "penstock.encryption.file": str(path)}
    config = broker_config({**settings, "penstock.encryption.key.id": "orders"})
    assert provider_of(config) is not None
    assert provider_of(broker_config({})) is None
    for texts, sentence in (
        ({"penstock.encryption.key.id": "orders"}, "there are no keys"),
        ({"penstock.encryption.key.id": "a/b", **settings}, "letters, digits"),
        ({"penstock.encryption.provider": "file"}, r"set penstock\.encryption\.file"),
        ({"penstock.encryption.provider": "vault"}, r"set penstock\.encryption\.vault"),
        ({"penstock.encryption.options": "x"}, "NAME=VALUE"),
    ):
        with pytest.raises(ConfigError, match=sentence):
            broker_config(texts)
    with pytest.raises(ConfigError, match="one of file, environment, vault"):
        provider_of(broker_config({"penstock.encryption.provider": "cloud"}))

    class Point:
        name = "cloud"

        @staticmethod
        def load() -> object:
            return lambda options: ("a provider", options)

    monkeypatch.setattr("penstock.keys.providers.entry_points", lambda group: [Point])
    texts = {"penstock.encryption.provider": "cloud", "penstock.encryption.options": "region=a"}
    assert provider_of(broker_config(texts)) == ("a provider", {"region": "a"})


def test_a_wrapped_key_is_shown_by_its_names_alone() -> None:
    assert str(WrappedKey("orders", 3, b"wrapped")) == "key id 'orders', version 3"
