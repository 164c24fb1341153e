"""Which pipeline is meant by what a user types, and what `new` makes."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from penstock.spark.pipeline.errors import PipelineError
from penstock.spark.pipeline.project import Project, find, ready_pipelines
from penstock.spark.pipeline.scaffold import make
from penstock.spark.pipeline.settings import CHECKPOINT
from penstock.spark.pipeline.signature import signature_of

TOML = """
[pipeline]
name = "named"
file = "other.py"
[settings]
topic = "t"
once = true
kafka.security.protocol = "SSL"
[spark]
"spark.sql.shuffle.partitions" = 4
"""


def refused(target: Path | str) -> str:
    with pytest.raises(PipelineError) as error:
        find(str(target))
    return str(error.value)


def test_a_project_folder(tmp_path: Path) -> None:
    (tmp_path / "pipeline.toml").write_text(TOML)
    assert "names the file other.py, which is not there" in refused(tmp_path)
    (tmp_path / "other.py").write_text("")
    wanted = Project(
        "named",
        tmp_path / "other.py",
        settings={"topic": "t", "once": "true", "kafka.security.protocol": "SSL"},
        spark={"spark.sql.shuffle.partitions": "4"},
    )
    assert find(str(tmp_path)) == find(str(tmp_path / "pipeline.toml")) == wanted
    assert find(str(tmp_path / "other.py")) == Project("other", tmp_path / "other.py")


def test_a_declarative_project(tmp_path: Path) -> None:
    spec = tmp_path / "spark-pipeline.yml"
    spec.write_text("name: x\n")
    wanted = Project(tmp_path.name, spec, is_declarative=True)
    assert find(str(tmp_path)) == find(str(spec)) == wanted


def test_what_is_no_pipeline(tmp_path: Path) -> None:
    assert "holds no pipeline" in refused(tmp_path)
    (tmp_path / "notes.txt").write_text("")
    assert "is no pipeline: give a folder" in refused(tmp_path / "notes.txt")
    assert "no ready pipeline of that name (did you mean dedupe?)" in refused("dedup")
    (tmp_path / "pipeline.toml").write_text("[pipelines]\n")
    assert "[pipelines] is not known" in refused(tmp_path)
    (tmp_path / "pipeline.toml").write_text("[pipeline]\nfiel = 1\n")
    assert "[pipeline] has fiel: it may have name, file" in refused(tmp_path)
    (tmp_path / "pipeline.toml").write_text("[pipeline\n")
    assert "is not TOML" in refused(tmp_path)


def test_ready_pipelines_have_the_names_of_commands() -> None:
    found = find("route_errors")
    assert found == find("route-errors")
    assert found.name == "route-errors"


def test_a_new_project_is_whole(tmp_path: Path) -> None:
    files = make(tmp_path / "words")
    assert files == ["README.md", "pipeline.py", "pipeline.toml", "test_pipeline.py"]
    found = find(str(tmp_path / "words"))
    assert found.name == "words"
    names = {s.name for s in signature_of(found.file).settings}
    assert set(found.settings) <= names
    assert "{{" not in "".join((tmp_path / "words" / f).read_text() for f in files)
    with pytest.raises(PipelineError, match="is there already"):
        make(tmp_path / "words")
    with pytest.raises(PipelineError, match="is no name for a pipeline"):
        make(tmp_path / "two words")


def test_a_new_declarative_project(tmp_path: Path) -> None:
    files = make(tmp_path / "flows", is_declarative=True)
    assert files == [
        ".gitignore",
        "README.md",
        "spark-pipeline.yml",
        "transformations/words.py",
    ]
    assert find(str(tmp_path / "flows")).is_declarative


@pytest.mark.parametrize("ready", ready_pipelines())
def test_a_copy_of_a_ready_pipeline(tmp_path: Path, ready: str) -> None:
    make(tmp_path / "mine", ready)
    found = find(str(tmp_path / "mine"))
    assert found.file.read_text() == ready_pipelines()[ready].read_text()
    wanted = {s.name for s in signature_of(found.file).settings if s.is_required} - {CHECKPOINT}
    text = (tmp_path / "mine" / "pipeline.toml").read_text()
    assert set(tomllib.loads(text)["settings"]) == wanted


def test_a_copy_of_what_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match="there is no ready pipeline nothing: there are"):
        make(tmp_path / "mine", "nothing")
