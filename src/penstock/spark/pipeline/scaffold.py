"""Makes the folder of a new pipeline from templates, or from a ready pipeline.

The templates are files of this package that end in `.in`; `{{name}}` in them is the new name. A
folder that is there already is never written to.
"""

from __future__ import annotations

import json
from pathlib import Path

from penstock.spark.pipeline.errors import PipelineError
from penstock.spark.pipeline.project import PYTHON, TOML, find, ready_pipelines
from penstock.spark.pipeline.settings import CHECKPOINT
from penstock.spark.pipeline.signature import Kind, Setting, Value, signature_of
from penstock.spark.pipeline.state import Folder

TEMPLATES = Path(__file__).resolve().parent / "templates"
SUFFIX = ".in"
_EMPTY: dict[Kind, Value] = {
    Kind.STR: "",
    Kind.INT: 0,
    Kind.FLOAT: 0.0,
    Kind.BOOL: False,
    Kind.LIST: [],
}


def make(folder: Path, ready: str | None = None, *, is_declarative: bool = False) -> list[str]:
    """Makes the folder; returns the names of its files."""
    name = Folder(folder.resolve().name).name  # which checks it
    if folder.exists():
        raise PipelineError(f"{folder} is there already: take another name, or remove it")
    if ready is not None:
        files = _of_ready(name, ready)
    else:
        files = _of_template("declarative" if is_declarative else "plain", {"name": name})
    for path, text in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
    return sorted(files)


def _of_template(kind: str, words: dict[str, str]) -> dict[str, str]:
    place = TEMPLATES / kind
    found = {}
    for path in sorted(place.rglob(f"*{SUFFIX}")):
        text = path.read_text()
        for word, value in words.items():
            text = text.replace("{{" + word + "}}", value)
        found[str(path.relative_to(place)).removesuffix(SUFFIX)] = text
    return found


def _of_ready(name: str, ready: str) -> dict[str, str]:
    if ready.replace("_", "-") not in ready_pipelines():
        raise PipelineError(
            f"there is no ready pipeline {ready}: there are {', '.join(ready_pipelines())}"
        )
    project = find(ready)
    found = _of_template("ready", {"name": name, "ready": project.name})
    found[PYTHON] = project.file.read_text()
    settings = signature_of(project.file).settings
    lines = ["[pipeline]", f"name = {json.dumps(name)}", "", "[settings]"]
    found[TOML] = "\n".join([*lines, *map(_line, settings)]) + "\n"
    return found


def _line(setting: Setting) -> str:
    """A setting in TOML: to be filled in if it has no default, else as a remark."""
    value = _EMPTY[setting.kind] if setting.is_required else setting.default
    is_remark = not setting.is_required or setting.name == CHECKPOINT
    written = json.dumps("" if value is None else value, ensure_ascii=False)
    return f"{'# ' if is_remark else ''}{setting.name} = {written}  # {setting.text}"
