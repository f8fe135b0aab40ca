"""Reads and writes the value of a `sasl.jaas.config`: `MODULE required key="value" ... ;`, as kafka 2.0.1 JaasConfig.

A JAAS file has such entries in sections, `KafkaServer { ENTRY ENTRY };`, as jdk 17 sun.security.provider.ConfigFile.

The words are those of java.io.StreamTokenizer: quoted texts with escapes, both kinds of comments, and numbers, which
are not texts: a password of digits needs quotes. A message names options that Kafka has, and never shows another word:
it may be a part of a password.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

CONTROL_FLAGS = ("REQUIRED", "REQUISITE", "SUFFICIENT", "OPTIONAL")
KNOWN_OPTION = re.compile(r"username|password|tokenauth|user_\w+|unsecured(Login|Validator)\w+")

WORDS = re.compile(
    r"""
      (?P<skipped> [\x00-\x20]+ | //[^\r\n]* | /\*(?:.|\n)*?(?:\*/|\Z) )
    | (?P<quoted> (?P<quote>["'])(?P<text>(?:\\.|(?!(?P=quote))[^\\\r\n])*)(?:(?P=quote)|(?=[\r\n])|\Z) )
    | (?P<number> -?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+) )
    | (?P<word> [A-Za-z_$\xa0-\U0010ffff][A-Za-z0-9._$\xa0-\U0010ffff-]* )
    | (?P<other> (?:.|\n) )
    """,
    re.VERBOSE,
)
ESCAPE = re.compile(r"\\([0-3]?[0-7]{1,2}|.)", re.DOTALL)
ESCAPED = {"a": "\x07", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\x0b"}


class JaasError(ValueError):
    """A malformed entry; the message is Kafka's, without the name of the setting."""


class LoginModule(NamedTuple):
    """One entry. `repr` shows no value of an option."""

    name: str
    options: dict[str, str]

    def __repr__(self) -> str:
        return f"LoginModule({self.name}, {sorted(self.options)})"


class Word(NamedTuple):
    """`text` is None for a number or a single character, which Kafka does not take as text.

    `character` is that character.
    """

    text: str | None
    character: str = ""


END = Word(None, "end")


def parse_jaas(text: str) -> LoginModule:
    """Parse the only entry of a setting. Raises JaasError."""
    entries = list(entries_of(Words(text)))
    if not entries:
        raise JaasError("Login module not specified in JAAS config")
    if len(entries) > 1:
        raise JaasError(f"JAAS config property contains {len(entries)} login modules, should be 1 module")
    return entries[0]


def parse_jaas_file(text: str) -> dict[str, list[LoginModule]]:
    """Parse the sections of a file. Raises JaasError with the line."""
    words = Words(text)
    sections: dict[str, list[LoginModule]] = {}
    try:
        for name in words:
            if name.text is None or next(words, END).character != "{":
                raise JaasError('a section is NAME { MODULE FLAG OPTION="VALUE"; };')
            sections[name.text] = list(entries_of(words))
            if next(words, END).character != ";":
                raise JaasError("a section ends with };")
    except JaasError as error:
        raise JaasError(f"line {words.line}: {error}") from None
    return sections


def entries_of(words: Words) -> Iterator[LoginModule]:
    """The entries up to the end, or to that of the section."""
    for first in words:
        if first.character == "}":
            return
        flag = next(words, END)
        if flag is END:
            raise JaasError("Login module control flag not specified in JAAS config")
        if flag.text is None:
            raise JaasError("Login module control flag is not available in the JAAS config")
        if flag.text.upper() not in CONTROL_FLAGS:
            raise JaasError(f"Invalid login module control flag '{flag.text}' in JAAS config")
        yield LoginModule(first.text or "", dict(options_of(words)))


def options_of(words: Iterator[Word]) -> Iterator[tuple[str, str]]:
    """The options up to the semicolon."""
    for word in words:
        if word.character == ";":
            return
        key = word.text
        if next(words, END).character != "=" or (value := next(words, END).text) is None:
            shown = f" for key '{key}'" if key is not None and KNOWN_OPTION.fullmatch(key) else ""
            raise JaasError(f"Value not specified{shown} in JAAS config")
        yield key or "", value
    raise JaasError("JAAS config entry not terminated by semi-colon")


class Words(Iterator[Word]):
    """The words of a text."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._matches = WORDS.finditer(text)
        self._start = 0  # of the last word

    def __next__(self) -> Word:
        match = next(self._matches)
        while match["skipped"] is not None:
            match = next(self._matches)
        self._start = match.start()
        if match["quoted"] is not None:
            return Word(ESCAPE.sub(unescaped, match["text"]))
        if match["word"] is not None:
            return Word(match["word"])
        return Word(None, "" if match["number"] is not None else match["other"])

    @property
    def line(self) -> int:
        """The line of the last word, from 1."""
        return self._text.count("\n", 0, self._start) + 1


def unescaped(match: re.Match[str]) -> str:
    escaped = match[1]
    return chr(int(escaped, 8)) if escaped[0] in "01234567" else ESCAPED.get(escaped, escaped)


def written_jaas(module: str, options: Mapping[str, str]) -> str:
    """The entry of a login module; names that are no words, such as `user_a b`, are quoted too."""
    words = (f"{name if name.isidentifier() else quoted(name)}={quoted(value)}" for name, value in options.items())
    return f"{module} required {' '.join(words)};"


def quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
