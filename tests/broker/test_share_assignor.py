"""The assignor of share groups, with drawn members and partitions."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from minibroker.broker.wings.share.assignor import assign

TOPICS = (b"a" * 16, b"b" * 16)


@pytest.mark.parametrize("seed", range(60))
def test_each_partition_is_read_by_as_many_members_and_each_member_reads_as_much(seed: int) -> None:
    chance = random.Random(seed)
    members = [f"m{number}" for number in range(chance.randint(1, 9))]
    topic = TOPICS[0]
    numbers = frozenset(range(chance.randint(1, 9)))
    found = assign({each: frozenset({topic}) for each in members}, {topic: numbers}, {})

    readers = Counter(number for each in found.values() for number in each.get(topic, ()))
    loads = [len(found[each].get(topic, ())) for each in members]
    assert readers.keys() == numbers
    assert max(readers.values()) <= -(-len(members) // len(numbers))
    assert min(loads) >= 1 or len(members) < len(numbers)
    assert max(loads) - min(loads) <= 1


@pytest.mark.parametrize("seed", range(40))
def test_members_keep_what_they_have(seed: int) -> None:
    chance = random.Random(seed)
    numbers = {topic: frozenset(range(chance.randint(1, 6))) for topic in TOPICS}
    subscribed = {f"m{number}": frozenset(chance.sample(TOPICS, chance.randint(1, 2))) for number in range(5)}
    before = assign(dict(reversed(subscribed.items())), numbers, {})

    assert assign(subscribed, numbers, before) == before
    assert all(topics <= subscribed[each] for each, topics in ((name, set(old)) for name, old in before.items()))
