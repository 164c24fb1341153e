"""Tables on object stores: commits and conflicts on a server that speaks S3, and addresses."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pyiceberg.catalog
import pytest
from pyiceberg.utils.config import Config

from penstock.spark.errors import OptionError
from penstock.spark.lake.files import joined, modified_s, remove, spans
from penstock.spark.lake.remote import Remote, remote
from penstock.spark.lake.remote_rows import _write
from penstock.spark.lake.staging import Batch
from penstock.spark.lake.table import Conflict, DataFile, Span, Staged, Table, open_table
from support.lake import DAY, commit_batch, rows_of
from support.object_store import BUCKET, s3_server, use


@pytest.fixture(scope="module")
def server() -> Iterator[dict[str, str]]:
    with s3_server() as environment:
        yield environment


@pytest.fixture(params=["delta", "iceberg"])
def reopen(
    server: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
    tmp_path: Path,
) -> Callable[[], Table]:
    """Opens a table of the test's own; an Iceberg table by a catalog of pyiceberg's configuration,
    which is a file here.
    """
    use(server, monkeypatch)
    if request.param == "delta":
        name = request.node.originalname
        return lambda: open_table(f"s3://{BUCKET}/{name}/orders/", "delta")
    monkeypatch.setenv("PYICEBERG_CATALOG__OURS__TYPE", "sql")
    monkeypatch.setenv("PYICEBERG_CATALOG__OURS__URI", f"sqlite:///{tmp_path}/catalog.db")
    monkeypatch.setenv("PYICEBERG_CATALOG__OURS__WAREHOUSE", f"s3://{BUCKET}/{tmp_path.name}")
    monkeypatch.setattr(pyiceberg.catalog, "_ENV_CONFIG", Config())
    return lambda: open_table("lake.orders", "iceberg", "ours")


@pytest.fixture
def table(reopen: Callable[[], Table]) -> Table:
    return reopen()


def batch_of(table: Table, offsets: Sequence[int], *hours: int) -> Batch:
    """A batch as the tasks of an archive leave it."""
    parts = []
    for hour in hours:
        rows = rows_of("t", 0, offsets, hour)
        count = rows.num_rows
        rows = rows.append_column("date", pa.array([DAY] * count, pa.date32()))
        parts += rows.append_column("hour", pa.array([hour] * count, pa.int32())).to_batches()
    table.prepare(lambda: parts[0].schema)
    assert isinstance(table.folder, Remote)
    keep = table.KEEPS_PARTITION_COLUMNS
    files = [DataFile(**made) for made in _write(table.folder, iter(parts), "q", keep)]
    held = joined(spans(table.folder / file.path) for file in files)
    return Batch(None, tuple(Staged(file, file.path) for file in files), held, "columns")


def offsets_of(table: Table) -> list[int]:
    found: list[int] = []
    for file in table.load().files:
        place = table.folder / file.path
        assert isinstance(place, Remote)
        rows = pq.read_table(place.path, columns=["offset"], filesystem=place.files)
        found += rows["offset"].to_pylist()
    return sorted(found)


def test_commits_on_s3(table: Table, reopen: Callable[[], Table]) -> None:
    assert not table.exists()
    table.check_writable()
    commit_batch(table, "q", 0, batch_of(table, [0, 1], 5))
    commit_batch(table, "q", 1, batch_of(table, [2, 3], 6))
    again = reopen()
    version = again.load()
    assert again.FORMAT == table.FORMAT
    assert version.state.span(("t", 0)) == Span(0, 4)
    assert again.last_batch(version, "q") == 1
    assert [(f.date, f.hour, f.rows) for f in sorted(version.files, key=lambda f: f.hour)] == [
        (str(DAY), 5, 2),
        (str(DAY), 6, 2),
    ]
    assert offsets_of(again) == [0, 1, 2, 3]
    assert modified_s(again.folder / version.files[0].path) > 1_700_000_000


def test_of_two_commits_upon_one_version_the_second_is_refused(table: Table) -> None:
    commit_batch(table, "q", 0, batch_of(table, [0], 5))
    base = table.load()
    commit_batch(table, "q", 1, batch_of(table, [1], 5), base)
    late = batch_of(table, [2], 5)
    with pytest.raises(Conflict):
        commit_batch(table, "p", 0, late, base)
    late.withdraw(table)
    assert offsets_of(table) == [0, 1]
    remove([table.folder / late.files[0].file.path])  # once more is no error


def test_a_task_writes_a_file_for_each_hour(table: Table) -> None:
    batch = batch_of(table, [0, 1, 2], 5, 6)
    assert [(each.file.hour, each.file.rows) for each in batch.files] == [(5, 3), (6, 3)]


def test_what_is_no_place_for_a_table(
    server: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    use(server, monkeypatch)
    for address in ("http://host/lake", "s3://bucket", "gs:///lake"):
        with pytest.raises(OptionError, match="is no place for a table"):
            open_table(address, "delta")
    with pytest.raises(OptionError, match="names no account"):
        open_table("abfs://container/lake", "delta")
    with pytest.raises(OptionError, match="tables on object stores have the format delta"):
        open_table(f"s3a://{BUCKET}/lake", "parquet")
    with pytest.raises(OptionError, match="there is no bucket nowhere"):
        open_table("s3://nowhere/lake", "delta").check_writable()


def test_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9000")
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", "http://127.0.0.1:9001")
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", "c2VjcmV0")
    found = remote("s3a://bucket/a/b/")
    assert (str(found), found.path) == ("s3://bucket/a/b", "bucket/a/b")
    assert found.options == {"aws_endpoint_url": "http://127.0.0.1:9000", "allow_http": "true"}
    assert found.files.type_name == "s3"
    assert str(found / "c") == "s3://bucket/a/b/c"
    found = remote("gs://bucket/a")
    assert found.options["google_base_url"] == "http://127.0.0.1:9001"
    assert (found.path, found.files.type_name) == ("bucket/a", "gcs")
    found = remote("abfss://container@account.dfs.core.windows.net/a")
    assert (found.path, found.files.type_name) == ("container/a", "abfs")
    assert b"c2VjcmV0" not in pickle.dumps(found), "no key travels to the workers"
