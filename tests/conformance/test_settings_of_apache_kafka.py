"""Which settings a broker starts with: the verdicts of Apache Kafka 2.0.1 on 200 drawn files, recorded and live.

And on 200 files with listeners that encrypt. To record anew: python -m tests.books
kafka-2.0.1 settings --record, and again with encrypted-settings.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.conformance.settings import FILES, RECORDED_ENCRYPTED, Verdict, differs, draw, recorded

pytestmark = pytest.mark.pure  # settings are read in Python in both forms

RECORDED = {False: recorded(), True: recorded(RECORDED_ENCRYPTED)}  # by whether the files encrypt


def cases() -> Iterator[object]:
    """Parameters: each verdict; every other one of files that encrypt, whose key stores take 50 ms each to open."""
    for encrypted, verdicts in RECORDED.items():
        for number, verdict in enumerate(verdicts):
            yield pytest.param(verdict, marks=[pytest.mark.nightly] if encrypted and number % 2 else [])


@pytest.mark.parametrize("encrypted", RECORDED)
def test_the_recording_has_as_many_files_as_are_drawn_and_both_verdicts(encrypted: bool) -> None:
    verdicts = RECORDED[encrypted]
    assert [each.settings for each in verdicts] == [draw(seed, encrypted=encrypted) for seed in range(1, FILES + 1)]
    assert min(sum(each.starts for each in verdicts), sum(not each.starts for each in verdicts)) > FILES // 5


@pytest.mark.parametrize("verdict", list(cases()))
def test_a_broker_starts_with_the_settings_that_apache_kafka_starts_with(verdict: Verdict) -> None:
    assert not differs(verdict)
