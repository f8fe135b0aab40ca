"""How fast replicas may be copied that their topics name: of a leader to its followers, of a follower from its leaders.

`leader.replication.throttled.replicas` and `follower.replication.throttled.replicas` of a topic name replicas, and
`leader.replication.throttled.rate` and `follower.replication.throttled.rate` of a broker, which may only be changed
while it runs, limit the bytes per second of all of them together. Replicas in sync are never held back. As kafka 2.0.1
ReplicationQuotaManager.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from minibroker.broker.config.kafka_config import KafkaConfig
from minibroker.broker.time.sampled_rate import SampledRate, SampleWindow

LEADER_RATE = "leader.replication.throttled.rate"
FOLLOWER_RATE = "follower.replication.throttled.rate"
ALL_REPLICAS = "*"


class ReplicationQuota:
    """The limit of one side, in bytes per second, None for none; and what was copied. Times are monotonic, in ms."""

    __slots__ = ("_rate", "_window", "limit")

    def __init__(self, window: SampleWindow) -> None:
        self.limit: int | None = None
        self._window = window
        self._rate: SampledRate | None = None

    def set_limit(self, changes: Mapping[str, str], name: str) -> None:
        """Take the limit from the changed settings of this broker."""
        text = changes.get(name)
        self.limit = None if text is None else int(text)

    def record(self, size_bytes: int, now_ms: int) -> None:
        """Count what was copied of replicas that are throttled."""
        self._begun(now_ms).record(self._window, size_bytes, now_ms)

    def is_exceeded(self, now_ms: int) -> bool:
        if self.limit is None:
            return False
        return self._begun(now_ms).simple_per_second(self._window, now_ms) > self.limit

    def _begun(self, now_ms: int) -> SampledRate:
        """The rate, which begins when it is first needed."""
        rate = self._rate
        if rate is None:
            rate = self._rate = SampledRate(now_ms)
        return rate


def window_of(config: KafkaConfig) -> SampleWindow:
    """The time over which rates are measured."""
    return SampleWindow(config.replication_quota_window_num, config.replication_quota_window_size_seconds * 1000)


def names_replica(replicas: Sequence[str], partition: int, broker_id: int) -> bool:
    """Return whether a topic's setting names the replica of a partition on a broker: `partition:broker`, or `*`."""
    if not replicas:
        return False
    return ALL_REPLICAS in replicas or [partition, broker_id] in [
        [int(number) for number in replica.split(":")] for replica in replicas
    ]
