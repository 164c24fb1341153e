"""Folders on object stores: `s3://`, `gs://` and `abfs://`, by pyarrow's file systems.

A `Remote` takes the place of a `Path` where tables look at their files. Who may do what is told as
the stores' own tools are told, by the environment or the machine's role:

    s3://BUCKET/FOLDER      AWS_ACCESS_KEY_ID and so on; AWS_ENDPOINT_URL for servers that speak S3
    gs://BUCKET/FOLDER      GOOGLE_APPLICATION_CREDENTIALS; STORAGE_EMULATOR_HOST for an emulator
    abfs://CONTAINER@ACCOUNT.dfs.core.windows.net/FOLDER      AZURE_STORAGE_ACCOUNT_KEY, or what
                            DefaultAzureCredential finds

A `Remote` travels to Spark's workers with its address and endpoint, and without keys: workers find
those as the driver does.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias
from urllib.parse import urlsplit

from penstock.spark.errors import OptionError

if TYPE_CHECKING:
    from pyarrow.fs import FileInfo, FileSystem

Place: TypeAlias = "Path | Remote"
"""Where a table or one of its files is."""
SCHEMES: Final = {"s3": "s3", "s3a": "s3", "gs": "gs", "abfs": "abfs", "abfss": "abfs"}
"""What addresses may begin with, and which store that is."""


@dataclass(frozen=True)
class Remote:
    """A folder or a file on an object store."""

    address: str
    endpoint: str | None = None

    @property
    def store(self) -> str:
        return SCHEMES[urlsplit(self.address).scheme]

    @property
    def path(self) -> str:
        """As pyarrow's file systems want it: the bucket or container, and the names below it."""
        parts = urlsplit(self.address)
        return f"{parts.netloc.partition('@')[0]}{parts.path}".rstrip("/")

    @property
    def files(self) -> FileSystem:
        return _MAKERS[self.store](self)

    @property
    def options(self) -> dict[str, str]:
        """What Delta's library is told beside the environment."""
        if self.endpoint is None:
            return {}
        if self.store == "gs":
            return {"google_base_url": self.endpoint, "google_skip_signature": "true"}
        allowed = {"allow_http": "true"} if self.endpoint.startswith("http://") else {}
        return {"aws_endpoint_url": self.endpoint, **allowed} if self.store == "s3" else {}

    def __truediv__(self, name: str) -> Remote:
        return Remote(f"{self.address.rstrip('/')}/{name}", self.endpoint)

    def __str__(self) -> str:
        return self.address

    def info(self) -> FileInfo:
        try:
            return self.files.get_file_info(self.path)
        except OSError as e:
            raise OptionError(
                f"{self.address} cannot be reached: {e}; see that the address is right, and that"
                " the environment has the store's keys"
            ) from None

    def is_dir(self) -> bool:
        from pyarrow.fs import FileType

        return bool(self.info().type == FileType.Directory)

    def check_writable(self) -> None:
        """Refuses a bucket that is not there; whether it can be written to shows when it is."""
        from pyarrow.fs import FileType

        bucket = self.path.partition("/")[0]
        parts = urlsplit(self.address)
        top = Remote(f"{parts.scheme}://{parts.netloc}", self.endpoint)
        if top.info().type == FileType.NotFound:
            raise OptionError(f"there is no bucket {bucket} for {self.address}: make it first")

    def unlink(self) -> None:
        try:
            self.files.delete_file(self.path)
        except FileNotFoundError:
            return


def _s3(place: Remote) -> FileSystem:
    from pyarrow.fs import S3FileSystem

    found: dict[str, Any] = {}
    if place.endpoint is not None:
        scheme, _, host = place.endpoint.partition("://")
        found = {"endpoint_override": host, "scheme": scheme}
    region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    return S3FileSystem(**found, **({"region": region} if region else {}))


def _gs(place: Remote) -> FileSystem:
    from pyarrow.fs import GcsFileSystem

    if place.endpoint is None:
        return GcsFileSystem()
    scheme, _, host = place.endpoint.partition("://")
    return GcsFileSystem(anonymous=True, endpoint_override=host, scheme=scheme)


def _abfs(place: Remote) -> FileSystem:
    from pyarrow.fs import AzureFileSystem

    account = urlsplit(place.address).netloc.partition("@")[2].partition(".")[0]
    return AzureFileSystem(account, account_key=os.environ.get("AZURE_STORAGE_ACCOUNT_KEY"))


_MAKERS: Final = {"s3": _s3, "gs": _gs, "abfs": _abfs}


def remote(address: str) -> Remote:
    """The folder that an address names."""
    parts = urlsplit(address)
    store = SCHEMES.get(parts.scheme)
    if store is None or not parts.netloc or not parts.path.strip("/"):
        raise OptionError(
            f"{address} is no place for a table: give a folder that the driver and all executors"
            " see, s3://BUCKET/FOLDER, gs://BUCKET/FOLDER, or"
            " abfs://CONTAINER@ACCOUNT.dfs.core.windows.net/FOLDER"
        )
    if store == "abfs" and "@" not in parts.netloc:
        raise OptionError(
            f"{address} names no account: write abfs://CONTAINER@ACCOUNT.dfs.core.windows.net/..."
        )
    scheme = parts.scheme if store == "abfs" else store  # s3a is Hadoop's name alone
    endpoints = {
        "s3": os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL"),
        "gs": os.environ.get("STORAGE_EMULATOR_HOST"),
    }
    return Remote(f"{scheme}://{parts.netloc}{parts.path.rstrip('/')}", endpoints.get(store))
