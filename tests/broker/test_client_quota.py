"""One kind of quota without a broker: its removal, and windows in bounded memory.

Throttle times are compared with those of Apache Kafka in tests/conformance/test_quota_histories.py.
"""

from __future__ import annotations

import math

import pytest

from minibroker.broker.time.sampled_rate import SampleWindow, rounded
from minibroker.broker.wings.quotas import client_quota
from minibroker.broker.wings.quotas.client_quota import IDLE_WINDOW_MS, WINDOWS_MAX, ClientQuota
from minibroker.broker.wings.quotas.entities import DEFAULT, Entity

KAFKAS_WINDOW = SampleWindow(11, 1000)
START_MS = 1_500_000_000_000
ME = ("ANONYMOUS", "me")


def quota_of(limit: float, window: SampleWindow = KAFKAS_WINDOW) -> ClientQuota:
    quota = ClientQuota(window)
    quota.set(Entity(None, "me"), limit)
    return quota


def test_a_throttle_time_is_bounded_by_its_field() -> None:
    assert quota_of(0.001).record(*ME, 1e12, START_MS) == 2**31 - 1


def test_the_most_in_a_window_is_that_of_its_full_samples() -> None:
    assert quota_of(512).most_in_a_window(*ME) == 512 * 10
    assert quota_of(512, SampleWindow(4, 2000)).most_in_a_window(*ME) == 512 * 6
    assert quota_of(512).most_in_a_window("ANONYMOUS", "other") == math.inf


def test_a_quota_that_is_removed_holds_no_more() -> None:
    """Unlike in kafka 2.0.1, also for what a window has counted already, and also the last one of a client."""
    quota = quota_of(100)
    assert quota.record(*ME, 10_000, START_MS) > 0

    quota.set(Entity(None, "me"), None)

    assert quota.record(*ME, 10_000, START_MS) == 0
    quota.set(Entity(None, "me"), 100)
    assert quota.record(*ME, 0, START_MS) == 190_000


@pytest.mark.parametrize("client_id", ["", None])
def test_without_a_client_id_only_quotas_of_users_hold(client_id: str | None) -> None:
    quota = ClientQuota(KAFKAS_WINDOW, everybody=1)
    quota.set(Entity(None, DEFAULT), 1)
    assert quota.record("ann", client_id, 1e6, START_MS) == 0

    quota.set(Entity(DEFAULT), 1)

    assert quota.record("ann", client_id, 1e6, START_MS) > 0


@pytest.mark.pure  # compiled, the limit is a constant
def test_windows_of_invented_client_ids_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_quota, "WINDOWS_MAX", 50)
    quota = quota_of(100)
    throttle_ms = quota.record(*ME, 10_000, START_MS)

    for number in range(500):
        quota.record("ANONYMOUS", f"invented{number}", 1, START_MS)
        assert quota.record(*ME, 0, START_MS) == throttle_ms > 0  # in use: it stays

    assert len(quota._rates) == 50
    assert WINDOWS_MAX == 10_000


def test_a_window_that_is_not_used_for_an_hour_goes() -> None:
    quota = quota_of(100)
    for number in range(10):
        quota.record("ANONYMOUS", f"idle{number}", 1, START_MS)
    quota.record(*ME, 0, START_MS + IDLE_WINDOW_MS)
    assert len(quota._rates) == 11

    quota.record("ANONYMOUS", "new", 0, START_MS + IDLE_WINDOW_MS + 1)

    assert len(quota._rates) == 2


@pytest.mark.parametrize(
    ("value", "expected"), [(0.5, 1), (1.5, 2), (2.5, 3), (0.499, 0), (-0.5, 0), (-0.6, -1), (0.49999999999999994, 0)]
)
def test_throttle_times_are_rounded_as_java_rounds(value: float, expected: int) -> None:
    assert rounded(value) == expected


def test_the_throttle_time_of_a_quota_is_the_average_of_a_minute() -> None:
    quota = quota_of(100)
    quota.record(*ME, 1000, START_MS)
    quota.note_throttled(*ME, 100, START_MS)
    quota.note_throttled(*ME, 300, START_MS)

    assert [used.throttle_ms for used in quota.used(START_MS)] == [200]
    assert [used.throttle_ms for used in quota.used(START_MS + 60_000)] == [0]
