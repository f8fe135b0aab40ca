"""Throttle times of 300 drawn histories: those of Apache Kafka 2.0.1's own classes, recorded and live.

To record anew: python -m tests.conformance quotas --record
"""

from __future__ import annotations

import pytest

from tests.conformance.quota_histories import HISTORIES, drawn, kafkas_throttle_times, recorded, throttle_times
from tests.conformance.recordings import live_kafka

RECORDED = recorded()


def test_the_recording_has_every_history_and_throttles_in_most() -> None:
    assert len(RECORDED) == HISTORIES
    assert sum(any(times) for times in RECORDED) > HISTORIES / 2
    assert len({time for times in RECORDED for time in times}) > HISTORIES


@pytest.mark.parametrize("seed", range(HISTORIES))
def test_throttle_times_are_those_of_apache_kafka(seed: int) -> None:
    assert throttle_times(drawn(seed)) == RECORDED[seed], "\n".join(drawn(seed).lines)


@pytest.mark.integration
@pytest.mark.slow
@pytest.mark.nightly
def test_throttle_times_are_those_of_apache_kafkas_classes() -> None:
    seeds = range(10_000, 12_000)
    histories = [drawn(seed) for seed in seeds]
    with live_kafka():
        kafkas = kafkas_throttle_times(histories)

    assert [
        seed for seed, history, times in zip(seeds, histories, kafkas, strict=True) if throttle_times(history) != times
    ] == []
