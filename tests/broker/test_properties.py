"""Properties files as java.util.Properties reads them; every expected value here was printed by JDK 17."""

from __future__ import annotations

import pytest

from minibroker.broker.config.properties import PropertiesError, parse_properties, read_properties


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a=1\nb:2\nc 3", {"a": "1", "b": "2", "c": "3"}),
        ("sp  :  x : y", {"sp": "x : y"}),
        ("eq==x\nco=:x\nb =: d", {"eq": "=x", "co": ":x", "b": ": d"}),
        ("tabs\t=\tv", {"tabs": "v"}),
        ("trailing = 4 ", {"trailing": "4 "}),
        ("nothing\nempty=", {"nothing": "", "empty": ""}),
        ("=no key", {"": "no key"}),
        ("  # a\n! b\n\n   \n#c\\\nd=1", {"d": "1"}),
        ("a=b # not a comment", {"a": "b # not a comment"}),
        ("a=1\na=2", {"a": "2"}),
        ("e\\ f=g\nk\\=x\\:y=z\n\\=d", {"e f": "g", "k=x:y": "z", "=d": ""}),
        ("dir=C:\\\\new\\\\top", {"dir": "C:\\new\\top"}),
        ("esc=\\t\\n\\r\\f\\z\\\\\\u0041", {"esc": "\t\n\r\fz\\A"}),
        ("u=\\U0041\\u00E9", {"u": "U0041é"}),
        ("pair=\\ud83d\\ude00", {"pair": "\U0001f600"}),
        ("a=b\rc=d\r\ne=f\n\fg\fh", {"a": "b", "c": "d", "e": "f", "g": "h"}),
        ("vertical\x0btab=\u2028x", {"vertical\x0btab": "\u2028x"}),
    ],
)
def test_entries(text: str, expected: dict[str, str]) -> None:
    assert read_properties(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("long=one,\\\n     two,\\\r\n\tthree", {"long": "one,two,three"}),
        ("cont\\\n   key=v", {"contkey": "v"}),
        ("k \\\n = v", {"k": "v"}),
        ("c= \\\n   \\\n   v", {"c": "v"}),
        ("even=x\\\\\nb=1", {"even": "x\\", "b": "1"}),
        ("a=x\\\n# not a comment\nb=1", {"a": "x# not a comment", "b": "1"}),
        ("a=x\\\n   \n  b=1", {"a": "x", "b": "1"}),
        ("\\\n#x=1\n  \\\n  y=2", {"y": "2"}),
        ("end=x\\", {"end": "x"}),
        ("a=1\n\\", {"a": "1"}),
    ],
)
def test_lines_are_continued_after_a_backslash(text: str, expected: dict[str, str]) -> None:
    assert read_properties(text) == expected


def test_an_entry_knows_the_line_it_starts_on() -> None:
    text = "# one\r\na=1\n\nb=2,\\\n  3\nc=4"

    assert [(entry.key, entry.line) for entry in parse_properties(text)] == [("a", 2), ("b", 4), ("c", 6)]


@pytest.mark.parametrize("text", ["x=\\u12", "x=\\u12g4", "\\u=1"])
def test_a_broken_escape_is_refused_with_its_line(text: str) -> None:
    with pytest.raises(PropertiesError, match=r"line 2: .*hexadecimal"):
        read_properties(f"a=1\n{text}")
