"""Replicas of new partitions in 400 drawn clusters: those of Apache Kafka 2.0.1's own classes, recorded and live.

To record anew: python -m tests.books kafka-2.0.1 assignments --record
"""

from __future__ import annotations

from tests.conformance.assignments import CASES, assigned, drawn, recorded


def test_replicas_are_those_of_apache_kafka() -> None:
    cases = list(map(drawn, range(CASES)))

    assert dict(zip(cases, map(assigned, cases), strict=True)) == dict(zip(cases, recorded(), strict=True))
