"""Finds the pipeline that is meant: a project folder, a file, or the name of a ready one.

A project folder has a `pipeline.toml`,

    [pipeline]
    name = "words"          # of its state folder; the folder's name without it
    file = "pipeline.py"    # the default

    [settings]              # as --set gives them, which comes above
    topic = "sentences"

    [spark]                 # Spark configuration, as --conf gives it
    "spark.sql.shuffle.partitions" = 4

or the `spark-pipeline.yml` of Spark Declarative Pipelines, or just a `pipeline.py`. Reads files and
starts nothing.
"""

from __future__ import annotations

import difflib
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from penstock.spark.pipeline.errors import PipelineError
from penstock.spark.pipeline.settings import as_text

TOML = "pipeline.toml"
PYTHON = "pipeline.py"
SPECS = ("spark-pipeline.yml", "spark-pipeline.yaml")
READY_FOLDER = Path(__file__).resolve().parent.parent / "ready"
_TABLES = {"pipeline": ("name", "file"), "settings": None, "spark": None}


@dataclass(frozen=True)
class Project:
    """A pipeline and what its folder says about it."""

    name: str
    file: Path
    is_declarative: bool = False
    settings: dict[str, str] = field(default_factory=dict)
    spark: dict[str, str] = field(default_factory=dict)


def ready_pipelines() -> dict[str, Path]:
    """The pipelines that come along, by the names of their commands."""
    files = sorted(READY_FOLDER.glob("[a-z]*.py"))
    return {path.stem.replace("_", "-"): path for path in files}


def find(target: str) -> Project:
    """The pipeline that `target` names."""
    path = Path(target)
    if path.is_dir():
        return _in_folder(path.resolve())
    if path.is_file():
        path = path.resolve()
        if path.name == TOML or path.name in SPECS:
            return _in_folder(path.parent)
        if path.suffix != ".py":
            raise PipelineError(
                f"{target} is no pipeline: give a folder, a Python file, a {TOML} or a {SPECS[0]}"
            )
        return Project(path.stem, path)
    ready = ready_pipelines()
    name = target.replace("_", "-")
    if name in ready:
        return Project(name, ready[name])
    close = difflib.get_close_matches(name, ready, n=1, cutoff=0.6)
    hint = f" (did you mean {close[0]}?)" if close else ""
    raise PipelineError(
        f"there is no file or folder {target} and no ready pipeline of that name{hint}:"
        f" {', '.join(ready)} are ready, `penstock pipeline new` makes a folder"
    )


def _in_folder(folder: Path) -> Project:
    if (folder / TOML).exists():
        return _from_toml(folder / TOML)
    for name in SPECS:
        if (folder / name).exists():
            return Project(folder.name, folder / name, is_declarative=True)
    if (folder / PYTHON).exists():
        return Project(folder.name, folder / PYTHON)
    raise PipelineError(
        f"{folder} holds no pipeline: there is neither {TOML} nor {SPECS[0]} nor {PYTHON}"
    )


def _from_toml(path: Path) -> Project:
    try:
        tables = tomllib.loads(path.read_text())
    except tomllib.TOMLDecodeError as e:
        raise PipelineError(f"{path} is not TOML: {e}") from None
    _check(path, tables)
    own = tables.get("pipeline", {})
    file = path.parent / str(own.get("file", PYTHON))
    if not file.is_file():
        raise PipelineError(f"{path} names the file {file.name}, which is not there")
    return Project(
        name=str(own.get("name", path.parent.name)),
        file=file,
        is_declarative=file.name in SPECS,
        settings=_texts(tables.get("settings", {})),
        spark=_texts(tables.get("spark", {})),
    )


def _check(path: Path, tables: dict[str, Any]) -> None:
    for name, content in tables.items():
        if name not in _TABLES or not isinstance(content, dict):
            raise PipelineError(
                f"{path}: [{name}] is not known: there are [{'], ['.join(_TABLES)}]"
            )
        allowed = _TABLES[name]
        unknown = sorted(set(content) - set(allowed)) if allowed else []
        if unknown:
            raise PipelineError(
                f"{path}: [{name}] has {unknown[0]}: it may have {', '.join(allowed or ())}"
            )


def _texts(table: dict[str, Any], prefix: str = "") -> dict[str, str]:
    """Values as texts; a table within stands for a name with a dot, as TOML reads `a.b = 1`."""
    found: dict[str, str] = {}
    for name, value in table.items():
        if isinstance(value, dict):
            found |= _texts(value, f"{prefix}{name}.")
        else:
            found[prefix + name] = as_text(value)
    return found
