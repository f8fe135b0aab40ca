"""All that is drawn at random: ids, the starts of sequences, jitter.

Nothing else in storage or in the broker's core draws (tests/test_layering.py). A simulation calls
`follow(Random(seed))` to have all of it follow from a seed.
"""

from __future__ import annotations

import uuid
from random import Random, SystemRandom

_source: Random = SystemRandom()


def follow(source: Random | None) -> None:
    """Draw from this source from now on; None: from the system's again."""
    global _source
    _source = SystemRandom() if source is None else source


def new_uuid() -> uuid.UUID:
    """Return a random UUID, of version 4."""
    return uuid.UUID(int=_source.getrandbits(128), version=4)


def below(end: int) -> int:
    """Return a number from 0 up to `end`, which it excludes."""
    return _source.randrange(end)


def generator() -> Random:
    """Return a generator that begins somewhere else each time."""
    return Random(_source.getrandbits(64))
