"""Throttle times of 300 drawn histories: those of Apache Kafka 2.0.1's own classes, recorded and live.

To record anew: python -m tests.books kafka-2.0.1 throttle-times --record
"""

from __future__ import annotations

import pytest

from tests.conformance.quota_histories import HISTORIES, drawn, recorded, throttle_times

RECORDED = recorded()


def test_the_recording_has_every_history_and_throttles_in_most() -> None:
    assert len(RECORDED) == HISTORIES
    assert sum(any(times) for times in RECORDED) > HISTORIES / 2
    assert len({time for times in RECORDED for time in times}) > HISTORIES


@pytest.mark.parametrize("seed", range(HISTORIES))
def test_throttle_times_are_those_of_apache_kafka(seed: int) -> None:
    assert throttle_times(drawn(seed)) == RECORDED[seed], "\n".join(drawn(seed).lines)
