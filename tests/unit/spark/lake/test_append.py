"""Commits of batches that others outrun, or have made before."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from penstock.spark.errors import SparkError
from penstock.spark.lake import append
from penstock.spark.lake.append import append_batch, commit_once
from penstock.spark.lake.table import FORMATS, Table, Version, open_table
from support.lake import batch_of, data_files, offsets_read, offsets_seen, rows_of


@pytest.fixture(params=FORMATS)
def table(request: pytest.FixtureRequest, tmp_path: Path) -> Table:
    return open_table(str(tmp_path / "table"), request.param)


def test_of_two_tries_of_a_batch_one_is_committed(table: Table) -> None:
    tries = [batch_of(table, (rows_of("t", 0, [0, 1], 5), 5)) for _ in range(2)]
    assert [commit_once(table, each, "q", 0) for each in tries] == [True, False]
    tries[0].forget()
    tries[1].withdraw(table)
    assert offsets_read(table) == offsets_seen(table) == [0, 1]
    assert len(data_files(table.local)) == 1


def test_a_commit_that_was_outrun_is_made_again(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert commit_once(table, batch_of(table, (rows_of("t", 0, [0], 5), 5)), "q", 0)
    old = table.load()
    assert commit_once(table, batch_of(table, (rows_of("u", 0, [7], 5), 5)), "p", 0)
    load, seen = table.load, [old]

    def stale_at_first() -> Version:
        return seen.pop() if seen else load()

    monkeypatch.setattr(table, "load", stale_at_first)
    assert commit_once(table, batch_of(table, (rows_of("t", 0, [1], 5), 5)), "q", 1)
    assert offsets_read(table) == [0, 1, 7]
    assert table.load().state.queries == {"q": 1, "p": 0}


def test_a_table_that_others_change_all_the_time_is_given_up(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert commit_once(table, batch_of(table, (rows_of("t", 0, [0], 5), 5)), "q", 0)
    old = table.load()
    assert commit_once(table, batch_of(table, (rows_of("t", 0, [1], 5), 5)), "q", 1)
    late = batch_of(table, (rows_of("u", 0, [0], 5), 5))
    with monkeypatch.context() as patch:
        patch.setattr(table, "load", lambda: old)
        with pytest.raises(SparkError, match="others commit to the table without a pause"):
            commit_once(table, late, "p", 0)
    assert offsets_read(table) == [0, 1]


def test_a_number_that_was_used_for_other_rows_is_refused(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert commit_once(table, batch_of(table, (rows_of("t", 0, [0, 1], 5), 5)), "q", 3)
    repeated: Any = object()
    monkeypatch.setattr(append, "last_offsets", lambda _: {("t", 0): 1})
    assert not append_batch(table, repeated, 3, "q")
    for lasts in ({("t", 0): 2}, {("t", 0): 1, ("t", 1): 0}):
        monkeypatch.setattr(append, "last_offsets", lambda _, lasts=lasts: lasts)
        with pytest.raises(SparkError, match="the checkpoint is older than the table"):
            append_batch(table, repeated, 3, "q")
