"""`penstock encryption rewrap`: have data keys wrapped by the newest versions of their keys."""

from __future__ import annotations

import os

from penstock.base.errors import PenstockError
from penstock.cli.encryption.folder import (
    ConfigFile,
    DataDir,
    Settings,
    keys_of,
    node_config,
    partition_dirs,
)
from penstock.cli.errors import CliError
from penstock.cli.options import Format, OutputFormat
from penstock.cli.output import plural, print_json, progress
from penstock.log.manager import lock_data_dir
from penstock.log.rewrapping import AT_ONCE, outdated, prepare, put, sync


def rewrap(
    config: ConfigFile = None,
    settings: Settings = None,
    data_dir: DataDir = None,
    output_format: OutputFormat = Format.TEXT,
) -> None:
    """Have all data keys of a stopped node wrapped by the newest versions; the data stays as it is.
    A running node does so by itself.

    Only key files are written. When no node needs an older version any more (`penstock encryption
    status`), it can be given up.
    """
    node = node_config(config, settings, data_dir)
    keys, directories = keys_of(node), partition_dirs(node.data_dir)
    try:
        lock = lock_data_dir(node.data_dir)
        try:
            found = outdated(directories, keys)
            done = 0
            with progress("key files", len(found)) as seen:
                for at in range(0, len(found), AT_ONCE):
                    prepared = prepare(found[at : at + AT_ONCE], keys)
                    replaced = [each for each in prepared if put(each)]
                    sync(replaced)
                    done += len(replaced)
                    seen.advance(len(prepared))
        finally:
            os.close(lock)
    except (PenstockError, OSError) as e:
        raise CliError(f"data keys could not be wrapped anew: {e}") from None
    if output_format is Format.JSON:
        print_json({"rewrapped": done})
    else:
        print(f"wrapped the data keys of {plural(done, 'file')} anew")
