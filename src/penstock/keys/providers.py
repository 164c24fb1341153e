"""Which provider a node's settings name, and how it is made."""

from __future__ import annotations

from importlib.metadata import entry_points
from typing import Final

from penstock.config.broker_encryption import ENVIRONMENT, FILE, VAULT, EncryptionSettings
from penstock.config.table import ConfigError
from penstock.keys.data_keys import DataKeys
from penstock.keys.local import EnvironmentKeys, FileKeys
from penstock.keys.provider import KeyProvider
from penstock.keys.vault import VaultKeys

ENTRY_POINTS: Final = "penstock.key_providers"
"""Each is called with a mapping of `penstock.encryption.options` and returns a `KeyProvider`."""


def data_keys(config: EncryptionSettings) -> DataKeys:
    """The keys of a node with these settings; `ConfigError` or `KeyUnavailable` if there can be
    none.
    """
    return DataKeys(provider_of(config))


def provider_of(config: EncryptionSettings) -> KeyProvider | None:
    """None where the settings name no provider."""
    name = config.penstock_encryption_provider
    if not name:
        return None
    if name == FILE:
        return FileKeys(config.penstock_encryption_file or "")
    if name == ENVIRONMENT:
        return EnvironmentKeys()
    if name == VAULT:
        return VaultKeys(
            config.penstock_encryption_vault_address or "",
            mount=config.penstock_encryption_vault_mount,
            namespace=config.penstock_encryption_vault_namespace,
            token_file=config.penstock_encryption_vault_token_file,
            ca_location=config.penstock_encryption_vault_ca_location,
        )
    return _of_package(name, config)


def _of_package(name: str, config: EncryptionSettings) -> KeyProvider:
    found = [point for point in entry_points(group=ENTRY_POINTS) if point.name == name]
    if not found:
        raise ConfigError(
            f"penstock.encryption.provider cannot be {name!r}: it must be one of {FILE}, "
            f"{ENVIRONMENT}, {VAULT}, or the name of an installed package's entry point in "
            f"{ENTRY_POINTS}"
        )
    options = dict(pair.split("=", 1) for pair in config.penstock_encryption_options)
    provider: KeyProvider = found[0].load()(options)
    return provider
