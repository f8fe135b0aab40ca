"""Writes and reads of tests over one connection, and their rows."""

from __future__ import annotations

from typing import Any

from minibroker.client.address import parse_address
from minibroker.conformance.raw_connection import RawConnection
from minibroker.conformance.requests import fetch_body
from minibroker.protocol.api import ApiKey
from tests.requests import produce_body


def connection_to(bootstrap: str) -> RawConnection:
    return RawConnection(*parse_address(bootstrap))


def write(connection: RawConnection, topic: str, records: bytes, *, version: int = 5, partition: int = 0) -> Any:
    """Produce with acks of all; the partition's row of the answer."""
    return the_partition(connection.call(ApiKey.PRODUCE, version, **produce_body(topic, records, partition=partition)))


def read(
    connection: RawConnection, topic: str, *, version: int = 4, partition: int = 0, offset: int = 0, **options: int
) -> Any:
    """Fetch what is there; the partition's row of the answer."""
    return the_partition(connection.call(ApiKey.FETCH, version, **fetch_body((topic, partition, offset), **options)))


def the_partition(answer: Any) -> Any:
    """The only partition of a Produce, Fetch or ListOffsets response."""
    ((row,),) = (topic.partitions for topic in answer.topics)
    return row
