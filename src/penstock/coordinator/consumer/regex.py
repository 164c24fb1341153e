"""Regular expressions over topic names, as clients send them: RE2's, in linear time.

Which names matched is kept, so that a pattern can be matched with all topics ahead, in steps
(`learn`), before it is asked for those that match. Topic names consist of 65 characters; for other
names the caller passes their alphabet.

Limits: those of `base.regex`; names are kept as many as were last asked about.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias
from weakref import WeakValueDictionary

from penstock.base.errors import ApiError, ErrorCode
from penstock.base.regex import Pattern
from penstock.base.regex_syntax import TOPIC_CHARACTERS, BadPattern
from penstock.base.steps import Steps


class TopicPattern(Pattern):
    """A compiled pattern that remembers the names it was asked about."""

    __slots__ = ("_known",)

    def __init__(self, text: str, alphabet: frozenset[str] = TOPIC_CHARACTERS) -> None:
        """For names that consist of `alphabet`. Raises INVALID_REGULAR_EXPRESSION for what RE2
        would refuse or what is too large.
        """
        try:
            super().__init__(text, alphabet)
        except BadPattern as e:
            raise ApiError(
                ErrorCode.INVALID_REGULAR_EXPRESSION,
                f"SubscribedTopicRegex `{text[:100]}` is not a valid regular expression: {e}.",
            ) from e
        self._known: dict[str, bool] = {}

    def matches(self, text: str) -> bool:
        """Whether the whole of `text` matches."""
        known = self._known.get(text)
        return super().matches(text) if known is None else known

    def matching(self, names: Iterable[str]) -> frozenset[str]:
        known = self._known = {name: self.matches(name) for name in names}
        return frozenset(name for name, matches in known.items() if matches)

    def learn(self, names: Iterable[str]) -> Steps[None]:
        """Find out which of `names` match, so that `matching` need not."""
        for name in names:
            if name not in self._known:
                self._known[name] = yield from self.match(name)
            yield


Patterns: TypeAlias = WeakValueDictionary[str, TopicPattern]
"""Those that are in use, by their text."""


def pattern_of(text: str, patterns: Patterns) -> TopicPattern:
    """The pattern, for topic names; one that is in use knows what matches."""
    found = patterns.get(text)
    if found is None:
        found = patterns[text] = TopicPattern(text)
    return found
