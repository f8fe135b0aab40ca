"""Writes the generated codecs out as modules, which mypyc compiles (compiled_form.py).

A module has the codecs of one family of messages, those that a broker needs: decoders of requests, encoders of
responses. Their lines are those that run in the pure form, with the types of what must not be boxed.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from types import ModuleType

from minibroker.protocol import codegen
from minibroker.protocol.api import API_TABLE, Api
from minibroker.protocol.codegen import Source
from minibroker.protocol.codegen_decoder import decoder_source
from minibroker.protocol.codegen_encoder import encoder_source
from minibroker.protocol.schema import Message

HELPERS = ("read_length", "read_string_length", "read_uvarint", "records_size", "skip_tagged_fields", "write_uvarint")
DECODE = "(buf: Any, pos: int, end: int) -> Any:"
ENCODE = "(value: Any) -> list[Any]:"
# Lengths, counts, tags and positions, by the names that the generators give them.
INTEGER = re.compile(r"\b(?:n|stop|tag)\d+\b")
COMPREHENSION = re.compile(r" for .* in ")
# The statements that take a tuple apart: mypyc asks an object without a type for an iterator.
TAKEN_APART = re.compile(r"(?P<before> *)(?P<names>(?:\w+, )+)= (?P<value>.*?)(?P<after>; pos \+= \d+)?")


def modules(homes_written: Sequence[str]) -> dict[str, str]:
    """The source of each module, by its name: that of the module with the declarations; and `index`."""
    written = {}
    homes: dict[str, str] = {}
    for home, apis in families().items():
        if home not in homes_written:
            continue
        written[home] = "\n".join(module(home, apis)) + "\n"
        homes |= {message.name: home for api in apis for message in (api.request, api.response)}
    written["index"] = f'"""The module of each message."""\n\nMODULES = {homes!r}\n'
    return written


def families() -> dict[str, list[Api]]:
    """The APIs of each module of declarations."""
    found: dict[str, list[Api]] = {}
    for api in API_TABLE.values():
        found.setdefault(home_of(api.request), []).append(api)
    return found


def home_of(message: Message) -> str:
    from minibroker.protocol import messages

    (home,) = (
        name
        for name, value in vars(messages).items()
        if isinstance(value, ModuleType) and getattr(value, message.name, None) is message
    )
    return home


def module(home: str, apis: list[Api]) -> list[str]:
    """The lines of one module: constants, functions, and two tables of them by message and version."""
    names = sorted({message.name for api in apis for message in (api.request, api.response)})
    writer = ModuleWriter()
    decoders: list[str] = []
    encoders: list[str] = []
    for api in apis:
        request, response = api.request, api.response
        for version in range(request.first_version, request.last_version + 1):
            decode, encode = f"decode_{request.name}_v{version}", f"encode_{response.name}_v{version}"
            decode = writer.function(request.name, decode, DECODE, decoder_source(request, version))
            encode = writer.function(response.name, encode, ENCODE, encoder_source(response, version))
            decoders.append(f"    ({request.name!r}, {version}): {decode},")
            encoders.append(f"    ({response.name!r}, {version}): {encode},")
    return [
        f'"""Codecs of messages/{home}.py, written by codegen_module.py."""',
        "",
        "import struct",
        "from typing import Any, Final, cast",
        "",
        f"from minibroker.protocol.codegen import LAST_BYTE, malformed, {', '.join(HELPERS)}",
        f"from minibroker.protocol.messages.{home} import {', '.join(names)}",
        "",
        "new: Final[Any] = tuple.__new__",
        "one_byte: Final = LAST_BYTE",
        *(f"{name}: Final[Any] = {text}" for text, name in writer.constants.items()),
        *writer.lines,
        *("", "", "DECODERS: dict[tuple[str, int], Any] = {", *decoders, "}"),
        *("ENCODERS: dict[tuple[str, int], Any] = {", *encoders, "}"),
    ]


class ModuleWriter:
    """The functions of a module, each once: neighbouring versions often have the same layout."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.constants: dict[str, str] = {}  # their names, by their text
        self._functions: dict[tuple[str, ...], str] = {}

    def function(self, message: str, name: str, signature: str, source: Source) -> str:
        """Write a function, if the message has none like it; return its name."""
        names = {each: self._constant(each, text) for each, text in source.written.items()}
        for each, inner in source.functions.items():
            arguments = inner.lines[0].removeprefix("def encode").removesuffix(":")
            names[each] = self.function(message, f"{each}_of_{name}", f"{arguments} -> bytes:", inner)
        if names:
            used = re.compile(rf"\b(?:{'|'.join(names)})\b")
            body = [used.sub(lambda found: names[found[0]], line) for line in source.lines[1:]]
        else:
            body = source.lines[1:]
        integers = {each for line in body for each in INTEGER.findall(COMPREHENSION.split(line)[0])}
        body = [taken_apart(line) for line in body]
        text = (message, signature, *(f"    {each}: int" for each in sorted(integers)), *body)
        known = self._functions.get(text)
        if known is not None:
            return known
        self._functions[text] = name
        self.lines += ["", "", f"def {name}{signature}", *text[2:]]
        return name

    def _constant(self, name: str, text: str) -> str:
        prefix = name.rstrip("0123456789")
        return self.constants.setdefault(text, f"{prefix}_{len(self.constants)}")


def taken_apart(line: str) -> str:
    """The line with the type of the tuple that it takes apart."""
    found = TAKEN_APART.fullmatch(line)
    if found is None:
        return line
    types = ["int" if INTEGER.fullmatch(name) else "Any" for name in found["names"].split(", ")[:-1]]
    value = f"cast('tuple[{', '.join(types)}]', {found['value']})"
    return f"{found['before']}{found['names']}= {value}{found['after'] or ''}"


# The names that generated functions use are those of `codegen`; a helper that is renamed there fails here.
assert all(hasattr(codegen, name) for name in HELPERS)
