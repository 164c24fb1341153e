"""Tables of the three formats: commits, conflicts, replacing, and deaths in the middle."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.spark.errors import OptionError, SparkError
from penstock.spark.lake import files, parquet_table
from penstock.spark.lake.staging import clear_leftovers
from penstock.spark.lake.table import FORMATS, Conflict, Span, Staged, State, Table, open_table
from support.lake import (
    DAY,
    batch_of,
    commit_batch,
    data_files,
    offsets_read,
    offsets_seen,
    rows_of,
    seen_by_others,
)


@pytest.fixture(params=FORMATS)
def table(request: pytest.FixtureRequest, tmp_path: Path) -> Table:
    return open_table(str(tmp_path / "table"), request.param)


@pytest.fixture
def plain(tmp_path: Path) -> Table:
    return open_table(str(tmp_path / "table"), "parquet")


class Died(Exception):
    pass


def add(table: Table, number: int, first: int, count: int = 3, hour: int = 5) -> None:
    offsets = range(first, first + count)
    commit_batch(table, "q", number, batch_of(table, (rows_of("t", 0, offsets, hour), hour)))


def replace_all(table: Table) -> None:
    change = replacing_all(table)
    change()


def replacing_all(table: Table) -> Callable[[], None]:
    """All that comes before the commit is done; the commit is made by whoever calls."""
    base = table.load()
    new = batch_of(table, (rows_of("t", 0, offsets_read(table), 5), 5))
    return lambda: table.commit(base, base.state, new.files, base.files)


def test_what_was_committed_is_read_by_us_and_by_others(table: Table) -> None:
    assert not table.exists()
    assert table.load().number == -1
    add(table, 0, 0)
    add(table, 1, 3, hour=6)
    again = open_table(str(table.local))
    version = again.load()
    assert again.FORMAT == table.FORMAT
    assert offsets_read(again) == list(range(6))
    assert sorted((f.date, f.hour, f.rows) for f in version.files) == [
        (str(DAY), 5, 3),
        (str(DAY), 6, 3),
    ]
    assert version.state.queries == {"q": 1}
    assert again.last_batch(version, "q") == 1
    assert again.last_batch(version, "other") == -1
    assert version.state.span(("t", 0)) == Span(0, 6)
    seen = seen_by_others(table)
    assert [row["offset"] for row in seen] == list(range(6))
    assert {(row["date"], row["hour"]) for row in seen} == {(DAY, 5), (DAY, 6)}
    assert seen[0]["headers"] == [{"key": "a", "value": b"1"}]
    assert seen[0]["key"] is None


def test_a_commit_upon_an_older_version_is_refused(table: Table) -> None:
    add(table, 0, 0)
    base = table.load()
    add(table, 1, 3)
    late = batch_of(table, (rows_of("u", 0, [0], 5), 5))
    with pytest.raises(Conflict):
        table.commit(base, State({"p": 0}, {}, "columns"), late.files, ())
    assert offsets_read(table) == offsets_seen(table)[:6] == list(range(6)), "as it was"
    assert table.load().state.queries == {"q": 1}


@pytest.mark.parametrize(("kind", "opens"), [("delta", "_open"), ("iceberg", "_open_or_create")])
def test_a_commit_that_comes_in_between_is_not_built_upon(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, opens: str
) -> None:
    """The libraries would repeat a refused commit upon the newer version by themselves."""
    table, other = (open_table(str(tmp_path / "table"), kind) for _ in range(2))
    add(table, 0, 0)
    base = table.load()
    late = batch_of(table, (rows_of("u", 0, [0], 5), 5))
    opened = getattr(table, opens)

    def open_and_be_outrun(*arguments: Path) -> object:
        found = opened(*arguments)
        add(other, 1, 3)
        return found

    monkeypatch.setattr(table, opens, open_and_be_outrun)
    with pytest.raises(Conflict):
        table.commit(base, State({"p": 0}, {}, "columns"), late.files, ())
    assert offsets_read(other) == list(range(6))
    assert other.load().state.queries == {"q": 1}


def test_files_are_replaced_in_one_commit(table: Table) -> None:
    for number in range(4):
        add(table, number, 3 * number)
    replace_all(table)
    assert len(table.load().files) == 1
    assert offsets_read(table) == offsets_seen(table) == list(range(12))
    assert table.load().state.queries == {"q": 3}
    add(table, 4, 12)
    assert offsets_read(table) == offsets_seen(table) == list(range(15))


def test_rows_do_not_come_in_twice_by_another_checkpoint(table: Table) -> None:
    add(table, 0, 0)
    batch = batch_of(table, (rows_of("t", 0, [2], 5), 5))
    with pytest.raises(SparkError, match=r"topic t partition 0 up to offset 2.*brings offset 2"):
        commit_batch(table, "another", 0, batch)
    assert offsets_read(table) == [0, 1, 2]


def test_other_columns_need_another_table() -> None:
    state = State().with_batch("q", 0, {}, "a")
    with pytest.raises(SparkError, match="other columns"):
        state.with_batch("q", 1, {}, "b")


def test_a_folder_holds_one_table_of_one_format(plain: Table, tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="there is no table in"):
        open_table(str(tmp_path / "nowhere"))
    with pytest.raises(OptionError, match="parquet or delta or iceberg, not 'csv'"):
        open_table(str(plain.local), "csv")
    add(plain, 0, 0)
    with pytest.raises(OptionError, match="has the format parquet, not delta"):
        open_table(str(plain.local), "delta")


def test_dying_at_each_move_of_a_batch(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    add(table, 0, 0)
    parts = [(rows_of("t", 0, [3 + n], 5), 5) for n in range(3)]
    for moves in range(4):
        base = table.load()
        with monkeypatch.context() as patch:
            _die_after(patch, moves)
            batch = batch_of(table, *parts)
            with pytest.raises(Died):
                commit_batch(table, "q", 1, batch, base)
        found = open_table(str(table.local))
        if table.last_batch(found.load(), "q") == 1:  # a log of our own comes before the moves
            break
        assert offsets_read(found) == [0, 1, 2]
    else:
        commit_batch(found, "q", 1, batch_of(found, *parts))
    assert offsets_read(found) == list(range(6))
    assert offsets_seen(found) == list(range(6))


def _die_after(patch: pytest.MonkeyPatch, moves: int) -> None:
    """The process dies after so many files were moved to their places."""

    def publish(folder: Path, staged: list[Staged]) -> None:
        files.publish(folder, staged[:moves])
        raise Died

    for module in ("parquet_table", "delta_table", "iceberg_table"):
        patch.setattr(f"penstock.spark.lake.{module}.publish", publish)


@pytest.mark.parametrize("moves", [0, 1, 2])
def test_a_batch_that_died_is_completed_by_whoever_opens_the_table(
    plain: Table, monkeypatch: pytest.MonkeyPatch, moves: int
) -> None:
    add(plain, 0, 0)
    base = plain.load()
    with monkeypatch.context() as patch:
        _die_after(patch, moves)
        batch = batch_of(plain, (rows_of("t", 0, [3], 5), 5), (rows_of("t", 0, [4], 6), 6))
        with pytest.raises(Died):
            commit_batch(plain, "q", 1, batch, base)
    assert len(offsets_seen(plain)) == 3 + moves, "others see a part, and nothing twice"
    assert offsets_read(open_table(str(plain.local))) == list(range(5))
    assert offsets_seen(plain) == list(range(5))


@pytest.mark.parametrize("point", ["before the old go", "before the new come"])
def test_a_compaction_that_died_shows_no_row_twice(
    plain: Table, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    for number in range(3):
        add(plain, number, 3 * number)
    change = replacing_all(plain)
    with monkeypatch.context() as patch:
        if point == "before the old go":
            patch.setattr(parquet_table, "remove", _die)
        else:
            _die_after(patch, 0)
        with pytest.raises(Died):
            change()
    seen = offsets_seen(plain)
    assert len(seen) == len(set(seen))
    assert offsets_read(open_table(str(plain.local))) == list(range(9))
    assert offsets_seen(plain) == list(range(9))


def _die(*_: object) -> None:
    raise Died


def test_the_log_names_all_files_now_and_then_and_forgets(
    plain: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parquet_table, "ENTRIES_PER_LIST", 4)
    for number in range(7):
        add(plain, number, 3 * number)
    replace_all(plain)
    for number in range(7, 9):
        add(plain, number, 3 * number)
    entries = sorted(path.name for path in (plain.local / "_penstock" / "log").iterdir())
    assert [int(name[:-5]) for name in entries] == [8, 9]
    assert offsets_read(plain) == offsets_seen(plain) == list(range(27))
    assert plain.load().number == 9


def test_what_tries_left_is_removed_in_time(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    add(table, 0, 0)
    with monkeypatch.context() as patch:
        patch.setattr(type(table), "commit", _die)
        lost = batch_of(table, (rows_of("t", 0, [3], 5), 5))
        with pytest.raises(Died):
            commit_batch(table, "q", 1, lost)
    if table.FORMAT != "parquet":
        files.publish(table.local, lost.files)
    clear_leftovers(table)
    assert lost.folder.exists(), "its driver may still live"
    clear_leftovers(table, older_than_s=-1)
    assert not lost.folder.exists()
    assert len(data_files(table.local)) == 1
    assert offsets_read(table) == [0, 1, 2]
