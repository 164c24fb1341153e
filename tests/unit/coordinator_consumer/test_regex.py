"""Regular expressions over topic names: RE2's language, and never slow."""

from __future__ import annotations

import re
import time
from weakref import WeakValueDictionary

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.base.errors import ApiError, ErrorCode
from penstock.base.regex import PATTERN_CHARACTERS_MAX
from penstock.base.steps import at_once
from penstock.coordinator.consumer.regex import Patterns, TopicPattern, pattern_of

ATOMS = ["a", "b", ".", "[ab]", "[^a]", r"\.", r"\d", r"\w", r"\W", "-", "(?:a|b)", "[a-c1-3]"]
OPERATORS = ["", "", "*", "+", "?", "{2}", "{1,3}", "{0,}", "*?", "+?", "??"]

pieces = st.tuples(st.sampled_from(ATOMS), st.sampled_from(OPERATORS)).map("".join)
sequences = st.lists(pieces, max_size=4).map("".join)
patterns = st.recursive(
    sequences,
    lambda inner: st.one_of(
        st.tuples(inner, inner).map("|".join),
        inner.map(lambda p: f"({p})"),
        inner.map(lambda p: f"(?:{p})?x"),
        inner.map(lambda p: f"(?i:{p})"),
        inner.map(lambda p: f"^{p}$" if "|" not in p else p),
        inner.map(lambda p: rf"\b{p}\B"),
    ),
    max_leaves=4,
)
names = st.text("abAB12x.-_", min_size=1, max_size=8)


@given(patterns, st.lists(names, max_size=5))
def test_agrees_with_python(pattern: str, tried: list[str]) -> None:
    ours, theirs = TopicPattern(pattern), re.compile(pattern, re.ASCII)
    for name in tried:
        assert ours.matches(name) == (theirs.fullmatch(name) is not None), name


@pytest.mark.parametrize(
    ("pattern", "matched", "not_matched"),
    [
        ("orders", ["orders"], ["orders-eu", "my-orders"]),
        (r"\Qa.b\E.*", ["a.b", "a.bc"], ["axb"]),
        ("(?i)Foo", ["fOO"], ["fo"]),
        ("(?i)a(?-i:b)", ["Ab", "ab"], ["AB"]),
        ("(?P<x>a)(?<y>b)", ["ab"], ["a"]),
        ("[[:alpha:]]+", ["abc"], ["a1"]),
        (r"\x61\x{62}", ["ab"], ["x61"]),
        (r"\Aab\z", ["ab"], ["abc"]),
        ("a{,2}", [], ["aa"]),
        ("[]a]", ["a"], ["b"]),
        ("", [], ["a"]),
        ("a|", ["a"], ["b"]),
    ],
)
def test_re2(pattern: str, matched: list[str], not_matched: list[str]) -> None:
    compiled = TopicPattern(pattern)
    assert compiled.matching(matched + not_matched) == set(matched)


@pytest.mark.parametrize(
    "pattern",
    [
        *("(", ")", "[", "[z-a]", "*", "a**", "a++", "a*{2}", "|*", "\\", r"(a)\1", r"\k<n>"),
        *("(?=a)", "(?!a)", "(?<=a)", "(?<!a)", "(?>a)", "(?#x)", "(?P<a", "(?z)", "a{1001}"),
        *("a{3,2}", "((a{100}){100}){10}", "(" * 200 + ")" * 200, r"\p{L}", "[[:nope:]]"),
        "x" * (PATTERN_CHARACTERS_MAX + 1),
    ],
)
def test_refused(pattern: str) -> None:
    with pytest.raises(ApiError) as refused:
        TopicPattern(pattern)
    assert refused.value.code is ErrorCode.INVALID_REGULAR_EXPRESSION


@pytest.mark.parametrize("pattern", ["(a+)+b", "(a|a)*b", "(a*)*b", "a*a*a*a*a*b", "(.*){1,50}b"])
def test_hostile_patterns_are_linear(pattern: str) -> None:
    started = time.process_time()
    assert not TopicPattern(pattern).matches("a" * 249)
    assert time.process_time() - started < 1


def test_what_was_learnt_is_not_matched_again(monkeypatch: pytest.MonkeyPatch) -> None:
    pattern, names = TopicPattern("a.*|b"), ["a", "ab", "b", "bb", "c"]
    at_once(pattern.learn(names))
    monkeypatch.setattr(TopicPattern, "match", None)
    assert pattern.matching(names) == {"a", "ab", "b"}
    assert pattern.matches("ab")
    assert not pattern.matches("c")
    assert pattern.matching(names[:2]) == {"a", "ab"}
    assert pattern._known.keys() == {"a", "ab"}  # those that are gone are forgotten


def test_a_pattern_with_many_states_is_followed_in_steps() -> None:
    """Else one name could hold up everybody for as long as a second."""
    pattern = TopicPattern("(.*a.{1000}){5}")
    steps = sum(1 for _ in pattern.learn(["a" * 249]))
    assert steps > 249 / 10
    assert pattern.matches("a" * 249) is False


def test_patterns_are_shared_while_they_are_in_use() -> None:
    patterns: Patterns = WeakValueDictionary()
    one = pattern_of("a.*", patterns)
    assert pattern_of("a.*", patterns) is one
    del one
    assert not patterns
