"""The throttles of replication by themselves; test_fetcher.py has them at work."""

from __future__ import annotations

import pytest

from minibroker.broker.replica.replication_quota import ReplicationQuota, names_replica
from minibroker.broker.time.sampled_rate import SampleWindow


@pytest.mark.parametrize(
    ("recorded", "looks"),
    [
        pytest.param([], [(0, False)], id="nothing was copied"),
        pytest.param([(0, 100)], [(0, False)], id="as much as the limit in a second"),
        pytest.param([(0, 101)], [(0, True), (999, True), (1010, False)], id="more, until a longer time counts"),
        pytest.param([(1500, 150)], [(1500, False)], id="as much as the limit in a second and a half"),
        pytest.param([(1500, 1), (1500, 150)], [(1500, True), (2000, False)], id="a little more"),
        pytest.param([(0, 5000)], [(9999, True), (10_000, False)], id="a sample that is too old does not count"),
    ],
)
def test_a_quota_is_exceeded_by_a_rate_above_its_limit(
    recorded: list[tuple[int, int]], looks: list[tuple[int, bool]]
) -> None:
    quota = ReplicationQuota(SampleWindow(10, 1000))
    quota.set_limit({"leader.replication.throttled.rate": "100"}, "leader.replication.throttled.rate")
    assert not quota.is_exceeded(0)
    for now_ms, size_bytes in recorded:
        quota.record(size_bytes, now_ms)

    assert [(now_ms, quota.is_exceeded(now_ms)) for now_ms, _ in looks] == looks


def test_a_quota_without_a_limit_is_never_exceeded() -> None:
    quota = ReplicationQuota(SampleWindow(10, 1000))
    quota.set_limit({}, "follower.replication.throttled.rate")
    quota.record(10**12, 0)

    assert not quota.is_exceeded(0)


@pytest.mark.parametrize(
    ("replicas", "is_named"),
    [
        ([], False),
        (["*"], True),
        (["3:7"], True),
        (["1:7", "3:6", "03:07"], True),
        (["3:17", "13:7", "7:3"], False),
    ],
)
def test_a_topic_names_the_replicas_that_are_throttled(replicas: list[str], is_named: bool) -> None:
    assert names_replica(replicas, 3, 7) is is_named
