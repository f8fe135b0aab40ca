"""Reads the text of a `.properties` file exactly as java.util.Properties does (compared with JDK 17).

A logical line is a natural line, continued by the next ones while it ends in an odd number of backslashes;
white space in front of each is dropped. `#` and `!` start a comment only where a logical line starts. The key
ends at the first unescaped `=`, `:` or white space; one `=` or `:` and the white space around it separate it
from the value, which keeps its trailing white space. `\\t \\n \\r \\f \\uXXXX` stand for characters, any
other escaped character for itself. One difference: a backslash alone on the last line is no entry.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

WHITE_SPACE = " \t\f"
NATURAL_LINE_END = re.compile(r"\r\n|\n|\r")
KEY = re.compile(r"(?:\\.|[^\\=: \t\f])*\\?", re.DOTALL)
SEPARATOR = re.compile(r"[ \t\f]*(?:[=:][ \t\f]*)?")
ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.?)", re.DOTALL)
CONTROL_CHARACTERS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


class Property(NamedTuple):
    key: str
    value: str
    line: int  # the natural line it starts on, from 1


class PropertiesError(ValueError):
    """Not the text of a properties file; the message names the line."""


def read_properties(text: str) -> dict[str, str]:
    """The last value of each key. Raises PropertiesError."""
    return {entry.key: entry.value for entry in parse_properties(text)}


def parse_properties(text: str) -> Iterator[Property]:
    """Every entry in order, repeated keys too. Raises PropertiesError."""
    for number, line in logical_lines(text):
        key = KEY.match(line)
        assert key is not None  # the pattern matches anything
        separator = SEPARATOR.match(line, key.end())
        assert separator is not None
        yield Property(unescape(key[0], number), unescape(line[separator.end() :], number), number)


def logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Each line that holds an entry, with the number of the natural line it starts on."""
    collected = ""
    start = 0
    for number, natural in enumerate(NATURAL_LINE_END.split(text), 1):
        line = natural.lstrip(WHITE_SPACE)
        if not collected:
            if not line or line[0] in "#!":
                continue
            start = number
        backslashes = len(line) - len(line.rstrip("\\"))
        if backslashes % 2:
            collected += line[:-1]
            continue
        yield start, collected + line
        collected = ""
    if collected:
        yield start, collected


def unescape(text: str, line: int) -> str:
    if "\\" not in text:
        return text

    def character(match: re.Match[str]) -> str:
        escaped = match[1]
        if len(escaped) == 5:
            return chr(int(escaped[1:], 16))
        if escaped == "u":
            raise PropertiesError(f"line {line}: \\u must be followed by four hexadecimal digits")
        return CONTROL_CHARACTERS.get(escaped, escaped)

    plain = ESCAPE.sub(character, text)
    # Java's characters are UTF-16: beyond the first 65,536 they are written as two escapes.
    return plain.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")
