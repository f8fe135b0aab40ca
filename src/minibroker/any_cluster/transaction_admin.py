"""The requests of `transactions` and `producers`; `admin/` has what the answers mean.

The requests came with Kafka 3.0; a transaction is ended by what Kafka has had since 0.11: a producer that takes over
the transactional id, or an abort marker in a partition whose coordinator has forgotten the transaction.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from minibroker.admin.partitions import chosen
from minibroker.admin.transactions import ActiveProducer, Described, Listed
from minibroker.any_cluster.acl_admin import hidden_unless
from minibroker.any_cluster.cluster import at_coordinators, of_each
from minibroker.any_cluster.partition_offsets import by_leader, partitions_of
from minibroker.client.client import Client, Question
from minibroker.client.coordinators import OF_TRANSACTIONS, when_there
from minibroker.client.errors import check
from minibroker.client.topic_partition import TopicPartition, by_topic
from minibroker.client.transactions import begin_anew
from minibroker.errors import CommandFailed
from minibroker.protocol.api import ApiKey
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.guesses import next_step

NONE = -1  # Kafka's number for a transaction, time or offset that there is none of


def transactions(client: Client, states: Sequence[str]) -> list[Listed]:
    """The transactional ids in these states, or in any."""

    body = {"state_filters": list(states)}
    questions = {each: Question(ApiKey.LIST_TRANSACTIONS, body, each) for each in client.brokers}
    answers = of_each(client, questions, "what it coordinates")
    for answer in answers.values():
        check(answer.error_code)
    listed = sorted(
        Listed(row.transactional_id, row.state, row.producer_id, broker)
        for broker, answer in answers.items()
        for row in answer.transactions
    )
    return hidden_unless(listed, client, "transactions")


def describe(client: Client, transactional_id: str) -> Described:
    """Raises CommandFailed for an id that does not exist."""

    def ask(by: dict[int, list[str]]) -> tuple[int, Any]:
        (coordinator,) = by
        names = [transactional_id]
        answer = client.ask(ApiKey.DESCRIBE_TRANSACTIONS, broker=coordinator, transactional_ids=names)
        return coordinator, when_there(answer.transactions)[0]

    coordinator, row = at_coordinators(client, [transactional_id], ask, kind=OF_TRANSACTIONS)
    if row.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
        others = [each.transactional_id for each in transactions(client, ())]
        step = next_step(transactional_id, others, "`minibroker transactions list` shows them all")
        raise CommandFailed(f"transactional id {transactional_id} does not exist; {step}")
    check(row.error_code)
    return Described(
        transactional_id,
        row.state,
        row.producer_id,
        row.producer_epoch,
        row.timeout_ms,
        None if row.start_time_ms == NONE else row.start_time_ms,
        coordinator,
        sorted(TopicPartition(topic.name, number) for topic in row.topics for number in topic.partitions),
    )


def fence(client: Client, transactional_id: str) -> None:
    """Abort what the id has open, and refuse its producer from now on. Raises CommandFailed for an unknown id."""
    describe(client, transactional_id)
    begin_anew(client, transactional_id)


def abort_in(client: Client, partition: TopicPartition, producer_id: int) -> ActiveProducer:
    """Write an abort marker into the partition, for a transaction that its coordinator does not end."""
    for row in producers(client, partition.topic, [partition.partition]):
        if row.producer_id == producer_id and row.transaction_start is not None:
            # As Kafka's own tool: a producer that never ended a transaction has no coordinator epoch yet.
            epoch = max(0, row.coordinator_epoch)
            topics = [(partition.topic, [partition.partition])]
            answer = client.ask(
                ApiKey.WRITE_TXN_MARKERS,
                broker=client.leaders([partition.topic])[partition],
                markers=[(producer_id, row.producer_epoch, False, topics, epoch, 0)],
            )
            check(answer.markers[0].topics[0].partitions[0].error_code)
            return row
    raise CommandFailed(
        f"producer {producer_id} has no open transaction in {partition.topic} {partition.partition}; "
        f"`minibroker producers {partition.topic}` shows them"
    )


def producers(client: Client, topic: str, numbers: Collection[int]) -> list[ActiveProducer]:
    """Return the producers that the leaders of the partitions remember, of all partitions without numbers.

    Raises CommandFailed for a missing partition.
    """
    led = by_leader(client, chosen(partitions_of(client, [topic]), numbers))
    questions = {
        leader: Question(ApiKey.DESCRIBE_PRODUCERS, {"topics": list(by_topic(partitions).items())}, leader)
        for leader, partitions in led.items()
    }
    rows = [
        row
        for answer in of_each(client, questions, "what it leads").values()
        for found in answer.topics
        for row in found.partitions
    ]
    for row in rows:
        check(row.error_code, row.error_message)
    return sorted(
        ActiveProducer(
            topic,
            row.partition,
            each.producer_id,
            each.producer_epoch,
            each.last_sequence,
            None if each.last_timestamp == NONE else each.last_timestamp,
            each.coordinator_epoch,
            None if each.current_txn_start_offset == NONE else each.current_txn_start_offset,
        )
        for row in rows
        for each in row.active_producers
    )
