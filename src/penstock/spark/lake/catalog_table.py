"""An Iceberg table of a catalog that others have, too: a REST catalog, or any that pyiceberg knows.

The catalog is named by the address of a REST catalog, or by its name in pyiceberg's own
configuration (`~/.pyiceberg.yaml`, or PYICEBERG_CATALOG__NAME__URI and so on); the table by
NAMESPACE.TABLE. The catalog says where the table lies: in a folder, or on an object store
(`remote`). What an address alone does not say, as a token, is given as for a catalog of the name
penstock: PYICEBERG_CATALOG__PENSTOCK__TOKEN.

The table is made before the first files are written, since only then its place is known.

Limits: data files are written and read with the keys of the environment, not with those that a
catalog may hand out.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from penstock.spark.errors import OptionError
from penstock.spark.lake.files import in_utc
from penstock.spark.lake.iceberg_table import IcebergTable, plain
from penstock.spark.lake.remote import Place, Remote, remote

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

OWN_NAME: Final = "penstock"
"""The name of a catalog that is given by its address."""


class CatalogTable(IcebergTable):
    def __init__(self, catalog: str, name: str) -> None:
        if "." not in name:
            raise OptionError(f"a table of a catalog is named NAMESPACE.TABLE, not {name}")
        self._catalog_name, self._name = catalog, name
        super().__init__(Remote(f"iceberg://{name}"))  # until its place is known
        self._settle()

    def exists(self) -> bool:
        return bool(self._catalog.table_exists(self._name))

    def check_writable(self) -> None:
        if isinstance(self.folder, Remote) and self.exists():
            self.folder.check_writable()

    def prepare(self, columns: Callable[[], pa.Schema]) -> None:
        if not self.exists():
            fields = [field.with_nullable(True) for field in in_utc(columns())]
            self._create(pa.schema(fields), None)
        self._settle()

    def _settle(self) -> None:
        """Finds out where the table lies, if it is there."""
        try:
            if self.exists():
                self.folder = _place(self._catalog.load_table(self._name).location())
        except OSError as e:  # of which the errors of HTTP are
            raise OptionError(
                f"the catalog {self._catalog_name} cannot be asked for table {self._name}: {e}; see"
                " that its address is right, and that it runs"
            ) from None

    @cached_property
    def _catalog(self) -> Catalog:
        try:
            from pyiceberg.catalog import load_catalog
        except ImportError:
            raise OptionError(
                "a catalog needs the package pyiceberg: pip install 'penstock[spark,lake]'"
            ) from None
        given, name = self._catalog_name, OWN_NAME
        properties: dict[str, Any] = dict(_of_environment())
        if "://" in given:
            properties |= {"type": "rest", "uri": given}
        else:
            name = given
        try:
            return load_catalog(name, **properties)
        except ValueError as e:
            raise OptionError(f"pyiceberg knows no catalog {given}: {e}") from None


def _of_environment() -> dict[str, str]:
    """How pyiceberg finds the store that the rest of us finds by AWS's variables."""
    endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
    region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    found = {"s3.endpoint": endpoint, "s3.region": region}
    return {name: value for name, value in found.items() if value}


def _place(location: str) -> Place:
    path = plain(location).rstrip("/")
    return remote(path) if "://" in path else Path(path)
