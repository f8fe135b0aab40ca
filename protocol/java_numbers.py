"""Reads and writes numbers as java.lang.Integer, Long and Double do, for settings: Python takes other texts.

This module imports little: a broker reads its settings before it listens.
"""

from __future__ import annotations

import re
from math import isfinite, isnan

WHOLE = re.compile(r"[+-]?(?:(?![^\u0000-\uffff])\d)+")  # with the digits of any script in the basic plane
DECIMAL = re.compile(r"([+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?)[fFdD]?")
HEXADECIMAL = re.compile(r"([+-]?0[xX]([0-9a-fA-F]+\.?[0-9a-fA-F]*|\.[0-9a-fA-F]+)[pP][+-]?[0-9]+)[fFdD]?")
NAMED = re.compile(r"[+-]?(NaN|Infinity)")


def parse_whole(text: str, bits: int) -> int:
    """Raises ValueError for text that is not a whole number of so many bits."""
    limit = 1 << bits - 1
    if WHOLE.fullmatch(text) is None or not -limit <= int(text) < limit:
        raise ValueError(f"{text!r} is not a number of {bits} bits")
    return int(text)


def parse_double(text: str) -> float:
    """Raises ValueError."""
    match = HEXADECIMAL.fullmatch(text)
    if match is not None:
        try:
            return float.fromhex(match[1])
        except OverflowError:
            return float("-inf" if text.startswith("-") else "inf")
    match = DECIMAL.fullmatch(text)
    if match is not None:
        return float(match[1])
    if NAMED.fullmatch(text) is not None:
        return float(text)
    raise ValueError(f"{text!r} is not a number")


def double_text(value: float) -> str:
    """1.0, 1.0E7, 1.7976931348623157E308, NaN, -Infinity."""
    if not isfinite(value):
        return "NaN" if isnan(value) else "-Infinity" if value < 0 else "Infinity"
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return repr(value)
    from decimal import Decimal

    sign, digits, exponent = Decimal(repr(value)).normalize().as_tuple()
    first, rest = digits[0], "".join(map(str, digits[1:])) or "0"
    return f"{'-' * sign}{first}.{rest}E{int(exponent) + len(digits) - 1}"
