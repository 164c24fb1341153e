"""Regular expressions in the syntax of RE2 and in linear time, for texts of a known alphabet.

A pattern may come from a client, so it must never backtrack: it is parsed by `regex_syntax`, turned
into an automaton, and a text is matched by following sets of states, which are remembered (a lazy
DFA). A text matches as a whole or not at all.

The alphabet is small, so a character class is the set of those it contains; only such single
classes are put to Python's `re`. With `others` a text may have characters beyond it, which are all
the same to a class; literals mean themselves.

Limits: PATTERN_CHARACTERS_MAX, STATES_MAX per automaton (or fewer, where the caller says so),
REMEMBERED_SETS_MAX sets of states.
"""

from __future__ import annotations

from collections.abc import Iterable

from penstock.base.regex_syntax import (
    WORD_CHARACTERS,
    Alternation,
    BadPattern,
    Characters,
    Node,
    Place,
    Repeat,
    Sequence,
    parse,
)
from penstock.base.steps import Steps, at_once

PATTERN_CHARACTERS_MAX = 4_096
STATES_MAX = 10_000
REMEMBERED_SETS_MAX = 2_000
STATES_PER_STEP = 500
"""States that are followed before others may run: about a millisecond."""
_OTHER = "\ufffd"
"""Stands in classes for every character beyond the alphabet."""


class Pattern:
    """A compiled pattern; `matches` is the only question it answers."""

    __slots__ = (
        "__weakref__",
        "_accept",
        "_edges",
        "_moves",
        "_others",
        "_start",
        "_states_max",
        "text",
    )

    def __init__(
        self,
        text: str,
        alphabet: frozenset[str],
        *,
        others: bool = False,
        states_max: int = STATES_MAX,
    ) -> None:
        """Raises `BadPattern` for what RE2 would refuse or what is too large."""
        if len(text) > PATTERN_CHARACTERS_MAX:
            raise BadPattern(f"it has more than {PATTERN_CHARACTERS_MAX} characters")
        self.text = text
        self._states_max = states_max
        self._others: frozenset[str] | None = None
        if others:
            alphabet = self._others = alphabet | {*text, _OTHER}
        # Per state: (characters, target) for a step, (assertion, target) for a free passage.
        self._edges: list[list[tuple[frozenset[str] | Place | None, int]]] = []
        self._start = self._state()
        self._accept = self._build(parse(text, alphabet), self._start)
        self._moves: dict[tuple[frozenset[int], str, str], frozenset[int]] = {}

    def matches(self, text: str) -> bool:
        """Whether the whole of `text` matches."""
        return at_once(self.match(text))

    def match(self, text: str) -> Steps[bool]:
        """As `matches`, in steps."""
        followed = 0
        states = frozenset((self._start,))
        before = ""
        for character in text:
            followed += len(states)
            if followed > STATES_PER_STEP:
                followed = 0
                yield
            key = (states, before, character)
            found = self._moves.get(key)
            if found is None:
                found = self._step(states, before, character)
                if len(self._moves) >= REMEMBERED_SETS_MAX:
                    self._moves.clear()
                self._moves[key] = found
            if not found:
                return False
            states = found
            # Assertions look only at whether there is a character before and whether it is of a
            # word, so that is all that the remembered moves are told apart by.
            before = "a" if character in WORD_CHARACTERS else "-"
        return self._accept in self._closure(states, before, "")

    def _step(self, states: frozenset[int], before: str, character: str) -> frozenset[int]:
        known = self._others is None or character in self._others
        return frozenset(
            target
            for state in self._closure(states, before, character)
            for label, target in self._edges[state]
            if isinstance(label, frozenset)
            and (character in label or (not known and _OTHER in label))
        )

    def _closure(self, states: Iterable[int], before: str, after: str) -> set[int]:
        """All states reachable without a character, standing between `before` and `after`."""
        reached = set(states)
        pending = list(reached)
        while pending:
            for label, target in self._edges[pending.pop()]:
                if isinstance(label, frozenset) or target in reached:
                    continue
                if label is None or _holds(label, before, after):
                    reached.add(target)
                    pending.append(target)
        return reached

    def _state(self) -> int:
        if len(self._edges) >= self._states_max:
            raise BadPattern("its repetitions make it too large")
        self._edges.append([])
        return len(self._edges) - 1

    def _build(self, node: Node, start: int) -> int:
        """Add the automaton of `node` from state `start`; returns its last state."""
        if isinstance(node, Sequence):
            for part in node.parts:
                start = self._build(part, start)
            return start
        end = self._state()
        if isinstance(node, Alternation):
            for part in node.parts:
                self._edges[self._build(part, start)].append((None, end))
        elif isinstance(node, Repeat):
            self._repeat(node, start, end)
        elif isinstance(node, Characters):
            self._edges[start].append((node.characters, end))
        else:
            self._edges[start].append((node, end))
        return end

    def _repeat(self, node: Repeat, start: int, end: int) -> None:
        at = start
        for _ in range(node.least):
            at = self._build(node.part, at)
        if node.most is None:
            loop = self._state()
            self._edges[at].append((None, loop))
            self._edges[self._build(node.part, loop)].append((None, loop))
            at = loop
        else:
            for _ in range(node.most - node.least):
                self._edges[at].append((None, end))
                at = self._build(node.part, at)
        self._edges[at].append((None, end))


def _holds(kind: Place, before: str, after: str) -> bool:
    if kind is Place.BEGIN:
        return before == ""
    if kind is Place.END:
        return after == ""
    at_boundary = (before in WORD_CHARACTERS) != (after in WORD_CHARACTERS)
    return at_boundary == (kind is Place.BOUNDARY)
