"""Says in one sentence why a pipeline failed, and whether to try again can help.

Spark wraps what a data source or a user's function raised in several layers of Java and Python
text; the innermost sentence is the one that helps. The whole text is for the log.

Limits: the sentence has at most SENTENCE_CHARS_MAX characters.
"""

from __future__ import annotations

import re
import traceback
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

from penstock.kafka.errors import ClientError, ClusterError
from penstock.spark.pipeline.errors import PipelineError

SENTENCE_CHARS_MAX = 600
FENCED = "Fenced"
"""A task's transaction was taken over or took too long (`penstock.spark.producer`)."""
INSTALLED = "site-packages"
"""Where no file is the pipeline's own, even if the environment lies in its folder."""


class Cause(StrEnum):
    """Who has to do something about it."""

    OWN = "own"
    """The pipeline or its settings: to try again changes nothing."""
    CLUSTER = "cluster"
    """The brokers, which may come back."""
    CRASH = "crash"
    """A process of Spark's died or could not start."""
    OTHER = "other"
    """It cannot be told: what has worked before may work again."""


class Failure(NamedTuple):
    sentence: str
    cause: Cause


_OURS = re.compile(r"penstock\.(?:\w+\.)+([A-Z]\w+): (.+)")
_RAISED = re.compile(r"^(?:\w+\.)*\w*(?:Error|Exception|Interrupt|Exit)\b.*", re.MULTILINE)
_STATE = re.compile(r"\s*SQLSTATE: \w+\s*")
_CRASHES = (
    "Python worker failed to connect back",
    "Python worker exited unexpectedly",
    "CANNOT_OPEN_SOCKET",
    "Answer from Java side is empty",
    "Error while sending or receiving",
    "An error occurred while trying to connect to the Java server",
    "Connection refused",
    "OutOfMemoryError",
)
_BEYOND_REPAIR = ("does not exist", "correct the", "which option")
"""Words of a `ClusterError` that is about what the pipeline asks for."""


def of_exception(error: BaseException, file: Path) -> Failure:
    """An exception that came out of the pipeline's file, or out of Spark through it."""
    if isinstance(error, PipelineError):
        return Failure(str(error), Cause.OWN)
    if isinstance(error, SyntaxError):
        return Failure(f"{error.filename}:{error.lineno}: {error.msg}", Cause.OWN)
    if isinstance(error, ClientError):
        found = of_text(f"penstock.spark.errors.{type(error).__name__}: {error}")
    else:
        found = of_text(f"{type(error).__name__}: {error}")
    if place := _place(error, file):
        return Failure(f"{place}: {found.sentence}", found.cause)
    return found


def of_text(text: str) -> Failure:
    """What Spark says about a query that has failed."""
    ours = list(_OURS.finditer(text))
    if ours:
        name, sentence = ours[-1].groups()
        return Failure(_short(sentence), _cause_of(name, sentence))
    sentence = text.strip()
    if "Traceback (most recent call last)" in sentence:
        raised = _RAISED.findall(sentence.rpartition("Traceback (most recent call last)")[2])
        sentence = raised[0] if raised else sentence
    cause = Cause.CRASH if any(words in text for words in _CRASHES) else Cause.OTHER
    return Failure(_short(sentence.split("\n")[0]), cause)


def _cause_of(name: str, sentence: str) -> Cause:
    if name == FENCED:
        return Cause.OTHER
    if name != ClusterError.__name__ or any(words in sentence for words in _BEYOND_REPAIR):
        return Cause.OWN
    return Cause.CLUSTER


def _place(error: BaseException, file: Path) -> str | None:
    """The last line of the pipeline's own files that the error came through."""
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        path = Path(frame.filename)
        if path.is_relative_to(file.parent) and INSTALLED not in path.parts:
            return f"{path}:{frame.lineno}"
    return None


def _short(text: str) -> str:
    text = " ".join(_STATE.sub(" ", text.replace("\\n", " ")).split())
    return text if len(text) <= SENTENCE_CHARS_MAX else text[: SENTENCE_CHARS_MAX - 1] + "…"
