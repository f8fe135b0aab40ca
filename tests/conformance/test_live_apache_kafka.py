"""The recordings of Apache Kafka are the answers of a live one, and this broker answers alike."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

import pytest

from minibroker.conformance.judge import Judge
from minibroker.conformance.recordings import NAMES, Name, Recording, read_recording
from tests.conformance.digests import apache_kafka
from tests.conformance.recordings import live_kafka
from tests.conformance.sasl import recorded, scripts
from tests.conformance.subjects import SUBJECTS

GENERATED = 150


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


def sample(recording: Recording) -> list[Name]:
    """The conversations of books, and some generated ones."""
    titles = [name for name in recording.digests if isinstance(name, str)]
    return [*titles, *islice((name for name in recording.digests if isinstance(name, int)), GENERATED)]


@pytest.mark.integration
@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("name", NAMES)
def test_a_release_has_no_difference_to_its_own_recording(name: str, tmp_path: Path) -> None:
    recording = read_recording(name)
    with live_kafka(), apache_kafka(name, tmp_path) as kafka, Judge(*kafka, recording) as judge:
        for _ in judge.judge_all(sample(recording)):
            pass

    assert [f"{finding.name}: {kind}" for kind, finding in judge.findings.items()] == []
    assert judge.lacks == []
