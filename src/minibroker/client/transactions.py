"""A producer of transactions: its identity, the sequence numbers of its batches, and the end of each transaction."""

from __future__ import annotations

import time
from typing import Any

from minibroker.client.client import RETRY_SECONDS, Client
from minibroker.client.coordinators import OF_TRANSACTIONS, at_coordinators, when_there
from minibroker.client.errors import check
from minibroker.client.topic_partition import TopicPartition
from minibroker.protocol.api import ApiKey
from minibroker.protocol.errors import ErrorCode

OPEN_SECONDS = 30.0  # until what a transaction has left behind is ended
TIMEOUT_MS = 60_000
FIRST_THAT_ADDS_PARTITIONS = 12  # of Produce: with the first records of each (KIP-890)


def begin_anew(client: Client, transactional_id: str) -> tuple[int, int]:
    """Abort what the id has open, and refuse its earlier producers; return the producer id and epoch of the next.

    Raises KafkaError, and ClientError.
    """
    answer = _asked(client, ApiKey.INIT_PRODUCER_ID, transactional_id, transaction_timeout_ms=TIMEOUT_MS)
    return answer.producer_id, answer.producer_epoch


class Transactions:
    """The transactions of one producer, one after the other. Each method raises KafkaError, and ClientError."""

    def __init__(self, client: Client, transactional_id: str) -> None:
        self.transactional_id = transactional_id
        self.producer_id, self.epoch = begin_anew(client, transactional_id)
        self._sequences: dict[TopicPartition, int] = {}
        self._added: set[TopicPartition] = set()

    def add(self, client: Client, at: TopicPartition, count: int) -> dict[str, Any]:
        """Have a partition take part, with that many records more; return how `build_batch` marks their batch."""
        if at not in self._added and client.version_of(ApiKey.PRODUCE) < FIRST_THAT_ADDS_PARTITIONS:
            topics = [(at.topic, [at.partition])]
            row = (self.transactional_id, self.producer_id, self.epoch, False, topics)
            self._ask(client, ApiKey.ADD_PARTITIONS_TO_TXN, topics=topics, transactions=[row])
        self._added.add(at)
        first = self._sequences.get(at, 0)
        self._sequences[at] = first + count
        identity = {"producer_id": self.producer_id, "producer_epoch": self.epoch}
        return {**identity, "base_sequence": first, "is_transactional": True}

    def end(self, client: Client, *, is_commit: bool) -> None:
        """Commit or abort what was added since the last end."""
        if not self._added:
            return
        answer = self._ask(client, ApiKey.END_TXN, is_commit=is_commit)
        self._added.clear()
        if answer.producer_epoch >= 0:  # each transaction has an epoch of its own
            self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
            self._sequences.clear()

    def _ask(self, client: Client, api_key: ApiKey, **body: Any) -> Any:
        identity = {"producer_id": self.producer_id, "producer_epoch": self.epoch}
        return _asked(client, api_key, self.transactional_id, **identity, **body)


def _asked(client: Client, api_key: ApiKey, transactional_id: str, **body: Any) -> Any:
    """The coordinator's answer, once the transaction before has ended. Raises KafkaError, and ClientError."""

    def ask(by: dict[int, list[str]]) -> Any:
        answer = client.ask(api_key, broker=next(iter(by)), transactional_id=transactional_id, **body)
        return answer, when_there(rows_of(answer))

    deadline = time.monotonic() + OPEN_SECONDS
    while True:
        answer, rows = at_coordinators(client, [transactional_id], ask, kind=OF_TRANSACTIONS)
        codes = {row.error_code for row in rows}
        if ErrorCode.CONCURRENT_TRANSACTIONS not in codes or time.monotonic() > deadline:
            for code in codes:
                check(code)
            return answer
        time.sleep(RETRY_SECONDS)


def rows_of(answer: Any) -> list[Any]:
    """The rows of an answer to a producer that have error codes of their own."""
    topics = [topic for each in getattr(answer, "transactions", ()) or () for topic in each.topics]
    topics += getattr(answer, "topics", ()) or ()
    return [row for topic in topics for row in topic.partitions] or [answer]
