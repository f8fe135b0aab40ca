"""Reports of librdkafka about a producer that becomes unusable, in whatever order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from minibroker.any_cluster import librdkafka
from minibroker.any_cluster.record_lines import NewRecord
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.errors import KafkaError as Refusal


class GivesUp:
    """Gives its record up without a reason; without a record it raises the reason at its third poll."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self._on_delivery: Callable[[KafkaError, object], None] | None = None
        self._polls = 0

    def produce(self, *record: object, on_delivery: Callable[[KafkaError, object], None], **options: object) -> None:
        self._on_delivery = on_delivery

    def flush(self, seconds: float) -> None:
        assert self._on_delivery is not None
        self._on_delivery(KafkaError(KafkaError._PURGE_QUEUE), object())
        raise SystemError("returned NULL without setting an exception")

    def poll(self, seconds: float) -> None:
        self._polls += 1
        if self._polls == 3 and self._on_delivery is None:
            raise KafkaException(KafkaError(KafkaError.CLUSTER_AUTHORIZATION_FAILED))

    def __len__(self) -> int:
        return 0


def test_the_reason_is_found_for_records_that_were_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(librdkafka, "Producer", GivesUp)
    producer = librdkafka.LibrdkafkaProducer("orders", {})
    producer.send(NewRecord(None, b"one", []), 1)

    assert producer.flush(1)

    assert isinstance(producer.refusal, Refusal)
    assert producer.refusal.code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED


def test_the_first_error_of_a_callback_is_found_below_those_of_later_callbacks() -> None:
    reason = KafkaException(KafkaError(KafkaError.CLUSTER_AUTHORIZATION_FAILED))

    with pytest.raises(KafkaException) as raised, librdkafka.raised_by_callbacks():
        try:
            raise SystemError("returned a result with an exception set") from reason
        except SystemError as error:
            raise SystemError("returned a result with an exception set") from error

    assert raised.value is reason
