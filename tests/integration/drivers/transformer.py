"""Driver that copies one topic into another, exactly once: consume, transform, produce, in transactions, for ever.

    python -m tests.integration.drivers.transformer LIBRARY BOOTSTRAP GROUP SOURCE TARGET TRANSACTIONAL-ID SETTINGS

Settings are JSON: `records_per_transaction`. Several of these may be members of one group. What may be tried again
is; a transaction that must be aborted is, and its records are read again. Anything else ends the process: a new one
with the same transactional id goes on where the last transaction ended.
"""

from __future__ import annotations

import json
import signal
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

IDLE_SECONDS = 0.2
ANSWER_SECONDS = 30.0
LONGEST_TRANSACTION_SECONDS = 5
LONGEST_WITHOUT_PARTITIONS_SECONDS = 15.0
SESSION_TIMEOUT_MS = 3000
HEARTBEAT_INTERVAL_MS = 200
TRANSACTION_TIMEOUT_MS = 10_000
Settings = dict[str, Any]


class MustAbort(Exception):
    """The transaction cannot be committed; the producer can go on."""


class Transformer:
    """The loop, over what the libraries call it: read, begin, write, commit, abort, rewind."""

    def __init__(self, library: Any, records_per_transaction: int) -> None:
        self._library = library
        self._most = records_per_transaction

    def run(self) -> None:
        while True:
            membership, records = self._gather()
            if not records:
                continue
            try:
                self._library.transact(records, membership)
            except MustAbort as error:
                print(f"aborting: {error}", file=sys.stderr, flush=True)
                self._library.abort()
                self._library.rewind()

    def _gather(self) -> tuple[Any, list[Any]]:
        """Read until there are enough, or no more; nothing where partitions have moved meanwhile.

        The membership is the one in which the first record was read: a commit is refused if it is another's then.
        """
        library = self._library
        membership = library.membership()
        records: list[Any] = []
        while len(records) < self._most:
            more = library.read(self._most - len(records))
            if library.has_rebalanced:
                library.rewind()
                return None, []
            if not more:
                break
            records += more
        return membership, records


