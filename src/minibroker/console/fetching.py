"""Reads batches of a topic from the leaders of its partitions; a fetch names 200 partitions at most."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from minibroker.any_cluster.batch_fetching import Fetched, rows_of, taken
from minibroker.any_cluster.cluster import lacks_answer, of_each
from minibroker.client.errors import NoAnswer
from minibroker.client.reading import PARTITION_BYTES, fetching
from minibroker.client.topic_partition import TopicPartition
from minibroker.console.metadata import TopicRow
from minibroker.protocol.message_set import read_message_header
from minibroker.protocol.record_batch import MAGIC_AT, read_header

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
    leaders: dict[int, list[int]] = {}
    for each in topic.partitions:
        if each.partition in positions and each.leader is not None:
            leaders.setdefault(each.leader, []).append(each.partition)

    questions = {
        (leader, start): fetching(
            leader,
            topic.name,
            {at: positions[at] for at in numbers[start : start + PARTITIONS_A_REQUEST]},
            committed_only=committed,
            max_wait_ms=max_wait_ms,
            partition_bytes=partition_bytes,
        )
        for leader, numbers in leaders.items()
        for start in range(0, len(numbers), PARTITIONS_A_REQUEST)
    }
    answers = of_each(client, questions, "what it leads")
    answering = {leader for leader, _ in answers}
    fetched = [
        taken(row, positions[row.partition], committed) for answer in answers.values() for row in rows_of(answer)
    ]
    unanswered = [
        Fetched(at, positions[at], positions[at], UNKNOWN, [], f"its leader, broker {leader}, does not answer")
        for leader, partitions in leaders.items()
        for at in partitions
        if leader not in answering
    ]
    return fetched + unanswered


def first_timestamps(
    client: Any, topics: Mapping[str, TopicRow], places: Iterable[tuple[TopicPartition, int]]
) -> dict[tuple[TopicPartition, int], int]:
    """The time of the first record of the batch at each offset, in ms since 1970: from its header.

    What a leader refuses is left out; one that does not answer is noted.
    """

    def leader_of(at: TopicPartition) -> int | None:
        partitions = topics[at.topic].partitions if at.topic in topics else ()
        return next((each.leader for each in partitions if each.partition == at.partition), None)

    # One request each: of several partitions in one, only the first is sure to bring a batch (KIP-74).
    answers = client.answers(
        {
            (at, position): fetching(
                leader, at.topic, {at.partition: position}, committed_only=False, partition_bytes=HEADER_BYTES
            )
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
            for row in rows_of(answer):
                if not row.error_code and row.records and len(row.records) >= HEADER_BYTES_MIN:
                    found[place] = first_timestamp(bytes(row.records))
    return found


def first_timestamp(data: bytes) -> int:
    """Of the batch or message that the data begins with; -1 if its format has none."""
    if data[MAGIC_AT] >= 2:
        return int(read_header(data, 0).base_timestamp)
    return int(read_message_header(data, 0).timestamp)
