"""One kind of quota without a broker: throttle times computed by hand, and windows in bounded memory.

How they compare with Apache Kafka's own: tests/conformance/test_quota_histories.py.
"""

from __future__ import annotations

import math

import pytest

from minibroker.broker.quota import client_quota
from minibroker.broker.quota.client_quota import IDLE_WINDOW_MS, WINDOWS_MAX, ClientQuota
from minibroker.broker.quota.entities import DEFAULT, Entity
from minibroker.broker.quota.sampled_rate import SampleWindow, rounded

KAFKAS_WINDOW = SampleWindow(11, 1000)
START_MS = 1_500_000_000_000
ME = ("ANONYMOUS", "me")


def quota_of(limit: float, window: SampleWindow = KAFKAS_WINDOW, **options: int) -> ClientQuota:
    quota = ClientQuota(window, throttle_ms_max=options.get("throttle_ms_max"))
    quota.set(Entity(None, "me"), limit)
    return quota


# (milliseconds since the start, value, throttle time); of a client's requests, one after the other. S / T * 1000 - W,
# where W is 10,000 ms, and longer by the time since the oldest sample began, up to a sample's second.
BY_HAND: dict[str, tuple[float, SampleWindow, list[tuple[int, float, int]]]] = {
    # 151242 / 10 - 10003; nothing has left the window after 5.1 s, which is then 6 samples and the missing 5 long.
    "one large request, then a small one": (10_000, KAFKAS_WINDOW, [(0, 151_022, 5102), (3, 220, 5121)]),
    "the samples of a waiting client count on": (10_000, KAFKAS_WINDOW, [(0, 151_242, 5124), (5124, 0, 5000)]),
    "until they are a window old": (10_000, KAFKAS_WINDOW, [(0, 151_242, 5124), (10_999, 0, 4125), (11_000, 0, 0)]),
    "exactly the limit": (10_000, KAFKAS_WINDOW, [(0, 100_000, 0), (0, 1, 0), (0, 9, 1)]),
    "4 samples of 2 s: W is 6 s": (20_000, SampleWindow(4, 2000), [(0, 180_122, 3006), (4, 0, 3002)]),
    "1 sample: no time has passed yet": (10, SampleWindow(1, 1000), [(0, 1000, 0), (1, 0, 99_999)]),
    "a huge one is bounded by the field": (0.001, KAFKAS_WINDOW, [(0, 1e12, 2**31 - 1)]),
}


@pytest.mark.parametrize("name", BY_HAND)
def test_throttle_times_are_those_computed_by_hand(name: str) -> None:
    limit, window, uses = BY_HAND[name]
    quota = quota_of(limit, window)

    assert [quota.record(*ME, value, START_MS + at_ms) for at_ms, value, _ in uses] == [each for *_, each in uses]


def test_a_bound_on_the_throttle_time_holds() -> None:
    quota = quota_of(0.0001, throttle_ms_max=1000)

    assert quota.record(*ME, 1, START_MS) == 1000


def test_a_value_that_is_taken_back_counts_no_more() -> None:
    quota = quota_of(100)
    assert quota.record(*ME, 1_000_000, START_MS) > 0

    quota.take_back(*ME, 1_000_000, START_MS)

    assert quota.record(*ME, 1000, START_MS) == 0


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
