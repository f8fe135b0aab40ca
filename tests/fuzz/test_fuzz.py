"""A few hundred inputs of each target: mutations that a seed draws, and what fuzzing by coverage has kept."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import closing
from random import Random

import pytest

from tests.fuzz.table import TARGETS
from tests.fuzz.targets import Finding, Target, corpus, warm_up

pytestmark = pytest.mark.pure  # the compiled form runs the same rules

MUTATIONS = 400
MORE_MUTATIONS = 200_000
# Lengths and counts that lie, signs, continued varints, and names that there are.
PIECES = [
    bytes.fromhex(each) for each in "00 ff 7fffffff 80000000 ffffffff 00000000 ffffffff0f 8080808080 0001 7fff".split()
]
PIECES += [b"\0\x01t", b"\x02t", b"\0\x01g"]


@pytest.fixture(params=TARGETS)
def target(request: pytest.FixtureRequest) -> Iterator[Target]:
    with closing(TARGETS[request.param]()) as made:
        yield made


def mutated(inputs: list[bytes], chance: Random) -> bytes:
    """An input with a few bytes replaced, dropped, or put in from another one."""
    data = bytearray(chance.choice(inputs))
    for _ in range(chance.choice((1, 1, 1, 2, 3, 6))):
        at, kind = chance.randrange(len(data) + 1), chance.randrange(4)
        if kind == 0:
            data[at : at + chance.randrange(5)] = chance.choice(PIECES)
        elif kind == 1:
            data[at : at + 1] = bytes((chance.randrange(256),))
        elif kind == 2:
            del data[at : at + chance.randrange(4)]
        else:
            other = chance.choice(inputs)
            start = chance.randrange(len(other) + 1)
            data[at:at] = other[start : start + chance.randrange(20)]
    return bytes(data)


def try_out(target: Target, seed: int, mutations: int) -> None:
    """Try what there is, and mutations of it."""
    inputs = [*target.seeds(), *corpus(target.name)]
    warm_up(target, inputs)
    chance = Random(seed)
    for each in [*inputs, *(mutated(inputs, chance) for _ in range(mutations))]:
        try:
            target.run(each)
        except Finding as error:
            error.add_note(f"the input, to be kept in corpus/{target.name}.txt: {each.hex()}")
            raise


def test_any_bytes_end_in_an_error_of_their_own_and_cost_little(target: Target) -> None:
    try_out(target, 1, MUTATIONS)


@pytest.mark.nightly
def test_more_bytes_end_in_an_error_of_their_own_and_cost_little(target: Target) -> None:
    try_out(target, Random().randrange(sys.maxsize), MORE_MUTATIONS)
