"""Hashes of names as Java's."""

from __future__ import annotations

import pytest

from minibroker.protocol import java_hash as hashes
from minibroker.protocol.java_hash import abs_of, as_int, java_hash


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("", 0),
        ("a", 97),
        ("Aa", 2112),
        ("BB", 2112),
        ("hello world", 1794106052),
        ("polygenelubricants", -(2**31)),
        ("\N{MUSICAL SYMBOL G CLEF}", 0xD834 * 31 + 0xDD1E),
    ],
)
def test_a_name_has_the_hash_that_java_gives_it(name: str, expected: int) -> None:
    assert java_hash(name) == java_hash(name) == expected


def test_a_long_name_is_not_remembered() -> None:
    known = hashes._remembered_hash.cache_info().currsize

    assert java_hash("a" * 5000) == java_hash("a" * 5000)
    assert hashes._remembered_hash.cache_info().currsize == known


@pytest.mark.parametrize(("value", "expected"), [(5, 5), (-5, 5), (0, 0), (-(2**31), 0)])
def test_the_least_integer_has_no_positive_twin(value: int, expected: int) -> None:
    assert abs_of(value) == expected


@pytest.mark.parametrize(
    ("value", "expected"), [(5, 5), (-5, -5), (2**31, -(2**31)), (31 * (2**31 - 1), 2**31 - 31), (2**32, 0)]
)
def test_a_number_wraps_as_an_int(value: int, expected: int) -> None:
    assert as_int(value) == expected
