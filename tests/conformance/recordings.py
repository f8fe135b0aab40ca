"""Recordings of Apache Kafka in tests/golden/, and the one way to make them: hold, compare, print, keep.

`python -m tests.books RELEASE NAME` compares one of `subjects.py` with a live Apache Kafka: `rights`, `logins`,
`throttling`, `throttle-times`, `assignments`, `settings`, `encrypted-settings`, or a book such as
`kafka-2.0.1/sessions`. `--record` keeps what Kafka answered.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from benchmarks.apache_kafka import KafkaUnavailable
from minibroker.protocol.text import counted

GOLDEN = Path(__file__).parent.parent / "golden"


class Comparison(NamedTuple):
    """The answers of a live Apache Kafka, and the differences of this broker's: a text each."""

    recording: Any
    case_count: int
    differences: Sequence[str]


Compare = Callable[[range], Comparison]


class Subject(NamedTuple):
    """A subject of comparison. Where cases are drawn, those of `seeds` are recorded, those of `other_seeds` are not."""

    file_name: str
    compare: Compare
    seeds: range = range(0)
    other_seeds: range = range(0)


def read(file_name: str) -> Any:
    return json.loads(gzip.decompress((GOLDEN / file_name).read_bytes()))


def keep(file_name: str, recording: Any) -> None:
    """Write a recording. It holds no time: the same answers are the same bytes."""
    if isinstance(recording, bytes):
        (GOLDEN / file_name).write_bytes(recording)
        return
    text = json.dumps(recording, separators=(",", ":"))
    (GOLDEN / file_name).write_bytes(gzip.compress(text.encode(), 9, mtime=0))


def compare(name: str, subject: Subject, *, is_recorded: bool) -> int:
    """Print how the answers differ from those of a live Apache Kafka; 1 if they do. Raises KafkaUnavailable."""
    found = subject.compare(subject.seeds)
    if is_recorded:
        keep(subject.file_name, found.recording)
    for each in found.differences:
        print(each, flush=True)
    print(f"{name}: {counted(found.case_count, 'case')}, {counted(len(found.differences), 'difference')}")
    return 1 if found.differences else 0


@contextmanager
def live_kafka() -> Iterator[None]:
    """Skip the test if there is no Apache Kafka to be had."""
    try:
        yield
    except KafkaUnavailable as reason:
        pytest.skip(f"Apache Kafka 2.0.1 cannot be had: {reason}")
