"""The samples of `make test`: every value, or every pair of values, is in one of them."""

from __future__ import annotations

import itertools
from typing import Any

from tests.matrices import each_once, pairwise

NUMBERS, LETTERS, SIGNS = range(4), "abc", "+-"


def sampled(parameters: list[Any]) -> list[tuple[Any, ...]]:
    return [each.values for each in parameters if not each.marks]


def test_each_pair_of_values_is_in_the_sample_and_every_combination_is_there_at_night() -> None:
    parameters = pairwise(NUMBERS, LETTERS, SIGNS)

    sample = sampled(parameters)

    assert len(sample) == len(NUMBERS) * len(LETTERS)
    for first, second in itertools.combinations(range(3), 2):
        pairs = {(each[first], each[second]) for each in (one.values for one in parameters)}
        assert {(each[first], each[second]) for each in sample} == pairs
    assert [each.values for each in parameters] == list(itertools.product(NUMBERS, LETTERS, SIGNS))


def test_each_value_is_in_the_sample() -> None:
    parameters = each_once(NUMBERS, LETTERS)

    sample = sampled(parameters)

    assert sample == [(0, "a"), (1, "b"), (2, "c"), (3, "a")]
    assert [each.values for each in parameters] == list(itertools.product(NUMBERS, LETTERS))
