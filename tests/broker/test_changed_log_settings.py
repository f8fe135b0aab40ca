"""Broker settings that logs have for their defaults: changed while the broker runs, they count in open logs at once."""

from __future__ import annotations

import pytest

from minibroker.broker.config.dynamic_settings import CHANGEABLE, PER_BROKER, THREADS
from minibroker.protocol.api import ApiKey
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.primitives import TopicPartition
from tests.broker.conftest import InMemoryBroker

BROKER, SET = 4, 0
TOPIC = TopicPartition("t", 0)
# By the broker's setting: another value than the default, and what the log's config says then.
LOG_SETTINGS: dict[str, tuple[str, str, object]] = {
    "compression.type": ("gzip", "compression_type", "gzip"),
    "log.cleaner.delete.retention.ms": ("77", "delete_retention_ms", 77),
    "log.cleaner.max.compaction.lag.ms": ("99999", "max_compaction_lag_ms", 99999),
    "log.cleaner.min.cleanable.ratio": ("0.11", "min_cleanable_dirty_ratio", 0.11),
    "log.cleaner.min.compaction.lag.ms": ("78", "min_compaction_lag_ms", 78),
    "log.cleanup.policy": ("compact", "cleanup_policy", ("compact",)),
    "log.flush.interval.messages": ("5", "flush_messages", 5),
    "log.flush.interval.ms": ("66", "flush_ms", 66),
    "log.index.interval.bytes": ("555", "index_interval_bytes", 555),
    "log.index.size.max.bytes": ("4444", "segment_index_bytes", 4444),
    "log.message.downconversion.enable": ("false", "message_downconversion_enable", False),
    "log.message.timestamp.difference.max.ms": ("5000", "message_timestamp_difference_max_ms", 5000),
    "log.message.timestamp.type": ("LogAppendTime", "message_timestamp_type", "LogAppendTime"),
    "log.preallocate": ("true", "preallocate", True),
    "log.retention.bytes": ("123456", "retention_bytes", 123456),
    "log.retention.ms": ("9999", "retention_ms", 9999),
    "log.roll.jitter.ms": ("33", "segment_jitter_ms", 33),
    "log.roll.ms": ("88888", "segment_ms", 88888),
    "log.segment.bytes": ("77777", "segment_bytes", 77777),
    "log.segment.delete.delay.ms": ("1234", "file_delete_delay_ms", 1234),
    "message.max.bytes": ("65432", "max_message_bytes", 65432),
    "min.insync.replicas": ("2", "min_insync_replicas", 2),
    "unclean.leader.election.enable": ("true", "unclean_leader_election_enable", True),
}
# The cleaner's own, which compaction reads off the broker's configuration for each log; and reporters: refused.
OTHER_SETTINGS = {
    "log.cleaner.backoff.ms",
    "log.cleaner.dedupe.buffer.size",
    "log.cleaner.io.buffer.load.factor",
    "log.cleaner.io.buffer.size",
    "log.cleaner.io.max.bytes.per.second",
    "log.cleaner.threads",
    "metric.reporters",
}


async def change(broker: InMemoryBroker, whose: str, name: str, value: str) -> None:
    answer = await broker.call(
        ApiKey.INCREMENTAL_ALTER_CONFIGS, 0, resources=[(BROKER, whose, [(name, SET, value)])], validate_only=False
    )
    assert answer.responses[0].error_code == ErrorCode.NONE, answer


@pytest.mark.trio
@pytest.mark.parametrize("whose", ["0", ""], ids=["of this broker", "of all brokers"])
@pytest.mark.parametrize("name", sorted(LOG_SETTINGS))
async def test_an_open_log_has_the_changed_default_at_once(broker: InMemoryBroker, name: str, whose: str) -> None:
    value, field, expected = LOG_SETTINGS[name]
    await broker.create_topic("t")
    log = broker.parts.replica_manager.partitions[TOPIC].log
    assert getattr(log.config, field) != expected

    await change(broker, whose, name, value)

    assert getattr(log.config, field) == expected


@pytest.mark.trio
async def test_what_a_topic_sets_itself_is_not_touched(broker: InMemoryBroker) -> None:
    await broker.create_topic("t", retention_ms=7)

    await change(broker, "0", "log.retention.ms", "9999")

    assert broker.parts.replica_manager.partitions[TOPIC].log.config.retention_ms == 7


def test_no_setting_that_may_be_changed_is_left_out() -> None:
    assert LOG_SETTINGS.keys() | OTHER_SETTINGS == CHANGEABLE - PER_BROKER - THREADS
