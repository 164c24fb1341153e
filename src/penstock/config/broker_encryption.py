"""The broker settings of encryption at rest: where the keys are that data keys are wrapped by."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from penstock.config.table import (
    ConfigError,
    Each,
    Importance,
    SettingType,
    at_least,
    setting,
)

FILE: Final = "file"
ENVIRONMENT: Final = "environment"
VAULT: Final = "vault"


@dataclass(frozen=True)
class EncryptionSettings:
    penstock_encryption_provider: str = setting(
        SettingType.STRING,
        "",
        "Where this node has the keys of `penstock.encryption.key.id`: `file` "
        "(`penstock.encryption.file`), `environment` (the variable `PENSTOCK_ENCRYPTION_KEYS`), "
        "`vault` (the transit engine of HashiCorp Vault), or the name of a package's entry point "
        "in `penstock.key_providers`. Empty: nothing can be encrypted, and nothing that is "
        "encrypted can be read.",
        importance=Importance.HIGH,
    )
    penstock_encryption_file: str | None = setting(
        SettingType.STRING,
        None,
        "The file with the keys, in lines `ID:VERSION=KEY` with 32 bytes as base64, for its owner "
        "alone to read. It is read again when it has changed. `penstock encryption new-key` adds "
        "to it.",
    )
    penstock_encryption_vault_address: str | None = setting(
        SettingType.STRING,
        None,
        "The URL of Vault, with https:; by http: only this machine is asked, such as an agent.",
    )
    penstock_encryption_vault_mount: str = setting(
        SettingType.STRING,
        "transit",
        "Where the transit engine is mounted.",
        importance=Importance.LOW,
    )
    penstock_encryption_vault_namespace: str = setting(
        SettingType.STRING,
        "",
        "The namespace of Vault, where it has any.",
        importance=Importance.LOW,
    )
    penstock_encryption_vault_token_file: str | None = setting(
        SettingType.STRING,
        None,
        "The file with the token for Vault, read anew for each call. Without it, the environment "
        "variable `VAULT_TOKEN` has the token.",
    )
    penstock_encryption_vault_ca_location: str | None = setting(
        SettingType.STRING,
        None,
        "A PEM file with the authority that has signed Vault's certificate; those that the machine "
        "trusts where it is not set.",
    )
    penstock_encryption_options: tuple[str, ...] = setting(
        SettingType.LIST,
        (),
        "What a provider of another package is told, as a list of NAME=VALUE; no secrets, since "
        "everybody who may see the settings sees it.",
        rule=Each(r"[^=]+=.*", "of NAME=VALUE"),
        importance=Importance.LOW,
    )
    penstock_encryption_rewrap_interval_ms: int = setting(
        SettingType.LONG,
        3_600_000,
        "How often the node looks whether its keys have a newer version, and wraps the data keys "
        "that an older one has wrapped anew, which is all that a rotation takes; 0 for never.",
        rule=at_least(0),
    )


def check_encryption(config: EncryptionSettings, key_id: str) -> None:
    """`ConfigError` unless the provider has what it needs."""
    provider = config.penstock_encryption_provider
    if key_id and not provider:
        raise ConfigError(
            f"penstock.encryption.key.id is {key_id!r}, and there are no keys: set "
            "penstock.encryption.provider"
        )
    if provider == FILE and not config.penstock_encryption_file:
        raise ConfigError(
            "penstock.encryption.provider is file: set penstock.encryption.file to the file with "
            "the keys"
        )
    if provider == VAULT and not config.penstock_encryption_vault_address:
        raise ConfigError(
            "penstock.encryption.provider is vault: set penstock.encryption.vault.address"
        )
