"""The recorded conversations of clients that authenticate are those of a live Apache Kafka 2.0.1.

To record anew: python -m tests.conformance logins --record
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conformance.recordings import live_kafka
from tests.conformance.sasl import apache_kafka, hold_all, recorded, scripts


def test_every_conversation_is_recorded() -> None:
    assert recorded().keys() == scripts().keys()


@pytest.mark.integration
@pytest.mark.slow
@pytest.mark.nightly
def test_answers_are_those_of_a_live_apache_kafka(tmp_path: Path) -> None:
    with live_kafka(), apache_kafka(tmp_path) as (_, port):
        answers = hold_all(port)

    assert answers == recorded()
