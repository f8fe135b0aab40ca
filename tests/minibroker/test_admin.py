"""Values and sentences for the answers of a cluster, without one."""

from __future__ import annotations

from minibroker.admin.configs import in_ms
from minibroker.admin.group_offsets import lag_of, whole_lag
from minibroker.admin.outcomes import explained
from minibroker.admin.topics import COLLISION, refusal
from minibroker.client.address import Address
from minibroker.client.errors import TooSlow
from minibroker.protocol.errors import ErrorCode


def test_a_lag_is_known_as_far_as_offsets_are() -> None:
    assert [lag_of(*offsets) for offsets in ((3, 5), (5, 3), (None, 5), (3, None))] == [2, 0, None, None]
    assert [whole_lag(lags) for lags in ([], [None], [2, None])] == [0, None, 2]


def test_a_refusal_names_the_next_step() -> None:
    collides = "Topic 'a.b' collides with existing topics: a_b"

    assert refusal("a.b", ErrorCode.INVALID_TOPIC_EXCEPTION, collides) == f"{collides}; {COLLISION}"
    assert "use letters" in refusal("a b", ErrorCode.INVALID_TOPIC_EXCEPTION)
    assert "-X request.timeout.ms=30000" in explained(TooSlow(1), Address("a-host", 9092))
    assert in_ms({"retention.ms": "1h", "segment.bytes": "1m"}) == "; in milliseconds: retention.ms=3600000"
