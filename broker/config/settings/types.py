"""Declares settings: Kafka's name, a type that reads and writes text, a default, a check.

A class attribute `num_partitions = setting(INT, 1, at_least(1), "...")` declares `num.partitions`. Read from the class
it is the Setting; an instance stores its value under the same name. Types, checks and their messages are those of kafka
2.0.1's ConfigDef.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Generic, NamedTuple, TypeVar, cast, overload

from minibroker.protocol.java_numbers import double_text, parse_double, parse_whole

T = TypeVar("T")
T_contra = TypeVar("T_contra", contravariant=True)

INT_MAX = 2**31 - 1
LONG_MAX = 2**63 - 1
DOUBLE_MAX = 1.7976931348623157e308
NUMBERS = ("SHORT", "INT", "LONG", "DOUBLE")
COMMA = re.compile(r"\s*,\s*")


class InvalidValueError(ValueError):
    """An invalid value of a setting; the message is Kafka's, without name and value.

    `shown` is the value as Kafka's message has it: a number out of bounds as Java writes it.
    """

    def __init__(self, problem: str, shown: str | None = None) -> None:
        super().__init__(problem)
        self.shown = shown


class Type(NamedTuple, Generic[T]):
    """Reads and writes the text of a value."""

    name: str  # as Kafka calls it
    parse: Callable[[str], T]
    format: Callable[[T], str]


class Check(NamedTuple, Generic[T_contra]):
    """`problem_with` returns the error of a value, or None; `allowed` describes the valid values."""

    problem_with: Callable[[T_contra], str | None]
    allowed: str


class Setting(Generic[T]):
    """One row of the table. It has no `__set__`: a value stored in an instance is read without a call."""

    name: str

    def __init__(self, kind: Type[T], default: T | None, check: Check[T], doc: str) -> None:
        self.kind = kind
        self.default = default
        self.check = check
        self.doc = doc

    def __set_name__(self, owner: type, attribute: str) -> None:
        self.name = attribute.replace("_", ".")

    @overload
    def __get__(self, instance: None, owner: type) -> Setting[T]: ...
    @overload
    def __get__(self, instance: object, owner: type) -> T: ...
    def __get__(self, instance: object, owner: type) -> Setting[T] | T:
        if instance is None:
            return self
        raise AttributeError(f"{self.name} has not been read")

    @property
    def is_sensitive(self) -> bool:
        return self.kind.name == "PASSWORD"

    @property
    def allowed(self) -> str:
        """The valid values, for messages: `an INT, 1 or more`."""
        article = "an" if self.kind.name == "INT" else "a"
        return f"{article} {self.kind.name}" + (f", {self.check.allowed}" if self.check.allowed else "")

    def read(self, text: str) -> T:
        """Parse and check a value. Raises InvalidValueError."""
        value = self.kind.parse(text.strip())
        problem = self.check.problem_with(value)
        if problem is not None:
            raise InvalidValueError(problem, self.kind.format(value) if self.kind.name in NUMBERS else None)
        return value

    def write(self, value: T | None) -> str | None:
        return None if value is None else self.kind.format(value)


def setting(kind: Type[T], default: T, check: Check[T], doc: str) -> Setting[T]:
    """A setting that always has a value."""
    return Setting(kind, default, check, doc)


def optional(kind: Type[T], check: Check[T], doc: str) -> Setting[T | None]:
    """A setting that is None unless it is set."""
    return cast("Setting[T | None]", Setting(kind, None, check, doc))


def at_least(minimum: int) -> Check[int]:
    return Check(lambda value: f"Value must be at least {minimum}" if value < minimum else None, f"{minimum} or more")


def one_of(*allowed: str) -> Check[str]:
    names = ", ".join(allowed)
    return Check(lambda value: None if value in allowed else f"String must be one of: {names}", f"one of {names}")


def some_of(*allowed: str) -> Check[tuple[str, ...]]:
    """Each element is one of `allowed`."""
    names = ", ".join(allowed)
    return Check(
        lambda values: None if set(values) <= set(allowed) else f"String must be one of: {names}",
        f"any of {names}",
    )


def _integer(name: str, bits: int) -> Type[int]:
    def parse(text: str) -> int:
        try:
            return parse_whole(text, bits)
        except ValueError:
            raise InvalidValueError(f"Not a number of type {name}") from None

    return Type(name, parse, str)


def _parse_double(text: str) -> float:
    try:
        return parse_double(text)
    except ValueError:
        raise InvalidValueError("Not a number of type DOUBLE") from None


def _parse_boolean(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise InvalidValueError("Expected value to be either true or false")
    return text.lower() == "true"


def _parse_class(text: str) -> str:
    """A Java class cannot be looked for here, but it has a name."""
    if not text:
        raise InvalidValueError("Class  could not be found.")
    return text


def _parse_list(text: str) -> tuple[str, ...]:
    return tuple(COMMA.split(text)) if text else ()


def _parse_principals(text: str) -> tuple[str, ...]:
    """Names of principals may have commas, so semicolons are between them."""
    principals = tuple(each.strip() for each in text.rstrip("; ").split(";")) if text.strip() else ()
    for each in principals:
        if ":" not in each:
            raise InvalidValueError(f"expected a string in format principalType:principalName but got {each}")
    return principals


SHORT = _integer("SHORT", 16)
INT = _integer("INT", 32)
LONG = _integer("LONG", 64)
DOUBLE = Type("DOUBLE", _parse_double, double_text)
BOOLEAN = Type("BOOLEAN", _parse_boolean, lambda value: "true" if value else "false")
LIST: Type[tuple[str, ...]] = Type("LIST", _parse_list, ",".join)
STRING = Type("STRING", str, str)
PRINCIPALS: Type[tuple[str, ...]] = Type("STRING", _parse_principals, ";".join)
PATH = Type("STRING", Path, str)
CLASS = Type("CLASS", _parse_class, str)
PASSWORD = Type("PASSWORD", str, str)
ANY: Check[object] = Check(lambda value: None, "")
