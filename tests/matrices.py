"""Products of what tests vary: pairs of values in `make test`, every combination in `make nightly`."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Any

import pytest


def pairwise(*choices: Iterable[Any]) -> list[Any]:
    """Parameters for every combination; marked nightly, unless a pair of values is seen there first."""
    combinations = list(itertools.product(*map(list, choices)))
    chosen = covering(combinations)
    return [
        pytest.param(*each, marks=[] if number in chosen else [pytest.mark.nightly])
        for number, each in enumerate(combinations)
    ]


def each_once(first: Iterable[Any], second: Iterable[Any]) -> list[Any]:
    """Parameters for every combination; marked nightly, unless it is one of so few that have each value."""
    these, those = list(first), list(second)
    sample = {(i % len(these), i % len(those)) for i in range(max(len(these), len(those)))}
    return [
        pytest.param(this, that, marks=[] if (i, j) in sample else [pytest.mark.nightly])
        for i, this in enumerate(these)
        for j, that in enumerate(those)
    ]


def covering(combinations: list[tuple[Any, ...]]) -> set[int]:
    """Numbers of so few combinations, or nearly, that each pair of values is in one of them: the greedy choice."""
    pairs = [set(itertools.combinations(enumerate(each), 2)) for each in combinations]
    missing = set().union(*pairs)
    chosen: set[int] = set()
    while missing:
        best = max(range(len(combinations)), key=lambda number: len(pairs[number] & missing))
        chosen.add(best)
        missing -= pairs[best]
    return chosen
