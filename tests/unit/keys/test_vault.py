"""Keys in Vault's transit engine, asked over HTTP, and a node's stock of data keys from there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.keys import data_keys
from penstock.keys.data_keys import STOCK_MIN, DataKeys
from penstock.keys.provider import KeyUnavailable, WrappedKey
from penstock.keys.vault import BATCH_MAX, VaultKeys
from support.vault import TOKEN, Transit, vault
from support.waiting import eventually


@pytest.fixture
def server(tmp_path: Path) -> Iterator[tuple[VaultKeys, Transit, Path]]:
    token = tmp_path / "token"
    token.write_text(TOKEN + "\n")
    with vault() as (url, transit):
        keys = VaultKeys(url, namespace="team", token_file=str(token))
        assert keys.new_version("orders") == 1
        yield keys, transit, token


def test_keys_are_wrapped_and_unwrapped_in_batches(
    server: tuple[VaultKeys, Transit, Path],
) -> None:
    keys, transit, _ = server
    secrets = [n.to_bytes(32, "big") for n in range(BATCH_MAX + 5)]
    wrapped = keys.wrap("orders", secrets)
    assert keys.new_version("orders") == 2
    assert keys.latest_version("orders") == 2
    [new] = keys.wrap("orders", [b"n" * 32])
    assert (wrapped[0].version, new.version) == (1, 2)
    transit.calls.clear()
    assert keys.unwrap([new, *wrapped]) == [b"n" * 32, *secrets]
    assert transit.calls == ["POST /v1/transit/decrypt/orders"] * 2
    assert transit.namespaces == {"team"}


def test_what_cannot_be_had_is_a_sentence(server: tuple[VaultKeys, Transit, Path]) -> None:
    keys, transit, token = server
    keys.new_version("orders")
    [good] = keys.wrap("orders", [b"g" * 32])
    lost = WrappedKey("orders", 9, b"vault:v9:AAAA")
    gone = WrappedKey("gone", 1, b"vault:v1:AAAA")
    found = keys.unwrap([good, lost, gone])
    assert found[0] == b"g" * 32
    assert "version 9 is not what Vault at http://127.0.0.1" in str(found[1])
    assert "encryption key not found" in str(found[2])
    with pytest.raises(KeyUnavailable, match="no such key"):
        keys.latest_version("gone")
    with pytest.raises(KeyUnavailable, match="cannot be the id"):
        keys.wrap("../../sys/seal", [b"g" * 32])
    transit.down = True
    with pytest.raises(KeyUnavailable, match="status 503, Vault is sealed"):
        keys.wrap("orders", [b"g" * 32])
    transit.down = False
    token.write_text("another\n")
    with pytest.raises(KeyUnavailable, match="permission denied") as error:
        keys.wrap("orders", [b"g" * 32])
    assert "another" not in str(error.value)
    token.unlink()
    with pytest.raises(KeyUnavailable, match="cannot be read from"):
        keys.latest_version("orders")


def test_a_token_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    with vault() as (url, _):
        keys = VaultKeys(url)
        with pytest.raises(KeyUnavailable, match="VAULT_TOKEN"):
            keys.new_version("orders")
        monkeypatch.setenv("VAULT_TOKEN", TOKEN)
        assert keys.new_version("orders") == 1


@pytest.mark.parametrize("url", ["http://vault.example:8200", "vault:8200", "ftp://x", ""])
def test_keys_are_not_sent_in_clear(url: str) -> None:
    with pytest.raises(KeyUnavailable, match=r"penstock\.encryption\.vault\.address"):
        VaultKeys(url)


def test_nobody_is_there() -> None:
    with vault() as (url, _):
        gone = VaultKeys(url)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("VAULT_TOKEN", TOKEN)
        with pytest.raises(KeyUnavailable, match="does not do it"):
            gone.latest_version("orders")


# -- the stock ---------------------------------------------------------------------------------


@pytest.fixture
def stock(server: tuple[VaultKeys, Transit, Path]) -> Iterator[tuple[DataKeys, Transit]]:
    keys = DataKeys(server[0])
    yield keys, server[1]
    keys.stop()


def test_a_stock_is_filled_beside_and_taken_at_once(stock: tuple[DataKeys, Transit]) -> None:
    keys, transit = stock
    with pytest.raises(KeyUnavailable, match="no data key of 'orders' yet"):
        keys.take("orders")
    eventually(lambda: keys.spare >= STOCK_MIN)
    transit.down = True
    taken = [keys.take("orders") for _ in range(keys.spare)]
    assert len({key.secret for key in taken}) == len(taken)
    assert keys.secret_of(taken[0].wrapped) == taken[0].secret
    assert taken[0].secret.hex() not in repr(taken[0])
    with pytest.raises(KeyUnavailable):
        keys.take("orders")
    eventually(lambda: keys.failures > 0)
    with pytest.raises(KeyUnavailable, match="Vault is sealed"):
        keys.take("orders")


def test_the_stock_comes_back_with_the_provider(
    stock: tuple[DataKeys, Transit], monkeypatch: pytest.MonkeyPatch
) -> None:
    keys, transit = stock
    monkeypatch.setattr(data_keys, "RETRY_S", 0.01)
    transit.down = True
    with pytest.raises(KeyUnavailable):
        keys.take("orders")
    eventually(lambda: keys.failures > 0)
    transit.down = False

    def taken() -> bool:
        try:
            keys.take("orders")
        except KeyUnavailable:
            return False
        return True

    eventually(taken)


def test_a_stored_key_is_asked_for_beside(
    stock: tuple[DataKeys, Transit], server: tuple[VaultKeys, Transit, Path]
) -> None:
    keys, transit = stock
    wrapped = server[0].wrap("orders", [b"a" * 32, b"b" * 32])
    with pytest.raises(KeyUnavailable, match="is being asked for"):
        keys.secret_of(wrapped[0])

    def found() -> bool:
        try:
            return keys.secret_of(wrapped[0]) == b"a" * 32
        except KeyUnavailable:
            return False

    eventually(found)
    keys.prefetch(wrapped)
    transit.down = True
    assert keys.secret_of(wrapped[1]) == b"b" * 32


def test_what_was_made_by_an_older_version_is_not_used(stock: tuple[DataKeys, Transit]) -> None:
    keys, _ = stock
    keys.fill("orders")
    assert keys.provider is not None
    latest = keys.provider.new_version("orders")
    keys.use_latest("orders", latest)
    assert keys.spare == 0
    keys.fill("orders")
    assert keys.take("orders").wrapped.version == latest
