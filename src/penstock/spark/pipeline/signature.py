"""Which settings a pipeline takes, read from its file without running it.

Duty: the keyword-only parameters of the function `pipeline(spark, *, ...)` as a table. The file is
parsed, not imported, so that `--help` needs neither PySpark nor the seconds to load it.

Limits: an annotation is `Annotated[TYPE, "text"]` or a bare TYPE out of str, int, float, bool and
list[str], the first three also with `| None`, or Literal["a", "b"]; a default is a literal. A role
may stand behind the text (`penstock.spark.pipeline.roles`). The constants EXACTLY_ONE_OF and
AT_LEAST_ONE_OF of a file name settings of which one has to be given. Anything else is an error that
names the file, the line and the parameter.
"""

from __future__ import annotations

import ast
from enum import Enum
from pathlib import Path
from typing import NamedTuple, TypeAlias, TypeGuard

from penstock.spark.pipeline.errors import PipelineError
from penstock.spark.pipeline.roles import Role

FUNCTION = "pipeline"
EXACTLY_ONE_OF = "EXACTLY_ONE_OF"
AT_LEAST_ONE_OF = "AT_LEAST_ONE_OF"
KINDS_TEXT = (
    "str, int, float, bool, list[str], Literal of texts, or one of the first three with `| None`"
)

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
    role: Role | None = None
    choices: tuple[str, ...] = ()

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
    exactly_one_of: tuple[str, ...] = ()
    at_least_one_of: tuple[str, ...] = ()

    def of_role(self, *roles: Role) -> list[Setting]:
        return [setting for setting in self.settings if setting.role in roles]


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
            found = _of_function(path, node, ast.get_docstring(tree) or "")
            return found._replace(
                exactly_one_of=_names(tree, EXACTLY_ONE_OF),
                at_least_one_of=_names(tree, AT_LEAST_ONE_OF),
            )
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


def _names(tree: ast.Module, constant: str) -> tuple[str, ...]:
    """The names in a constant of the file; none without it."""
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == constant:
            return tuple(ast.literal_eval(node.value))
    return ()


def _setting(path: Path, parameter: ast.arg, default: ast.expr | None) -> Setting:
    node, more = _annotation(parameter)
    kind, may_be_none, choices = _type(path, parameter, node)
    value: Value = None
    if default is not None:
        try:
            value = ast.literal_eval(default)
        except ValueError:
            raise PipelineError(
                f"{path}:{default.lineno}: the default of {parameter.arg} is"
                f" `{ast.unparse(default)}`: write it as a literal"
            ) from None
    text = next((p.value for p in more if _is_text(p)), "")
    names = [p.attr for p in more if isinstance(p, ast.Attribute) and _last_name(p.value) == "Role"]
    if unknown := [name for name in names if name not in Role.__members__]:
        raise PipelineError(
            f"{path}:{parameter.lineno}: setting {parameter.arg} has the role {unknown[0]}: there"
            f" are {', '.join(Role.__members__)}"
        )
    role = Role[names[0]] if names else None
    return Setting(
        parameter.arg, kind, may_be_none, default is None, value, str(text), role, choices
    )


def _annotation(parameter: ast.arg) -> tuple[ast.expr | None, list[ast.expr]]:
    """The type, and what `Annotated` says beside it."""
    node = parameter.annotation
    if isinstance(node, ast.Subscript) and _last_name(node.value) == "Annotated":
        parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        return parts[0], parts[1:]
    return node, []


def _type(
    path: Path, parameter: ast.arg, node: ast.expr | None
) -> tuple[Kind, bool, tuple[str, ...]]:
    """Type, whether None is allowed, and the only values; without an annotation it is a text."""
    if node is None:
        return Kind.STR, False, ()
    if isinstance(node, ast.Subscript) and _last_name(node.value) == "Literal":
        parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        return Kind.STR, False, tuple(str(ast.literal_eval(part)) for part in parts)
    written = ast.unparse(node)
    name = written.removesuffix(" | None")
    may_be_none = name != written
    kind = next((k for k in Kind if k.value == name), None)
    if kind is None or (may_be_none and kind in (Kind.BOOL, Kind.LIST)):
        raise PipelineError(
            f"{path}:{parameter.lineno}: setting {parameter.arg} is `{written}`: a setting is"
            f" {KINDS_TEXT}"
        )
    return kind, may_be_none, ()


def _last_name(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


def _is_text(node: ast.expr) -> TypeGuard[ast.Constant]:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)
