"""Topics made and read over the wire, on any broker."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from minibroker.conformance.raw_connection import RawConnection
from minibroker.protocol.api import ApiKey
from minibroker.protocol.batches import iter_all_records, scan_batches
from minibroker.protocol.record import Record
from tests.integration.brokers import BrokerProcess
from tests.integration.wire import read

MOST_BYTES = 1 << 24


def create_topic(
    broker: BrokerProcess, topic: str, partitions: int = 1, configs: Mapping[str, str] | None = None
) -> None:
    with RawConnection(broker.host, broker.port) as connection:
        create_topic_over(connection, topic, partitions, configs)


def create_topic_over(
    connection: RawConnection, topic: str, partitions: int = 1, configs: Mapping[str, str] | None = None
) -> None:
    rows: list[Any] = [(topic, partitions, 1, [], list((configs or {}).items()))]
    (answer,) = connection.call(ApiKey.CREATE_TOPICS, 1, topics=rows, timeout_ms=10_000).topics
    assert answer.error_code == 0


def records_in(data: bytes) -> list[Record]:
    """Return the records in the batches of a fetch, markers of transactions left out."""
    return [
        record
        for batch in scan_batches(data, 0, len(data))
        if not batch.is_control
        for record in iter_all_records(data, batch, max_decompressed_bytes=MOST_BYTES)
    ]


def read_everything(broker: BrokerProcess, partition: int) -> list[Record]:
    found: list[Record] = []
    with RawConnection(broker.host, broker.port) as connection:
        while True:
            row = read(connection, "t", partition=partition, offset=len(found), max_partition_bytes=MOST_BYTES)
            assert row.error_code == 0
            fresh = records_in(bytes(row.records))
            if not fresh:
                assert row.high_watermark == len(found)
                return found
            found += fresh
