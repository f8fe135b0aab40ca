"""What librdkafka reports of a producer that becomes unusable, in whatever order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from minibroker.cli import librdkafka
from minibroker.cli.cluster import errors
from minibroker.cli.record_lines import NewRecord


class GivesUp:
    """Gives its record up; the reason comes with the third poll after that."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self._polls = 0

    def produce(self, *record: object, on_delivery: Callable[[KafkaError, object], None], **options: object) -> None:
        self._on_delivery = on_delivery

    def flush(self, seconds: float) -> None:
        self._on_delivery(KafkaError(KafkaError._PURGE_QUEUE), object())

    def poll(self, seconds: float) -> None:
        self._polls += 1
        if self._polls == 3:
            raise KafkaException(KafkaError(KafkaError.CLUSTER_AUTHORIZATION_FAILED))

    def __len__(self) -> int:
        return 0


def test_the_reason_is_waited_for_behind_the_records_that_were_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(librdkafka, "Producer", GivesUp)
    producer = librdkafka.LibrdkafkaProducer("orders", {})
    producer.send(NewRecord(None, b"one", []))

    assert producer.flush(1)

    assert isinstance(producer.refusal, errors.ClusterAuthorizationFailedError)
