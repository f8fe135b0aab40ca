"""AlterConfigs and IncrementalAlterConfigs at the handlers: in effect at once, there after a restart, or refused.

What Apache Kafka 2.0.1 answers to every kind of wrong and right change is in tests/conformance/scripts/changing.py and
reconfiguring.py.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from minibroker.broker.config.dynamic_settings import CHANGEABLE, PER_BROKER, THREADS
from minibroker.protocol.api import ApiKey
from minibroker.protocol.errors import ErrorCode
from tests.broker.asking import BROKER, described
from tests.broker.conftest import InMemoryBroker, MakeBroker
from tests.certificates import Certificates

SET, DELETE, APPEND, SUBTRACT = range(4)
OK = (ErrorCode.NONE, None)


async def alter(
    broker: InMemoryBroker, kind: int, name: str, configs: dict[str, Any], version: int = 1
) -> tuple[int, str | None]:
    """Error code and message of the one resource."""
    resources = [(kind, name, list(configs.items()))]
    answer = await broker.call(ApiKey.ALTER_CONFIGS, version, resources=resources, validate_only=False)
    return tuple(answer.responses[0][:2])


async def alter_some(
    broker: InMemoryBroker, kind: int, name: str, *rows: tuple[str, int, str | None], version: int = 0
) -> tuple[int, str | None]:
    """IncrementalAlterConfigs, likewise."""
    resources = [(kind, name, list(rows))]
    answer = await broker.call(ApiKey.INCREMENTAL_ALTER_CONFIGS, version, resources=resources, validate_only=False)
    return tuple(answer.responses[0][:2])


async def value_and_source(
    broker: InMemoryBroker, kind: int, name: str, *keys: str
) -> dict[str, tuple[str | None, int]]:
    return {key: (row.value, row.config_source) for key, row in (await described(broker, kind, name, *keys)).items()}


async def test_a_stored_setting_that_is_no_longer_right_is_ignored(
    make_broker: MakeBroker, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    broker = make_broker(tmp_path / "shared")
    await alter(broker, BROKER, "0", {"log.segment.bytes": "5000", "log.retention.bytes": "9"})
    broker.close()
    path = tmp_path / "shared" / "minibroker.json"
    path.write_text(path.read_text().replace('"5000"', '"many"'))

    broker = make_broker(tmp_path / "shared")

    assert "log.segment.bytes=many is ignored" in caplog.text
    kept = {"log.segment.bytes": ("1073741824", 5), "log.retention.bytes": ("9", 2)}
    assert await value_and_source(broker, BROKER, "0", *kept) == kept


async def test_secrets_are_not_written_down(broker: InMemoryBroker, tmp_path: Path) -> None:
    code, message = await alter(broker, BROKER, "0", {"listener.name.x.ssl.keystore.password": "hunter2"})

    assert code == ErrorCode.INVALID_REQUEST
    assert message is not None and message.endswith(": Password encoder secret not configured")
    assert all("hunter2" not in path.read_text() for path in tmp_path.rglob("minibroker.json"))  # noqa: ASYNC240


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
    *(f"log.cleaner.{name}" for name in ("backoff.ms", "dedupe.buffer.size", "io.buffer.load.factor", "threads")),
    *(f"log.cleaner.io.{name}" for name in ("buffer.size", "max.bytes.per.second")),
    "metric.reporters",
}


@pytest.mark.parametrize("whose", ["0", ""], ids=["of this broker", "of all brokers"])
@pytest.mark.parametrize("name", sorted(LOG_SETTINGS))
async def test_an_open_log_has_the_changed_default_at_once(broker: InMemoryBroker, name: str, whose: str) -> None:
    value, field, expected = LOG_SETTINGS[name]
    await broker.create_topic("t")
    log = broker.log_of("t")
    assert getattr(log.config, field) != expected

    assert await alter_some(broker, BROKER, whose, (name, SET, value)) == OK

    assert getattr(log.config, field) == expected


def test_no_setting_that_may_be_changed_is_left_out() -> None:
    assert LOG_SETTINGS.keys() | OTHER_SETTINGS == CHANGEABLE - PER_BROKER - THREADS


async def test_a_listener_gets_another_key_store_while_it_serves(make_broker: MakeBroker, tmp_path: Path) -> None:
    certificates = Certificates(tmp_path)
    first, second = (certificates.issued(name) for name in ("first", "second"))
    broker = make_broker(
        listeners="SSL://:0",
        security_inter_broker_protocol="SSL",
        ssl_keystore_type="PEM",
        ssl_keystore_location=str(first),
    )
    listener = broker.app._tls["SSL"]
    before, name = listener.context(), "listener.name.ssl.ssl.keystore.location"

    refused = await alter(broker, BROKER, "0", {name: str(tmp_path / "none")})
    assert (refused[0], listener.context()) == (ErrorCode.INVALID_REQUEST, before)
    assert "No such file or directory" in (refused[1] or "")
    assert await alter(broker, BROKER, "0", {name: str(second)}) == (ErrorCode.NONE, None)
    assert listener.context() is not before
