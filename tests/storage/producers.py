"""Appending to the producer state of a log as a log does, for the tests of producers and transactions."""

from __future__ import annotations

from pathlib import Path

from minibroker.protocol.control_records import ControlType, EndTxnMarker
from minibroker.protocol.primitives import TopicPartition
from minibroker.storage.index.transaction_index import CompletedTxn
from minibroker.storage.producers.producer_state import ProducerStateManager

PID = 7
MAX_SEQUENCE = 2**31 - 1
EXPIRATION_MS = 10_000


def manager_of(directory: Path, topic: str = "orders") -> ProducerStateManager:
    return ProducerStateManager(TopicPartition(topic, 0), directory, expiration_ms=EXPIRATION_MS)


def append(
    manager: ProducerStateManager,
    first_sequence: int,
    *,
    offset: int,
    epoch: int = 0,
    count: int = 1,
    producer_id: int = PID,
    is_transactional: bool = False,
    is_from_client: bool = True,
    is_replicated: bool = False,
    timestamp_ms: int = 0,
    remembers: bool = False,
) -> None:
    """Append a batch as a log does: checked first, counted when it is written."""
    info = manager.prepare_update(
        producer_id, is_from_client=is_from_client, remembers=remembers, is_replicated=is_replicated
    )
    last_sequence = -1 if first_sequence == -1 else (first_sequence + count - 1) & MAX_SEQUENCE
    info.append_data(epoch, first_sequence, last_sequence, timestamp_ms, offset, offset + count - 1, is_transactional)
    manager.update(info)
    manager.update_map_end_offset(offset + count)


def end_transaction(
    manager: ProducerStateManager,
    *,
    offset: int,
    epoch: int = 0,
    control_type: ControlType = ControlType.COMMIT,
    coordinator_epoch: int = 0,
    producer_id: int = PID,
    timestamp_ms: int = 0,
) -> tuple[CompletedTxn, int]:
    """Append a marker as a log does; return the transaction it ends and the last stable offset after it."""
    info = manager.prepare_update(producer_id, is_from_client=False)
    marker = EndTxnMarker(control_type, coordinator_epoch)
    completed = info.append_marker(marker, epoch=epoch, offset=offset, timestamp_ms=timestamp_ms)
    manager.update(info)
    last_stable_offset = manager.complete_txn(completed)
    manager.update_map_end_offset(offset + 1)
    return completed, last_stable_offset


def unstable(manager: ProducerStateManager) -> int | None:
    first = manager.first_unstable_offset
    return None if first is None else first.message_offset
