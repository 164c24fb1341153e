"""Which settings a pipeline takes, read from its file without running it.

Duty: the keyword-only parameters of the function `pipeline(spark, *, ...)` as a table. The file is
parsed, not imported, so that `--help` needs neither PySpark nor the seconds to load it.

Limits: an annotation is `Annotated[TYPE, "text"]` or a bare TYPE out of str, int, float, bool and
list[str], the first three also with `| None`; a default is a literal. Anything else is an error
that names the file, the line and the parameter.
"""

from __future__ import annotations

import ast
from enum import Enum
from pathlib import Path
from typing import NamedTuple, TypeAlias

from penstock.spark.pipeline.errors import PipelineError

FUNCTION = "pipeline"
KINDS_TEXT = "str, int, float, bool, list[str], or one of the first three with `| None`"

Value: TypeAlias = str | int | float | bool | list[str] | None


class Kind(Enum):
    """The type of a setting, by the name that the annotation has."""

    STR = "str"
    INT = "int"
    FLOAT = "float"
    BOOL = "bool"
    LIST = "list[str]"


class Setting(NamedTuple):
    """One keyword-only parameter."""

    name: str
    kind: Kind
    may_be_none: bool
    is_required: bool
    default: Value
    text: str

    @property
    def option(self) -> str:
        """The name as the command line writes it."""
        return self.name.replace("_", "-")


class Signature(NamedTuple):
    """What a pipeline's file says of itself; a plain script has no function and takes nothing."""

    is_function: bool
    settings: tuple[Setting, ...] = ()
    takes_kafka: bool = False
    text: str = ""


def signature_of(path: Path) -> Signature:
    """The settings of the pipeline in a file."""
    try:
        tree = ast.parse(path.read_bytes(), str(path))
    except OSError as e:
        raise PipelineError(f"cannot read {path}: {e.strerror}") from None
    except SyntaxError as e:
        raise PipelineError(f"{path}:{e.lineno}: {e.msg}: correct the file") from None
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and node.name == FUNCTION:
            return _of_function(path, node, ast.get_docstring(tree) or "")
    return Signature(is_function=False, text=ast.get_docstring(tree) or "")


def _of_function(path: Path, node: ast.FunctionDef, module_text: str) -> Signature:
    arguments = node.args
    if len(arguments.posonlyargs + arguments.args) != 1 or arguments.vararg is not None:
        raise PipelineError(
            f"{path}:{node.lineno}: {FUNCTION} takes the SparkSession and then settings by keyword:"
            f" write def {FUNCTION}(spark, *, topic: str, ...)"
        )
    settings = tuple(
        _setting(path, parameter, default)
        for parameter, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    )
    text = ast.get_docstring(node) or module_text
    return Signature(True, settings, arguments.kwarg is not None, text)


def _setting(path: Path, parameter: ast.arg, default: ast.expr | None) -> Setting:
    kind, may_be_none, text = _annotation(path, parameter)
    value: Value = None
    if default is not None:
        try:
            value = ast.literal_eval(default)
        except ValueError:
            raise PipelineError(
                f"{path}:{default.lineno}: the default of {parameter.arg} is"
                f" `{ast.unparse(default)}`: write it as a literal"
            ) from None
    return Setting(parameter.arg, kind, may_be_none, default is None, value, text)


def _annotation(path: Path, parameter: ast.arg) -> tuple[Kind, bool, str]:
    """Type, whether None is allowed, and the help text; without an annotation it is a text."""
    node, text = parameter.annotation, ""
    if node is None:
        return Kind.STR, False, text
    if isinstance(node, ast.Subscript) and _is_annotated(node.value):
        parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        node = parts[0]
        texts = [p.value for p in parts[1:] if isinstance(p, ast.Constant)]
        text = next((t for t in texts if isinstance(t, str)), "")
    written = ast.unparse(node)
    name = written.removesuffix(" | None")
    may_be_none = name != written
    kind = next((k for k in Kind if k.value == name), None)
    if kind is None or (may_be_none and kind in (Kind.BOOL, Kind.LIST)):
        raise PipelineError(
            f"{path}:{parameter.lineno}: setting {parameter.arg} is `{written}`: a setting is"
            f" {KINDS_TEXT}"
        )
    return kind, may_be_none, text


def _is_annotated(node: ast.expr) -> bool:
    name = node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")
    return name == "Annotated"
