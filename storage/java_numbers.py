"""The numbers in settings as Java reads and writes them.

Kafka parses a value by Integer.parseInt, Long.parseLong or Double.parseDouble, and DescribeConfigs shows the parsed
number. This module imports little: a broker reads its settings before it listens.
"""

from __future__ import annotations

import math
import re

# int() alone would take "1_000", and digits outside of the basic plane, which Java does not.
WHOLE_NUMBER = re.compile(r"[+-]?(?:(?![^\u0000-\uffff])\d)+")
_DOUBLE_TEXT = re.compile(
    r"[+-]?(NaN|Infinity|(([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?"
    r"|0[xX]([0-9a-fA-F]+\.?|[0-9a-fA-F]*\.[0-9a-fA-F]+)[pP][+-]?[0-9]+)[fFdD]?)"
)


def parse_double(text: str) -> float:
    """Parse a number as Java's Double.parseDouble does: NaN, hexadecimal digits and a suffix too. Raises ValueError."""
    if _DOUBLE_TEXT.fullmatch(text) is None:
        raise ValueError("Not a number of type DOUBLE")
    if "x" not in text.lower():
        return float(text.rstrip("fFdD"))
    try:
        return float.fromhex(text.rstrip("fFdD"))
    except OverflowError:
        return -math.inf if text.startswith("-") else math.inf


def double_text(value: float) -> str:
    """Return the number as Java's Double.toString writes it: 1.0E-4, 0.5, NaN."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return repr(value)
    from decimal import Decimal

    sign, digits, exponent = Decimal(repr(value)).as_tuple()
    text = "".join(map(str, digits)).rstrip("0")
    exponent = int(exponent) + len(digits) - 1
    return f"{'-' if sign else ''}{text[0]}.{text[1:] or '0'}E{exponent}"
