"""Regular expressions of topics and other names: the syntax of RE2, matched in bounded time, with re2j's messages."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minibroker.protocol.regular_expressions import Regex, RegexError

MATCHES = [
    ("flights.*", "flights", True),
    ("flights", "flights-eu", False),
    ("a|b", "b", True),
    ("[^a-c]+", "dea", False),
    (r"gate-\d{2,3}", "gate-12", True),
    (r"gate-\d{2,3}", "gate-1234", False),
    ("a{2}", "aa", True),
    ("a{2,}", "a", False),
    ("a{,2}", "aa", False),  # a brace like any other character
    ("(?i)ABC", "aBc", True),
    ("(?i:A)B", "ab", False),
    ("(?i)a(?-i)B", "AB", True),
    ("^abc$", "abc", True),
    (r"\Aabc\z", "abc", True),
    ("a^b", "ab", False),
    (r"\bfoo\b.*", "foo.x", True),
    (r"\bfoo\b.*", "foox", False),
    (r"foo\B.*", "foox", True),
    (r"\Qa.b\E.*", "a.bc", True),
    (r"\Qa.b", "axb", False),
    ("[[:alpha:]]+", "abc", True),
    ("[[:^alpha:]]+", "12", True),
    ("[[:alpha:]]+", "a1", False),
    (r"[\w.]+", "a.b", True),
    (r"[a\-z]", "-", True),
    ("[]a]+", "a", True),
    ("(?P<name>a)b?", "a", True),
    ("a*?b+?", "aab", True),
    (r"\x61\x{62}\.", "ab.", True),
    (r"\S+\D", "12a", True),
    ("a b", "ab", False),
    ("ä|a", "a", True),
    ("a b", "a b", True),
    (r"orders:\d+/.*", "orders:7/ä€😀", True),
    ("[à-ü]+", "éa", False),
    ("[à-ü]+", "é", True),
    ("(?i)É[^b]", "éß", True),
    ("(?i)[^b]", "B", False),
    ("(?i)[a-fÀ-Ü]", "E", True),
    ("(?i)[^B-Z]+", "Aa", True),
    ("(?i)[^B-Z]+", "x", False),
    ("(?i)[À-Ü]", "à", False),  # ranges beyond ASCII are taken as they are
    ("(?i)ß", "S", False),
    (r"a\sb\t[[:punct:]]", "a b\t:", True),
    (r"[^\w]+", ": ", True),
    (r"[\C]+", "ä\n", True),
    ("a.", "a\n", False),
    ("(?s)a.", "a\n", True),
    ("(?s:a.).", "a\n\n", False),
    ("", "a", False),
    ("()|x*", "", True),
]
REFUSED = {
    "t[": "missing closing ]",
    "[a-": "missing closing ]",
    "(": "missing closing )",
    "a)": "unexpected )",
    "*": "missing argument to repetition operator",
    "a**": "invalid nested repetition operator",
    "a{2}{3}": "invalid nested repetition operator",
    "a{1001}": "invalid repeat count",
    "a{2,1}": "invalid repeat count",
    "\\": "trailing backslash at end of expression",
    "[b-a]": "invalid character class range",
    r"[a-\d]": "invalid character class range",
    "[[:foo:]]": "invalid character class range",
    "(?=a)": "invalid or unsupported Perl syntax",
    "(?i": "invalid or unsupported Perl syntax",
    r"(a)\1": "invalid escape sequence",
    r"\pL": "invalid escape sequence",
    r"\x6": "invalid escape sequence",
    "(?P<x": "invalid named capture",
    "((a{100}){100}){100}": "expression is too large",
    "(" * 101 + ")" * 101: "expression nests too deeply",
    "a" * 5001: "expression is too large",
}


@pytest.mark.parametrize(("pattern", "name", "matches"), MATCHES)
def test_an_expression_matches_whole_texts(pattern: str, name: str, matches: bool) -> None:
    assert Regex(pattern).matches(name) is matches


@pytest.mark.parametrize("pattern", REFUSED)
def test_a_malformed_expression_is_refused_with_the_reason(pattern: str) -> None:
    with pytest.raises(RegexError, match=re.escape(REFUSED[pattern])):
        Regex(pattern)


ATOMS = st.sampled_from(["a", "b", ".", "[ab]", "[^a]", "[à-ü]", r"\w", r"\S", "-", r"\.", "^", "$"])
PATTERNS = st.recursive(
    ATOMS,
    lambda inner: st.one_of(
        st.lists(inner, min_size=1, max_size=3).map("".join),
        st.lists(inner, min_size=2, max_size=3).map(lambda parts: "(" + "|".join(parts) + ")"),
        st.tuples(inner, st.sampled_from("*+?")).map(lambda each: f"(?:{each[0]}){each[1]}"),
        inner.map(lambda part: f"(?:{part}){{1,2}}"),
    ),
    max_leaves=6,
)


@given(pattern=PATTERNS, names=st.lists(st.text("ab-. é", max_size=6), max_size=5))
def test_python_matches_the_same_texts(pattern: str, names: list[str]) -> None:
    regex = Regex(pattern)

    assert [regex.matches(name) for name in names] == [
        re.fullmatch(pattern, name, re.ASCII) is not None for name in names
    ]


def test_an_expression_that_python_would_take_years_for_takes_no_time() -> None:
    began = time.perf_counter()

    assert not Regex("(a+)+b").matches("a" * 249)
    assert Regex("(a?){200}(a{1,10}){1,10}").matches("a" * 249)
    assert not Regex("(?i)" + r"[a-\x{5ff}]" * 400).matches("a" * 249)
    assert not Regex(f"[{''.join(map(chr, range(256, 2256, 2)))}]" + "{1000}").matches("a" * 249)
    assert time.perf_counter() - began < 2
