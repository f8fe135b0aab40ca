"""Reads batches of a topic from the leaders of its partitions, as they are; a fetch names 200 partitions at most."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from minibroker.any_cluster.batch_fetching import PARTITION_BYTES, Fetched, asked, rows_of, taken
from minibroker.console.metadata import TopicRow
from minibroker.protocol.message_set import read_message_header
from minibroker.protocol.record_batch import MAGIC_AT, read_header

if TYPE_CHECKING:
    from minibroker.any_cluster.cluster import TopicPartition

PARTITIONS_A_REQUEST = 200
UNKNOWN = -1  # offset
HEADER_BYTES = 61
HEADER_BYTES_MIN = 26  # of a message before 0.11 with a time


def fetch(
    client: Any,
    topic: TopicRow,
    positions: Mapping[int, int],
    *,
    committed: bool,
    max_wait_ms: int = 0,
    partition_bytes: int = PARTITION_BYTES,
) -> list[Fetched]:
    """Ask the leaders of these partitions at once. Raises NoAnswer if none answers; of one alone it is noted."""
    from minibroker.any_cluster.cluster import of_each

    leaders: dict[int, list[int]] = {}
    for each in topic.partitions:
        if each.partition in positions and each.leader is not None:
            leaders.setdefault(each.leader, []).append(each.partition)

    def ask(leader: int) -> list[Fetched]:
        fetched = []
        for start in range(0, len(leaders[leader]), PARTITIONS_A_REQUEST):
            chosen = {at: positions[at] for at in leaders[leader][start : start + PARTITIONS_A_REQUEST]}
            answer = asked(client, leader, topic.name, chosen, committed, max_wait_ms, partition_bytes)
            fetched += [taken(row, chosen[row.partition_index], committed) for row in rows_of(answer)]
        return fetched

    answers = of_each(client, leaders, ask, "what it leads")
    unanswered = [
        Fetched(at, positions[at], positions[at], UNKNOWN, [], f"its leader, broker {leader}, does not answer")
        for leader, partitions in leaders.items()
        for at in partitions
        if leader not in answers
    ]
    return [each for fetched in answers.values() for each in fetched] + unanswered


def first_timestamps(
    client: Any, topics: Mapping[str, TopicRow], places: Iterable[tuple[TopicPartition, int]]
) -> dict[tuple[TopicPartition, int], int]:
    """The time of the first record of the batch at each offset, in ms since 1970: from its header.

    What a leader refuses is left out; one that does not answer is noted.
    """
    from minibroker.any_cluster.cluster import NoAnswer, at_once, lacks_answer

    def ask(leader: int, at: TopicPartition, position: int) -> list[Any]:
        return list(rows_of(asked(client, leader, at.topic, {at.partition: position}, False, 0, HEADER_BYTES)))

    def leader_of(at: TopicPartition) -> int | None:
        partitions = topics[at.topic].partitions if at.topic in topics else ()
        return next((each.leader for each in partitions if each.partition == at.partition), None)

    # One request each: of several partitions in one, only the first is sure to bring a batch (KIP-74).
    answers = at_once(
        {
            (at, position): partial(ask, leader, at, position)
            for at, position in places
            if (leader := leader_of(at)) is not None
        }
    )
    found: dict[tuple[TopicPartition, int], int] = {}
    for place, answer in answers.items():
        if isinstance(answer, NoAnswer):
            lacks_answer(answer, "since when its messages wait")
        elif isinstance(answer, Exception):
            raise answer
        else:
            for row in answer:
                if not row.error_code and row.records and len(row.records) >= HEADER_BYTES_MIN:
                    found[place] = first_timestamp(bytes(row.records))
    return found


def first_timestamp(data: bytes) -> int:
    """Of the batch or message that the data begins with; -1 if its format has none."""
    if data[MAGIC_AT] >= 2:
        return int(read_header(data, 0).base_timestamp)
    return int(read_message_header(data, 0).timestamp)
