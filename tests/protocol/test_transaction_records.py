"""The records of `__transaction_state`: those that Apache Kafka wrote are read, and written to the same bytes.

It was 2.0.1, and for clients of transactions v2 4.4.0.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.primitives import TopicPartition
from minibroker.protocol.transaction_records import (
    TransactionRecord,
    decode_key,
    decode_value,
    encode_key,
    encode_value,
)
from tests.refusals import refusal_of

A0 = frozenset({TopicPartition("a", 0)})
# From the log of a 2.0.1 broker: InitProducerId, AddPartitionsToTxn, AddOffsetsToTxn, EndTxn, a timeout.
RECORDED = {
    "Empty": (
        "0000000000000000000000000000ea6000ffffffff000001a1fe265eb7ffffffffffffffff",
        TransactionRecord(0, 0, 60_000, 0, frozenset(), 1795265289911, -1),
    ),
    "Ongoing": (
        "0000000000000000000000000000ea60010000000200125f5f636f6e73756d65725f6f6666736574730000000100000001"
        "000161000000020000000000000001000001a1fe26621a000001a1fe2661d1",
        TransactionRecord(
            0,
            0,
            60_000,
            1,
            frozenset({TopicPartition("__consumer_offsets", 1), TopicPartition("a", 0), TopicPartition("a", 1)}),
            1795265290778,
            1795265290705,
        ),
    ),
    "PrepareCommit": (
        "0000000000000000000000000000ea60020000000100036f6c640000000100000000000001a1fe265f77000001a1fe265f5c",
        TransactionRecord(0, 0, 60_000, 2, frozenset({TopicPartition("old", 0)}), 1795265290103, 1795265290076),
    ),
    "PrepareAbort": (
        "000000000000000000000003000003e803000000010001610000000100000001000001a1fe2665d6000001a1fe2665d3",
        TransactionRecord(0, 3, 1000, 3, frozenset({TopicPartition("a", 1)}), 1795265291734, 1795265291731),
    ),
    "CompleteCommit": (
        "0000000000000000000000000000ea600400000000000001a1fe265f7f000001a1fe265f5c",
        TransactionRecord(0, 0, 60_000, 4, frozenset(), 1795265290111, 1795265290076),
    ),
    "CompleteAbort": (
        "000000000000000000000003000003e80500000000000001a1fe2665d7000001a1fe2665d3",
        TransactionRecord(0, 3, 1000, 5, frozenset(), 1795265291735, 1795265291731),
    ),
    "Empty of v2": (
        "0001000000000000000e00010000ea600000000001a222870d64ffffffffffffffff020008000000000000000e02020002",
        TransactionRecord(14, 1, 60_000, 0, frozenset(), 1795875605860, -1, 2, 14),
    ),
    "Ongoing of v2": (
        "0001000000000000000a7ffe0000ea6001020261020000000000000001a222870716000001a222870716020008000000000000000a"
        "02020002",
        TransactionRecord(10, 32766, 60_000, 1, A0, 1795875604246, 1795875604246, 2, 10),
    ),
    "PrepareCommit of v2, with the last epoch": (
        "0001000000000000000a7fff0000ea6002020261020000000000000001a22287073d000001a222870716030008000000000000000a"
        "0108000000000000000c02020002",
        TransactionRecord(10, 32767, 60_000, 2, A0, 1795875604285, 1795875604246, 2, 10, 12),
    ),
    "CompleteCommit of v2, with the next id": (
        "0001000000000000000c00000000ea600401000001a22287074a000001a222870716020008000000000000000a02020002",
        TransactionRecord(12, 0, 60_000, 4, frozenset(), 1795875604298, 1795875604246, 2, 10),
    ),
}


@pytest.mark.parametrize(("written", "record"), RECORDED.values(), ids=RECORDED)
def test_records_of_kafka_are_read_and_written_the_same(written: str, record: TransactionRecord) -> None:
    assert decode_value(bytes.fromhex(written)) == record
    assert encode_value(record).hex() == written


def test_a_record_of_kafka_4_4_for_a_client_of_transactions_v1_is_written_as_by_2_0() -> None:
    later = "0001000000000000000700000000ea6002020261020000000000000001a2226d7fa9000001a2226d7fa50100080000000000000007"

    record = decode_value(bytes.fromhex(later))

    assert record == TransactionRecord(7, 0, 60_000, 2, A0, 1795873931177, 1795873931173, 0, 7)
    assert decode_value(encode_value(record)) == record._replace(previous_producer_id=-1)


def test_keys_are_those_of_kafka() -> None:
    assert encode_key("to").hex() == "00000002746f"
    assert decode_key(bytes.fromhex("0000000174")) == "t"


VALUE = RECORDED["Ongoing"][0]


@pytest.mark.parametrize(
    ("decode", "data"),
    [(decode_key, key) for key in ("", "00", "000100017a", "00000005746f", "00000002746f00", "0000ffff")]
    + [(decode_value, value) for value in ("", "0001" + VALUE[4:], VALUE[:-2], VALUE + "00")],
)
def test_a_record_of_another_version_or_length_is_corrupt(decode: Callable[[bytes], object], data: str) -> None:
    assert refusal_of(lambda: decode(bytes.fromhex(data))) is ErrorCode.CORRUPT_MESSAGE
