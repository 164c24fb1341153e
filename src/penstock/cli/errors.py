"""The one error of the command line, a sentence that says what happened and what to do next,
and how it is told.
"""

from __future__ import annotations

import difflib
import os
import sys
from collections.abc import Iterable

EXIT_FAILED = 1
"""The work could not be done (no broker, no topic, refused by the broker)."""

EXIT_USAGE = 2
"""The command line itself is wrong."""

EXIT_INTERRUPTED = 130
"""Ctrl-C, by the convention of shells: 128 + SIGINT."""


class CliError(Exception):
    """Ends the command with `sentence` on stderr and `exit_code`."""

    def __init__(self, sentence: str, exit_code: int = EXIT_FAILED) -> None:
        super().__init__(sentence)
        self.sentence = sentence
        self.exit_code = exit_code


def usage_error(sentence: str) -> CliError:
    """The error of a command line that cannot be meant that way."""
    return CliError(sentence, EXIT_USAGE)


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """` (did you mean X?)` when something known is close to `word`, else nothing."""
    close = difflib.get_close_matches(word, list(known), n=1, cutoff=0.6)
    return f" (did you mean {close[0]}?)" if close else ""


def fail(sentence: str, exit_code: int) -> int:
    """Tell the error in one line on stderr, after what stdout has got so far."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        abandon_stdout()
    prefix = "\x1b[1;31merror:\x1b[0m" if sys.stderr.isatty() else "error:"
    print(prefix, " ".join(sentence.split()), file=sys.stderr)
    return exit_code


def abandon_stdout() -> None:
    """Points stdout at nothing, so that the interpreter's last flush finds no closed pipe."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