class ConfluentLibrary:
    def __init__(self, bootstrap: str, group: str, source: str, target: str, transactional_id: str) -> None:
        from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, Producer, TopicPartition

        self._beginning = OFFSET_BEGINNING
        self._error = KafkaException
        self._partition = TopicPartition
        self._source = source
        self._target = target
        self.has_rebalanced = False
        quick = {
            "bootstrap.servers": bootstrap,
            "reconnect.backoff.max.ms": 200,
            # while every broker is away it would forget them all, and librdkafka 2.16 then commits offsets of
            # transactions to the one it forgot, for ever
            "metadata.recovery.strategy": "none",
            "log_level": 0,
        }
        self._producer = Producer(
            quick | {"transactional.id": transactional_id, "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS}
        )
        self._insist(self._producer.init_transactions)
        self._consumer = Consumer(
            quick
            | {
                "group.id": group,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
                "session.timeout.ms": SESSION_TIMEOUT_MS,
                "heartbeat.interval.ms": HEARTBEAT_INTERVAL_MS,
                "partition.assignment.strategy": "range",
            }
        )
        self._consumer.subscribe([source], on_assign=self._on_rebalance, on_revoke=self._on_rebalance)

    def _on_rebalance(self, *_: Any) -> None:
        self.has_rebalanced = True

    def membership(self) -> Any:
        return self._consumer.consumer_group_metadata()

    def read(self, most: int) -> list[Any]:
        return [each for each in self._consumer.consume(most, IDLE_SECONDS) if each.error() is None]

    def rewind(self) -> None:
        self.has_rebalanced = False
        assigned = self._consumer.assignment()
        for each in self._consumer.committed(assigned, ANSWER_SECONDS) if assigned else []:
            each.offset = each.offset if each.offset >= 0 else self._beginning
            self._seek(each)

    def _seek(self, partition: Any) -> None:
        """Partitions that were assigned a moment ago cannot be sought in yet."""
        until = time.monotonic() + ANSWER_SECONDS
        while True:
            try:
                return self._consumer.seek(partition)
            except self._error:
                if time.monotonic() > until:
                    raise
                time.sleep(0.01)

    def transact(self, records: Sequence[Any], membership: Any) -> None:
        self._producer.begin_transaction()
        for record in records:
            self._producer.produce(self._target, record.value(), record.key(), partition=record.partition())
            self._producer.poll(0)
        ends = {record.partition(): record.offset() + 1 for record in records}
        offsets = [self._partition(self._source, partition, offset) for partition, offset in ends.items()]
        self._insist(self._producer.send_offsets_to_transaction, offsets, membership)
        self._insist(self._producer.commit_transaction)

    def abort(self) -> None:
        self._insist(self._producer.abort_transaction)

    def _insist(self, call: Callable[..., Any], *arguments: Any) -> None:
        while True:
            try:
                call(*arguments, ANSWER_SECONDS)
                return
            except self._error as failed:
                error = failed.args[0]
                if error.txn_requires_abort():
                    raise MustAbort(error) from None
                if not error.retriable():
                    raise
                print(f"again: {error}", file=sys.stderr, flush=True)


class KafkaPythonLibrary:
    """kafka-python 3.0 may miss its assignment (group_member.py): without partitions for long, it ends.

    It also loses the request that it is about to send when its coordinator goes, and waits for ever: SIGALRM ends it.
    """

    def __init__(self, bootstrap: str, group: str, source: str, target: str, transactional_id: str) -> None:
        import kafka
        from kafka.coordinator.assignors.range import RangePartitionAssignor
        from kafka.errors import KafkaError, OutOfOrderSequenceNumberError, ProducerFencedError

        self._kafka = kafka
        self._error = KafkaError
        self._fatal = (OutOfOrderSequenceNumberError, ProducerFencedError)
        self._target = target
        self.has_rebalanced = False
        self._had_partitions_at = time.monotonic()
        self._producer = kafka.KafkaProducer(
            bootstrap_servers=bootstrap,
            transactional_id=transactional_id,
            transaction_timeout_ms=TRANSACTION_TIMEOUT_MS,
        )
        self._producer.init_transactions()
        self._consumer = kafka.KafkaConsumer(
            bootstrap_servers=bootstrap,
            group_id=group,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            isolation_level="read_committed",
            session_timeout_ms=SESSION_TIMEOUT_MS,
            heartbeat_interval_ms=HEARTBEAT_INTERVAL_MS,
            partition_assignment_strategy=(RangePartitionAssignor,),
        )
        self._consumer.subscribe([source], listener=self._listener())

    def _listener(self) -> Any:
        library = self

        class Listener(self._kafka.ConsumerRebalanceListener):  # type: ignore[misc, name-defined]
            def on_partitions_revoked(self, _: Any) -> None:
                library.has_rebalanced = True

            on_partitions_assigned = on_partitions_revoked

        return Listener()

    def membership(self) -> Any:
        return self._consumer.group_metadata()

    def read(self, most: int) -> list[Any]:
        now = time.monotonic()
        if self._consumer.assignment():
            self._had_partitions_at = now
        assert now - self._had_partitions_at < LONGEST_WITHOUT_PARTITIONS_SECONDS, "no partitions for too long"
        seconds = IDLE_SECONDS if self._consumer.assignment() else 1.0
        batches = self._consumer.poll(timeout_ms=int(seconds * 1000), max_records=most)
        return [record for batch in batches.values() for record in batch]

    def rewind(self) -> None:
        self.has_rebalanced = False
        for partition in self._consumer.assignment():
            self._consumer.seek(partition, self._consumer.committed(partition) or 0)

    def transact(self, records: Sequence[Any], membership: Any) -> None:
        kafka = self._kafka
        signal.alarm(LONGEST_TRANSACTION_SECONDS)
        self._producer.begin_transaction()
        try:
            for record in records:
                self._producer.send(self._target, record.value, record.key, partition=record.partition)
            offsets = {
                kafka.TopicPartition(record.topic, record.partition): kafka.OffsetAndMetadata(record.offset + 1, "", -1)
                for record in records
            }
            self._producer.send_offsets_to_transaction(offsets, membership)
            self._producer.commit_transaction()
        except self._fatal:
            raise
        except self._error as error:
            raise MustAbort(error) from None
        signal.alarm(0)

    def abort(self) -> None:
        self._producer.abort_transaction()
        signal.alarm(0)


LIBRARIES = {"confluent-kafka": ConfluentLibrary, "kafka-python": KafkaPythonLibrary}


def main() -> None:
    library, bootstrap, group, source, target, transactional_id, settings = sys.argv[1:]
    made = LIBRARIES[library](bootstrap, group, source, target, transactional_id)
    Transformer(made, **json.loads(settings)).run()


if __name__ == "__main__":
    main()
