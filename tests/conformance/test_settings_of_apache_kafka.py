"""Which settings a broker starts with: the verdicts of Apache Kafka 2.0.1 on 200 drawn files, recorded and live.

To record anew: python -m tests.conformance.settings --record
"""

from __future__ import annotations

import pytest

from benchmarks.apache_kafka import KafkaUnavailable
from tests.conformance.settings import FILES, Draw, differs, kafka_verdicts, recorded

RECORDED = recorded()
LIVE_FILES = 40


def test_the_recording_has_as_many_files_as_are_drawn_and_both_verdicts() -> None:
    assert [each.settings for each in RECORDED] == [Draw(seed).file() for seed in range(1, FILES + 1)]
    assert min(sum(each.starts for each in RECORDED), sum(not each.starts for each in RECORDED)) > FILES // 5


@pytest.mark.parametrize("number", range(FILES))
def test_a_broker_starts_with_the_settings_that_apache_kafka_starts_with(number: int) -> None:
    assert not differs(RECORDED[number]), RECORDED[number]


@pytest.mark.integration
@pytest.mark.slow
@pytest.mark.nightly
def test_settings_are_judged_as_by_a_live_apache_kafka() -> None:
    try:
        verdicts = kafka_verdicts([Draw(seed).file() for seed in range(1000, 1000 + LIVE_FILES)])
    except KafkaUnavailable as reason:
        pytest.skip(f"Apache Kafka 2.0.1 cannot be had: {reason}")

    assert [each for each in verdicts if differs(each)] == []
