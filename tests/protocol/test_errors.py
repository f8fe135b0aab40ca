"""Kafka's error codes, and the message that goes with one on the wire."""

from __future__ import annotations

from minibroker.any_cluster.kafka_python import errors
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.primitives import LONGEST_STRING_BYTES

OLD_NAMES_IN_KAFKA_PYTHON = {
    "UNKNOWN": "UNKNOWN_SERVER_ERROR",
    "NO_ERROR": "NONE",
    "MESSAGE_SIZE_TOO_LARGE": "MESSAGE_TOO_LARGE",
    "INVALID_TOPIC": "INVALID_TOPIC_EXCEPTION",
    "INVALID_REPLICATION_ASSIGNMENT": "INVALID_REPLICA_ASSIGNMENT",
}
LATER_THAN_KAFKA_PYTHON = {  # as kafka 4.4.0 Errors
    128: "INVALID_REGULAR_EXPRESSION",
    129: "REBOOTSTRAP_REQUIRED",
    133: "SHARE_SESSION_LIMIT_REACHED",
}


def test_codes_have_kafkas_numbers() -> None:
    names = {code: errors.for_code(code.value).message for code in ErrorCode}
    names |= {ErrorCode(code): name for code, name in LATER_THAN_KAFKA_PYTHON.items()}

    assert {code: OLD_NAMES_IN_KAFKA_PYTHON.get(name, name) for code, name in names.items()} == {
        code: code.name for code in ErrorCode
    }


def test_a_message_of_any_length_fits_into_a_string() -> None:
    message = KafkaError(ErrorCode.INVALID_REQUEST, "\U0001f408" * 10_000).message

    assert message is not None
    assert len(message.encode()) <= LONGEST_STRING_BYTES
