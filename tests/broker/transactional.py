"""A transactional producer on an in-memory broker, one request at a time, and a reader of what was committed."""

from __future__ import annotations

from typing import Any

from minibroker.protocol.api import ApiKey
from minibroker.protocol.batches import iter_all_records, scan_batches
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.messages.fetch import ListOffsetsRequest
from minibroker.protocol.record import Record
from minibroker.protocol.record_batch import build_batch
from tests.broker.conftest import NOW_MS, InMemoryBroker

READ_COMMITTED = 1
FEW = {"transaction_state_log_num_partitions": 2, "offsets_topic_num_partitions": 2}  # partitions, to be quick


class Producer:
    """Keeps what a client keeps: id, epoch, and the next sequence of each partition."""

    def __init__(self, broker: InMemoryBroker, transactional_id: str = "t", *, timeout_ms: int = 60_000) -> None:
        self.broker = broker
        self.transactional_id = transactional_id
        self.timeout_ms = timeout_ms
        self.producer_id = self.epoch = -1
        self.sequences: dict[tuple[str, int], int] = {}

    async def initialize(self, *, version: int = 4, resume: bool = False) -> ErrorCode:
        who: dict[str, Any] = self.identity() if resume else {"transactional_id": self.transactional_id}
        answer = await self.broker.call(ApiKey.INIT_PRODUCER_ID, version, transaction_timeout_ms=self.timeout_ms, **who)
        if answer.error_code == ErrorCode.NONE:
            self.producer_id, self.epoch, self.sequences = answer.producer_id, answer.producer_epoch, {}
        return ErrorCode(answer.error_code)

    def identity(self) -> dict[str, Any]:
        return {
            "transactional_id": self.transactional_id,
            "producer_id": self.producer_id,
            "producer_epoch": self.epoch,
        }

    async def add(self, topic: str, *partitions: int, version: int = 3) -> list[ErrorCode]:
        topics = [(topic, list(partitions or (0,)))]
        answer = await self.broker.call(ApiKey.ADD_PARTITIONS_TO_TXN, version, **self.identity(), topics=topics)
        return [ErrorCode(row.error_code) for each in answer.topics for row in each.partitions]

    async def write(
        self, topic: str, *values: bytes, partition: int = 0, is_transactional: bool = True, version: int = 7
    ) -> ErrorCode:
        sequence = self.sequences.get((topic, partition), 0)
        batch = build_batch(
            [Record(number, NOW_MS, None, value) for number, value in enumerate(values)],
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=sequence,
            is_transactional=is_transactional,
        )
        whose: dict[str, Any] = {"version": version, "transactional_id": self.transactional_id}
        error = ErrorCode((await self.broker.write(topic, batch, partition=partition, acks=-1, **whose)).error_code)
        if error is ErrorCode.NONE:
            self.sequences[topic, partition] = sequence + len(values)
        return error

    async def send(self, topic: str, *values: bytes, partition: int = 0) -> None:
        """Add the partition and write to it."""
        assert await self.add(topic, partition) == [ErrorCode.NONE]
        assert await self.write(topic, *values, partition=partition) is ErrorCode.NONE

    async def add_offsets(self, group_id: str) -> ErrorCode:
        answer = await self.broker.call(ApiKey.ADD_OFFSETS_TO_TXN, 3, **self.identity(), group_id=group_id)
        return ErrorCode(answer.error_code)

    async def commit_offset(
        self, group_id: str, topic: str, offset: int, *, version: int = 3, **member: Any
    ) -> ErrorCode:
        body = self.identity() | {"group_id": group_id, "topics": [(topic, [(0, offset, -1, "")])]} | member
        answer = await self.broker.call(ApiKey.TXN_OFFSET_COMMIT, version, **body)
        return ErrorCode(answer.topics[0].partitions[0].error_code)

    async def end(self, *, is_commit: bool = True, version: int = 3) -> ErrorCode:
        answer = await self.broker.call(ApiKey.END_TXN, version, **self.identity(), is_commit=is_commit)
        return ErrorCode(answer.error_code)


async def started(broker: InMemoryBroker, transactional_id: str = "t", **options: Any) -> Producer:
    """A producer with an identity; the topic of the coordinator is made."""
    broker.parts.topic_admin.ensure_internal_topic("__transaction_state")
    producer = Producer(broker, transactional_id, **options)
    assert await producer.initialize() is ErrorCode.NONE
    return producer


async def with_open_transaction(broker: InMemoryBroker, **options: Any) -> Producer:
    """A producer whose open transaction wrote b"1" to a new topic "a"."""
    await broker.create_topic("a")
    producer = await started(broker, **options)
    await producer.send("a", b"1")
    return producer


def state_of(broker: InMemoryBroker, transactional_id: str = "t") -> object:
    return broker.parts.transactions.transactions[transactional_id].state


async def committed(broker: InMemoryBroker, topic: str, *, partition: int = 0) -> list[bytes]:
    """Read a partition as a read_committed consumer: without what the answer says was aborted."""
    answer = await broker.fetch((topic, partition, 0), isolation_level=READ_COMMITTED)
    row = answer.topics[0].partitions[0]
    aborted = sorted(row.aborted_transactions, key=lambda each: each.first_offset)
    open_aborted: set[int] = set()
    values: list[bytes] = []
    data = bytes(row.records)
    for batch in scan_batches(data, 0, len(data)):
        while aborted and aborted[0].first_offset <= batch.base_offset:
            open_aborted.add(aborted.pop(0).producer_id)
        if batch.is_control:
            open_aborted.discard(batch.producer_id)
        elif batch.producer_id not in open_aborted:
            values += [record.value or b"" for record in iter_all_records(data, batch, max_decompressed_bytes=1 << 20)]
    return values


async def last_stable_offset(broker: InMemoryBroker, topic: str) -> int:
    """As ListOffsets and Fetch tell it, which must be the same."""
    fetched = await broker.fetch((topic, 0, 0), isolation_level=READ_COMMITTED)
    latest = [(topic, [ListOffsetsRequest.row("topics.partitions")(partition=0, timestamp=-1)])]
    listed = await broker.call(ApiKey.LIST_OFFSETS, 2, replica_id=-1, isolation_level=READ_COMMITTED, topics=latest)
    told = {fetched.topics[0].partitions[0].last_stable_offset, listed.topics[0].partitions[0].offset}
    assert len(told) == 1, told
    return int(told.pop())
