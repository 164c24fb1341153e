"""Settings read from a pipeline's signature, and values converted by it; no Spark is imported."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from penstock.spark.pipeline.errors import PipelineError
from penstock.spark.pipeline.project import ready_pipelines
from penstock.spark.pipeline.settings import BOOTSTRAP, arguments, as_text, with_checkpoint
from penstock.spark.pipeline.signature import Kind, Signature, signature_of

FILE = '''
"""What the file is for."""
from __future__ import annotations
import typing
from typing import Annotated
from a_module_that_does_not_exist import anything

def pipeline(
    spark: SparkSession,
    *,
    topic: Annotated[str, "topic to read"],
    checkpoint: Annotated[str, "folder of the query's progress"],
    rows_max: typing.Annotated[int | None, "at most"] = None,
    share: float = 0.5,
    once: Annotated[bool, "stop when all is done"] = False,
    columns: Annotated[list[str], "columns " "to keep"] = ["key", "value"],
    **kafka: str,
) -> int:
    return 0
'''


@pytest.fixture
def signature(tmp_path: Path) -> Signature:
    return written(tmp_path, FILE)


def written(folder: Path, text: str) -> Signature:
    path = folder / "pipeline.py"
    path.write_text(text)
    return signature_of(path)


def refused(signature: Signature, **given: str) -> str:
    with pytest.raises(PipelineError) as error:
        arguments(signature, given)
    return str(error.value)


def test_the_signature_is_read_without_running_the_file(signature: Signature) -> None:
    assert signature.is_function
    assert signature.takes_kafka
    assert signature.text == "What the file is for."
    topic, _, rows_max, share, once, columns = signature.settings
    assert (topic.kind, topic.is_required, topic.text) == (Kind.STR, True, "topic to read")
    assert (rows_max.kind, rows_max.may_be_none, rows_max.option) == (Kind.INT, True, "rows-max")
    assert (share.kind, share.default, share.text) == (Kind.FLOAT, 0.5, "")
    assert (once.kind, once.default) == (Kind.BOOL, False)
    assert (columns.kind, columns.text) == (Kind.LIST, "columns to keep")
    assert columns.default == ["key", "value"]


def test_a_plain_script_takes_no_settings(tmp_path: Path) -> None:
    script = written(tmp_path, "from pyspark.sql import SparkSession\nprint(1)\n")
    assert script == Signature(is_function=False)
    assert arguments(script, {BOOTSTRAP: "h:1"}) == {}
    assert "a plain script takes none" in refused(script, topic="t")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("def pipeline(spark, *, a: dict[str, str]): ...", "pipeline.py:1: setting a is `dict[str"),
        ("def pipeline(spark, *, a: bool | None): ...", "setting a is `bool | None`: a setting is"),
        (
            "x = 1\ndef pipeline(spark, *, a: int = x): ...",
            "pipeline.py:2: the default of a is `x`",
        ),
        (
            'def pipeline(spark, *, a: Annotated[str, "x", Role.TOPIC]): ...',
            "pipeline.py:1: setting a has the role TOPIC: there are SOURCE_TOPIC",
        ),
        ("def pipeline(spark, topic): ...", "pipeline.py:1: pipeline takes the SparkSession and"),
        ("def pipeline(spark:\n", "pipeline.py:1: '(' was never closed: correct the file"),
    ],
)
def test_a_file_that_cannot_be_understood_names_the_line(
    tmp_path: Path, text: str, said: str
) -> None:
    with pytest.raises(PipelineError) as error:
        written(tmp_path, text)
    assert said in str(error.value)


def test_values_are_converted_by_type(signature: Signature) -> None:
    given = {
        "topic": "t",
        "checkpoint": "/c",
        "rows-max": "10",
        "share": "1e-3",
        "once": "Yes",
        "columns": "a, b,",
        "kafka.security.protocol": "SSL",
        BOOTSTRAP: "h:1",
    }
    assert arguments(signature, given) == {
        "topic": "t",
        "checkpoint": "/c",
        "rows_max": 10,
        "share": 0.001,
        "once": True,
        "columns": ["a", "b"],
        "kafka.security.protocol": "SSL",
        BOOTSTRAP: "h:1",
    }
    assert arguments(signature, {"topic": "t", "checkpoint": "c", "rows_max": "none"}) == {
        "topic": "t",
        "checkpoint": "c",
        "rows_max": None,
    }


def test_what_is_refused(signature: Signature, tmp_path: Path) -> None:
    here = {"topic": "t", "checkpoint": "c"}
    assert refused(signature, checkpoint="c") == (
        "setting topic is missing (topic to read): give it with --set topic=..."
    )
    assert refused(signature, **here, topci="x").startswith(
        "there is no setting topci (did you mean topic?): the pipeline takes topic, checkpoint, "
    )
    assert refused(signature, **here | {"topic": " "}) == "setting topic is empty: topic to read"
    assert "rows-max must be a whole number, not '1.5'" in refused(
        signature, **here, rows_max="1.5"
    )
    assert "share must be a number, not 'x'" in refused(signature, **here, share="x")
    assert "once must be true or false, not 'maybe'" in refused(signature, **here, once="maybe")
    bare = written(tmp_path, "def pipeline(spark): ...")
    assert "takes no kafka settings" in refused(bare, **{"kafka.sasl.mechanism": "PLAIN"})


def test_a_checkpoint_is_filled_in_where_it_is_asked_for(signature: Signature) -> None:
    def place(cluster: str = "c", **given: str) -> str:
        filled = with_checkpoint(signature, {"topic": "t", **given}, "/here", cluster)
        return filled["checkpoint"]

    assert place() == place(trigger="1 minute")
    assert place().startswith("/here/")
    assert len({place(), place(to="a"), place(to="b"), place(to="a", table="b")}) == 4
    assert place(to="a") != place(to="a", cluster="another")
    mine = {"checkpoint": "/mine"}
    assert with_checkpoint(signature, mine, "/here", "c") == mine
    assert with_checkpoint(Signature(is_function=True), {}, "/here", "c") == {}


def test_a_checkpoint_goes_by_the_folder_that_is_meant(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = signature_of(ready_pipelines()["archive"])

    def place(to: str) -> str:
        given = {"topic": "t", "to": to}
        return with_checkpoint(archive, given, "/here", "c")["checkpoint"]

    found = []
    for name in ("one", "another"):
        (tmp_path / name).mkdir()
        monkeypatch.chdir(tmp_path / name)
        found.append(place("lake/orders"))
        assert found[-1] == place(str(tmp_path / name / "lake" / "orders/"))
        assert found[-1] == place(f"file://{tmp_path}/{name}/./lake/orders")
    assert found[0] != found[1]
    assert place("s3://bucket/orders") == place("s3://bucket/orders/") != place("s3://other/orders")


def test_settings_of_which_one_has_to_be_given() -> None:
    ready = {name: signature_of(path) for name, path in ready_pipelines().items()}
    here = {"topic": "t", "to": "u", "checkpoint": "c", "on": "true"}
    for given in ({}, {"other": "o", "table": "f"}):
        said = refused(ready["join"], **here, **given)
        assert said.startswith("give exactly one of the settings other and table")
    assert refused(ready["audit"], topic="t") == (
        "give exactly one of the settings archive and copy (none given)"
    )
    assert "at least one of the settings to and table" in refused(
        ready["aggregate"], topic="t", checkpoint="c"
    )
    assert refused(ready["join"], **here, other="o", how="outer") == (
        "setting how must be inner or left, not 'outer'"
    )


def test_values_of_a_file_become_texts() -> None:
    assert [as_text(v) for v in (True, 3, 0.5, ["a", 1], "x")] == ["true", "3", "0.5", "a,1", "x"]


def test_every_ready_pipeline_has_a_signature_with_texts() -> None:
    for name, path in ready_pipelines().items():
        signature = signature_of(path)
        assert signature.is_function, name
        assert signature.takes_kafka, name
        assert [s.name for s in signature.settings if not s.text] == [], name
        assert signature.text, name


def test_the_commands_need_no_pyspark() -> None:
    program = (
        "import sys; sys.modules['pyspark'] = sys.modules['pyarrow'] = None\n"
        "from penstock.cli.app import run\n"
        "sys.exit(run(['pipeline', '--help']))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    for name in ("new", "run", "list", "status", "stop", *ready_pipelines()):
        assert f"  {name} " in done.stdout


def test_without_pyspark_one_sentence_says_what_to_install(tmp_path: Path) -> None:
    (tmp_path / "p.py").write_text("def pipeline(spark): ...")
    program = (
        "import sys, importlib.util as u\n"
        "find = u.find_spec\n"
        "u.find_spec = lambda name, *more: None if name == 'pyspark' else find(name, *more)\n"
        "from penstock.cli.app import run\n"
        f"sys.exit(run(['pipeline', 'run', {str(tmp_path / 'p.py')!r}]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 1
    assert done.stderr == (
        "error: pipelines need Spark: install it with pip install 'penstock[spark]'\n"
    )
