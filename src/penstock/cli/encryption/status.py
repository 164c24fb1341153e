"""`penstock encryption status`: which keys a node's data needs, and whether they can be had."""

from __future__ import annotations

from collections import Counter

from penstock.cli.encryption.folder import (
    ConfigFile,
    DataDir,
    Settings,
    keys_of,
    node_config,
    partition_dirs,
)
from penstock.cli.options import Format, OutputFormat
from penstock.cli.output import print_json, print_table, remark
from penstock.keys.data_keys import DataKeys
from penstock.keys.provider import KeyUnavailable, WrappedKey
from penstock.log.rewrapping import key_files

EXIT_UNAVAILABLE = 3
_GOOD = ("not asked", "newest", "older")


def status(
    config: ConfigFile = None,
    settings: Settings = None,
    data_dir: DataDir = None,
    output_format: OutputFormat = Format.TEXT,
) -> int:
    """Show which versions of which keys a node's data needs; exit code 3 when one of them cannot
    be had.

    Reads key files only, and may be asked while the node runs. Without a provider in the settings
    it does not ask whether keys can be had.
    """
    node = node_config(config, settings, data_dir)
    keys = keys_of(node) if node.penstock_encryption_provider else None
    counts: Counter[tuple[str, int]] = Counter()
    one_of: dict[tuple[str, int], WrappedKey] = {}
    for found in key_files(partition_dirs(node.data_dir)):
        key_id, version, _ = wrapped = found.key_file.wrapped
        counts[key_id, version] += 1
        one_of[key_id, version] = wrapped
    rows = [
        {
            "key": key_id,
            "version": version,
            "files": counts[key_id, version],
            "state": _state(keys, one_of[key_id, version]),
        }
        for key_id, version in sorted(counts)
    ]
    if output_format is Format.JSON:
        print_json(rows)
    elif rows:
        print_table(("key", "version", "files", "state"), [list(row.values()) for row in rows])
    else:
        remark(f"nothing in {node.data_dir} is encrypted")
    return 0 if all(row["state"] in _GOOD for row in rows) else EXIT_UNAVAILABLE


def _state(keys: DataKeys | None, key: WrappedKey) -> str:
    if keys is None:
        return "not asked"
    [found] = keys.unwrap_all([key])
    if isinstance(found, KeyUnavailable):
        return f"cannot be had: {found}"
    return "newest" if keys.latest_version(key.key_id) == key.version else "older"
