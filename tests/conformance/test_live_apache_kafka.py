"""The recordings of Apache Kafka 2.0.1 are the answers of a live one, and this broker answers alike."""

from __future__ import annotations

import pytest

from tests.conformance.recordings import live_kafka
from tests.conformance.sasl import recorded, scripts
from tests.conformance.subjects import SUBJECTS


@pytest.mark.integration
@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.parametrize("name", SUBJECTS)
def test_answers_are_those_of_a_live_apache_kafka(name: str) -> None:
    subject = SUBJECTS[name]
    with live_kafka():
        found = subject.compare(subject.other_seeds)

    assert found.differences == []


def test_every_login_is_recorded() -> None:
    assert recorded().keys() == scripts().keys()
