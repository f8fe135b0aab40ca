"""Writes the generated codecs out as modules, which mypyc compiles (build_tools/compiled_form.py).

A module has the codecs of one family of messages, those that a broker needs: decoders of requests, encoders of
responses, both of the records in internal topics. Their lines are those that run in the pure form, with the types of
what must not be boxed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import ModuleType
from typing import NamedTuple

from minibroker.protocol import (
    codegen,
    consumer_group_records,
    consumer_protocol,
    group_records,
    messages,
    transaction_records,
)
from minibroker.protocol.api import API_TABLE
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


class Family(NamedTuple):
    """The messages that one module declares: those to decode, and those to encode."""

    module: str
    decoded: list[Message]
    encoded: list[Message]


def modules(chosen: Sequence[str]) -> dict[str, str]:
    """The source of each module of these families, by its name; and of `index`."""
    written = {}
    homes: dict[str, str] = {}
    for name, family in families().items():
        if name not in chosen:
            continue
        written[name] = "\n".join(lines_of(family)) + "\n"
        homes |= {message.name: name for message in (*family.decoded, *family.encoded)}
    written["index"] = f'"""The module of each message."""\n\nMODULES = {homes!r}\n'
    return written


def families() -> dict[str, Family]:
    """All families, by the names of the modules that declare them."""
    found: dict[str, Family] = {}
    for api in API_TABLE.values():
        module = home_of(api.request)
        family = found.setdefault(last_name(module), Family(module, [], []))
        family.decoded.append(api.request)
        family.encoded.append(api.response)
    for records in (consumer_group_records, consumer_protocol, group_records, transaction_records):
        declared = [each for each in vars(records).values() if isinstance(each, Message)]
        found[last_name(records.__name__)] = Family(records.__name__, declared, declared)
    return found


def home_of(message: Message) -> str:
    (home,) = (
        module.__name__
        for module in vars(messages).values()
        if isinstance(module, ModuleType) and getattr(module, message.name, None) is message
    )
    return home


def last_name(module: str) -> str:
    return module.rpartition(".")[2]


def lines_of(family: Family) -> list[str]:
    """The lines of one module: constants, functions, and two tables of them by message and version."""
    names = sorted({message.name for message in (*family.decoded, *family.encoded)})
    writer = ModuleWriter()
    decoders = list(writer.rows(family.decoded, "decode", DECODE, decoder_source))
    encoders = list(writer.rows(family.encoded, "encode", ENCODE, encoder_source))
    return [
        f'"""Codecs of {family.module}, written by codegen_module.py."""',
        "",
        "import struct",
        "from typing import Any, Final, cast",
        "",
        f"from minibroker.protocol.codegen import LAST_BYTE, malformed, {', '.join(HELPERS)}",
        f"from {family.module} import {', '.join(names)}",
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

    def rows(
        self, messages: Iterable[Message], verb: str, signature: str, source_of: Callable[[Message, int], Source]
    ) -> Iterator[str]:
        """Write a function for each version of the messages; yield its row of the table."""
        for message in messages:
            for version in range(message.first_version, message.last_version + 1):
                name = f"{verb}_{message.name}_v{version}"
                name = self.function(message.name, name, signature, source_of(message, version))
                yield f"    ({message.name!r}, {version}): {name},"

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
