"""The assignor `simple`: all partitions are read, by as many members as there are to spare. Pure.

Each partition has as many members as the group has for each of its partitions, rounded up; each member has as many
partitions as any other, or one more. Members keep what they have as far as that allows.
"""

from __future__ import annotations

from collections.abc import Mapping

from minibroker.broker.wings.share.group import NOTHING, Assignment


def assign(
    subscribed: Mapping[str, frozenset[bytes]],
    partitions: Mapping[bytes, frozenset[int]],
    old: Mapping[str, Assignment],
) -> dict[str, Assignment]:
    """Return the assignment of each member. `subscribed` are its topic ids, `partitions` those that can be read."""
    found: dict[str, dict[bytes, set[int]]] = {member_id: {} for member_id in subscribed}
    sizes = dict.fromkeys(subscribed, 0)
    for topic_id in sorted(partitions):
        members = [each for each, topics in subscribed.items() if topic_id in topics]
        if not members:
            continue
        numbers = sorted(partitions[topic_id])
        sharing = -(-len(members) // len(numbers))
        most = -(-len(numbers) * sharing // len(members))
        readers: dict[int, list[str]] = {number: [] for number in numbers}
        for member_id in members:
            kept = sorted(old.get(member_id, NOTHING).get(topic_id, frozenset()) & partitions[topic_id])
            for number in [each for each in kept if len(readers[each]) < sharing][:most]:
                readers[number].append(member_id)
        load = {each: sum(each in those for those in readers.values()) for each in members}
        for number in numbers:
            while len(readers[number]) < sharing:
                free = [each for each in members if each not in readers[number]]
                if not free or (readers[number] and load[min(free, key=lambda each: load[each])] >= most):
                    break
                chosen = min(free, key=lambda each: (load[each], sizes[each]))
                readers[number].append(chosen)
                load[chosen] += 1
        for number, those in readers.items():
            for member_id in those:
                found[member_id].setdefault(topic_id, set()).add(number)
        for member_id in members:
            sizes[member_id] += load[member_id]
    return {each: {topic_id: frozenset(those) for topic_id, those in topics.items()} for each, topics in found.items()}
