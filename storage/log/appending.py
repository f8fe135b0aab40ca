"""Prepares an append: whatever may refuse it comes here, before the first byte is written.

    AppendRules.assign    checks the batches and stamps their offsets, by `log_validator`
    prepare_producers     checks them against what their producers wrote before, by `producer_append`

`Log` then writes the batches, and applies the changes of the producers.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from minibroker.protocol.record_batch import NO_PRODUCER_ID, RECORD_BATCH_OVERHEAD
from minibroker.storage.config import LogConfig
from minibroker.storage.index.transaction_index import CompletedTxn
from minibroker.storage.log.log_validator import (
    PLAIN_ATTRIBUTES,
    UNBOUNDED_MS,
    UNCOMPRESSED_ATTRIBUTES,
    AssignedRecords,
    Buffer,
    analyze_records,
    assign_offsets,
    assign_plain_batch,
)
from minibroker.storage.producers.producer_append import BatchMetadata, ProducerAppendInfo
from minibroker.storage.producers.producer_state import ProducerStateManager


class LogAppendInfo(NamedTuple):
    """The result of an append; offsets are -1 if nothing was appended."""

    first_offset: int
    last_offset: int
    max_timestamp_ms: int
    log_append_time_ms: int  # -1 with CreateTime
    log_start_offset: int
    is_duplicate: bool  # the offsets are those of the first time


class AppendRules:
    """The batches that a topic's settings allow, and those of them that the log stores as sent."""

    __slots__ = (
        "_config",
        "_max_batch_bytes",
        "_plain_attributes",
        "_takes_own_batches_as_sent",
        "takes_clients_batches_as_sent",
    )

    def __init__(self, config: LogConfig) -> None:
        self._config = config
        self._takes_own_batches_as_sent = (
            config.magic == 2
            and config.compression_type in ("producer", "uncompressed")
            and not config.is_log_append_time
        )
        keeps_codec = config.compression_type == "producer"
        # Of magic 2, without a look at their records.
        self.takes_clients_batches_as_sent = (
            self._takes_own_batches_as_sent
            and keeps_codec
            and not config.is_compacted
            and config.message_timestamp_difference_max_ms >= UNBOUNDED_MS
        )
        self._plain_attributes = PLAIN_ATTRIBUTES if keeps_codec else UNCOMPRESSED_ATTRIBUTES
        self._max_batch_bytes = min(config.max_message_bytes, config.segment_bytes)

    def assign(
        self, records: Buffer, first_offset: int, leader_epoch: int, now_ms: int, is_from_client: bool
    ) -> AssignedRecords | None:
        """Check the batches and assign their offsets, in place if they keep their bytes; None without a batch.

        The usual append, one batch of magic 2 that is stored as sent, needs only its header, and no work per record.
        Raises KafkaError as `analyze_records` and `assign_offsets`.
        """
        takes_as_sent = self.takes_clients_batches_as_sent if is_from_client else self._takes_own_batches_as_sent
        if takes_as_sent and RECORD_BATCH_OVERHEAD < len(records) <= self._max_batch_bytes:
            assigned = assign_plain_batch(records, self._plain_attributes, first_offset, leader_epoch)
            if assigned is not None:
                return assigned
        config = self._config
        analysis = analyze_records(records, max_message_bytes=config.max_message_bytes, is_from_client=is_from_client)
        if not analysis.batches:
            return None
        return assign_offsets(
            records,
            analysis,
            config=config,
            first_offset=first_offset,
            leader_epoch=leader_epoch,
            now_ms=now_ms,
            is_from_client=is_from_client,
        )


class ProducerChanges(NamedTuple):
    """The changes that an append would make to its producers; with a `duplicate` it is none."""

    producers: Collection[ProducerAppendInfo] = ()
    completed: Collection[CompletedTxn] = ()
    duplicate: BatchMetadata | None = None


NO_CHANGES = ProducerChanges()


def prepare_producers(
    state: ProducerStateManager,
    assigned: AssignedRecords,
    is_from_client: bool,
    remembers_producers: bool,
    is_replicated: bool,
) -> ProducerChanges:
    """Check the batches against their producers. Raises KafkaError as `ProducerAppendInfo.append`."""
    producers: dict[int, ProducerAppendInfo] = {}
    completed: list[CompletedTxn] = []
    for batch in assigned.batches:
        producer_id = batch.producer_id
        if producer_id <= NO_PRODUCER_ID:
            continue
        producer = producers.get(producer_id)
        if producer is None:
            producer = producers[producer_id] = state.prepare_update(
                producer_id, is_from_client=is_from_client, remembers=remembers_producers, is_replicated=is_replicated
            )
        if is_from_client:
            duplicate = producer.entry.find_duplicate(batch.producer_epoch, batch.base_sequence, batch.last_sequence)
            if duplicate is not None:
                return ProducerChanges(duplicate=duplicate)
        ended = producer.append(batch, assigned.buffer)
        if ended is not None:
            completed.append(ended)
    return ProducerChanges(producers.values(), completed, None) if producers else NO_CHANGES
