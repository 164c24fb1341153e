"""Regular expressions over topic names, in the syntax of RE2 and in linear time.

A pattern comes from a client and runs inside the coordinator, so it must never backtrack: it is
parsed by `regex_syntax`, turned into an automaton, and a name is matched by following sets of
states, which are remembered (a lazy DFA). As in Kafka a name matches as a whole.

Which names matched is kept, so that a pattern can be matched with all topics ahead, in steps
(`learn`), before it is asked for those that match.

Topic names consist of 65 characters, so a character class is the set of those it contains; for
other names the caller passes their alphabet. Only such single classes are put to Python's `re`.

Limits: PATTERN_CHARACTERS_MAX, STATES_MAX per automaton, REMEMBERED_SETS_MAX sets of states; names
are kept as many as were last asked about.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias
from weakref import WeakValueDictionary

from penstock.base.errors import ApiError, ErrorCode
from penstock.base.steps import Steps, at_once
from penstock.coordinator.consumer.regex_syntax import (
    TOPIC_CHARACTERS,
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

PATTERN_CHARACTERS_MAX = 4_096
STATES_MAX = 10_000
REMEMBERED_SETS_MAX = 2_000
STATES_PER_STEP = 500
"""States that are followed before others may run: about a millisecond."""


class TopicPattern:
    """A compiled pattern; `matches` is the only question it answers."""

    __slots__ = ("__weakref__", "_accept", "_edges", "_known", "_moves", "_start", "text")

    def __init__(self, text: str, alphabet: frozenset[str] = TOPIC_CHARACTERS) -> None:
        """For names that consist of `alphabet`. Raises INVALID_REGULAR_EXPRESSION for what RE2
        would refuse or what is too large.
        """
        try:
            if len(text) > PATTERN_CHARACTERS_MAX:
                raise BadPattern(f"it has more than {PATTERN_CHARACTERS_MAX} characters")
            self.text = text
            # Per state: (characters, target) for a step, (assertion, target) for a free passage.
            self._edges: list[list[tuple[frozenset[str] | Place | None, int]]] = []
            self._start = self._state()
            self._accept = self._build(parse(text, alphabet), self._start)
        except BadPattern as e:
            raise ApiError(
                ErrorCode.INVALID_REGULAR_EXPRESSION,
                f"SubscribedTopicRegex `{text[:100]}` is not a valid regular expression: {e}.",
            ) from e
        self._moves: dict[tuple[frozenset[int], str, str], frozenset[int]] = {}
        self._known: dict[str, bool] = {}

    def matches(self, name: str) -> bool:
        """Whether the whole of `name` matches."""
        known = self._known.get(name)
        return at_once(self._match(name)) if known is None else known

    def _match(self, name: str) -> Steps[bool]:
        followed = 0
        states = frozenset((self._start,))
        before = ""
        for character in name:
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

    def matching(self, names: Iterable[str]) -> frozenset[str]:
        known = self._known = {name: self.matches(name) for name in names}
        return frozenset(name for name, matches in known.items() if matches)

    def learn(self, names: Iterable[str]) -> Steps[None]:
        """Find out which of `names` match, so that `matching` need not."""
        for name in names:
            if name not in self._known:
                self._known[name] = yield from self._match(name)
            yield

    def _step(self, states: frozenset[int], before: str, character: str) -> frozenset[int]:
        return frozenset(
            target
            for state in self._closure(states, before, character)
            for label, target in self._edges[state]
            if isinstance(label, frozenset) and character in label
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
        if len(self._edges) >= STATES_MAX:
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


Patterns: TypeAlias = WeakValueDictionary[str, TopicPattern]
"""Those that are in use, by their text."""


def pattern_of(text: str, patterns: Patterns) -> TopicPattern:
    """The pattern, for topic names; one that is in use knows what matches."""
    found = patterns.get(text)
    if found is None:
        found = patterns[text] = TopicPattern(text)
    return found


def _holds(kind: Place, before: str, after: str) -> bool:
    if kind is Place.BEGIN:
        return before == ""
    if kind is Place.END:
        return after == ""
    at_boundary = (before in WORD_CHARACTERS) != (after in WORD_CHARACTERS)
    return at_boundary == (kind is Place.BOUNDARY)
