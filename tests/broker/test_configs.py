"""AlterConfigs and IncrementalAlterConfigs at the handlers: in effect at once, there after a restart, or refused.

What Apache Kafka 2.0.1 answers to every kind of wrong and right change is in tests/conformance/scripts/changing.py and
reconfiguring.py.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from minibroker.broker.apis.config_operations import altered
from minibroker.broker.config.settings.changeable import CHANGEABLE, PER_BROKER, THREADS
from minibroker.protocol.api import ApiKey
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.messages.configs import IncrementalAlterConfigsRequest
from tests.broker.asking import BROKER, TOPIC, described
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


make_row = IncrementalAlterConfigsRequest.row("resources.configs")


@pytest.mark.parametrize("version", range(3))
async def test_a_topics_configs_count_in_its_live_logs(broker: InMemoryBroker, version: int) -> None:
    await broker.create_topic("t", 2)

    null = (ErrorCode.INVALID_REQUEST, "Null value not supported for : retention.ms")
    assert await alter(broker, TOPIC, "t", {"retention.ms": None}, version=version) == null
    assert await alter(broker, TOPIC, "t", {"segment.bytes": "1000", "retention.ms": "7"}, version=version) == OK

    assert [broker.log_of("t", partition).config.segment_bytes for partition in range(2)] == [1000, 1000]
    assert broker.log_of("t").config.retention_ms == 7


@pytest.mark.parametrize(
    ("kind", "name", "code", "message"),
    [
        (TOPIC, "nope", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 'Topic "nope" does not exist.'),
        (TOPIC, "", ErrorCode.INVALID_TOPIC_EXCEPTION, "Topic name is illegal, it can't be empty"),
        (BROKER, "x", ErrorCode.INVALID_REQUEST, "Broker id must be an integer, but it is: x"),
        (
            BROKER,
            "1",
            ErrorCode.INVALID_REQUEST,
            "Unexpected broker id, expected 0, but received ConfigResource(type=BROKER, name='1').name",
        ),
        (BROKER, " 0", ErrorCode.INVALID_REQUEST, "Broker id must be an integer, but it is:  0"),
        (BROKER, str(2**31), ErrorCode.INVALID_REQUEST, f"Broker id must be an integer, but it is: {2**31}"),
    ],
)
async def test_unknown_resources_are_refused(
    broker: InMemoryBroker, kind: int, name: str, code: ErrorCode, message: str
) -> None:
    assert await alter_some(broker, kind, name) == (code, message)


async def test_a_failing_disk_alters_nothing(broker: InMemoryBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    await broker.create_topic("t")

    def fail(*_: object) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(broker.app._store, "save", fail)

    assert (await alter(broker, TOPIC, "t", {"segment.bytes": "1000"}))[0] == ErrorCode.KAFKA_STORAGE_ERROR
    assert (await alter(broker, BROKER, "0", {"log.segment.bytes": "1000"}))[0] == ErrorCode.KAFKA_STORAGE_ERROR

    assert broker.log_of("t").config.segment_bytes == 1024**3
    assert await value_and_source(broker, TOPIC, "t", "segment.bytes") == {"segment.bytes": ("1073741824", 5)}


async def test_a_brokers_settings_count_in_live_logs_below_what_topics_set(broker: InMemoryBroker) -> None:
    await broker.create_topic("own", segment_bytes=1000)
    await broker.create_topic("t")

    assert await alter(broker, BROKER, "0", {"log.segment.bytes": "5000"}) == OK

    assert broker.log_of("own").config.segment_bytes == 1000
    assert broker.log_of("t").config.segment_bytes == 5000
    await broker.create_topic("later")
    assert broker.log_of("later").config.segment_bytes == 5000


async def test_changes_of_topics_and_brokers_outlive_a_restart(make_broker: MakeBroker, tmp_path: Path) -> None:
    broker = make_broker(tmp_path / "shared")
    await broker.create_topic("t")
    await broker.create_topic("own")
    await alter(broker, TOPIC, "own", {"segment.bytes": "1000"})
    await alter(broker, BROKER, "0", {"log.segment.bytes": "5000", "plugin.key": "secret"})
    await alter(broker, BROKER, "", {"log.retention.bytes": "9"})
    assert await value_and_source(broker, BROKER, "") == {"log.retention.bytes": ("9", 3)}
    broker.close()

    broker = make_broker(tmp_path / "shared")

    assert [broker.log_of(name).config.segment_bytes for name in ("own", "t")] == [1000, 5000]
    assert await value_and_source(broker, TOPIC, "own", "segment.bytes") == {"segment.bytes": ("1000", 1)}
    kept = {"log.segment.bytes": ("5000", 2), "log.retention.bytes": ("9", 3), "plugin.key": (None, 2)}
    assert await value_and_source(broker, BROKER, "0", *kept) == kept


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


async def test_what_clients_are_told_to_connect_to_may_change(broker: InMemoryBroker) -> None:
    assert await alter(broker, BROKER, "0", {"advertised.listeners": "PLAINTEXT://elsewhere:1234"}) == OK

    answer = await broker.call(ApiKey.METADATA, 1, topics=[])
    assert [(row.host, row.port) for row in answer.brokers] == [("elsewhere", 1234)]


async def test_secrets_are_not_written_down(broker: InMemoryBroker, tmp_path: Path) -> None:
    code, message = await alter(broker, BROKER, "0", {"listener.name.x.ssl.keystore.password": "hunter2"})

    assert code == ErrorCode.INVALID_REQUEST
    assert message is not None and message.endswith(": Password encoder secret not configured")
    assert all("hunter2" not in path.read_text() for path in tmp_path.rglob("minibroker.json"))  # noqa: ASYNC240


@pytest.mark.parametrize("version", [3, 4])
async def test_types_and_documentation_are_told_from_v3(broker: InMemoryBroker, version: int) -> None:
    await broker.create_topic("t")

    asked = [(TOPIC, "t", ["retention.ms", "cleanup.policy"]), (BROKER, "0", ["log.segment.bytes"])]
    answer = await broker.call(ApiKey.DESCRIBE_CONFIGS, version, resources=asked, include_documentation=True)

    rows = [row for result in answer.results for row in result.configs]
    types = {"retention.ms": 5, "cleanup.policy": 7, "log.segment.bytes": 3}
    assert {row.name: row.config_type for row in rows} == types
    assert all(row.documentation for row in rows)


@pytest.mark.parametrize("version", range(2))
async def test_what_is_not_named_stays(broker: InMemoryBroker, version: int) -> None:
    await broker.create_topic("t", segment_bytes=1000, retention_ms=7)

    outcome = await alter_some(
        broker, TOPIC, "t", ("retention.ms", DELETE, None), ("max.message.bytes", SET, "9"), version=version
    )

    assert outcome == OK
    config = broker.log_of("t").config
    assert (config.segment_bytes, config.retention_ms, config.max_message_bytes) == (1000, 604_800_000, 9)


async def test_a_brokers_settings_are_altered_one_by_one(broker: InMemoryBroker) -> None:
    await broker.create_topic("t")
    for name, operation, value in (("segment", SET, "5000"), ("retention", SET, "9"), ("segment", DELETE, None)):
        assert await alter_some(broker, BROKER, "0", (f"log.{name}.bytes", operation, value)) == OK

    config = broker.log_of("t").config
    assert (config.segment_bytes, config.retention_bytes) == (1024**3, 9)


@pytest.mark.parametrize(
    ("operations", "message"),
    [
        ([(SET, "1"), (DELETE, None)], "Error due to duplicate config keys : retention.ms"),
        ([(SET, None)], "Null value not supported for : retention.ms"),
        ([(APPEND, "1")], "Config value append is not allowed for config key: retention.ms"),
        ([(SUBTRACT, "1")], "Config value subtract is not allowed for config key: retention.ms"),
        ([(9, "1")], "Unknown operation 9 on config retention.ms"),
        (
            [(SET, "x")],
            "Invalid config value for resource ConfigResource(type=TOPIC, name='t'): "
            "Invalid value x for configuration retention.ms: Not a number of type LONG",
        ),
    ],
)
async def test_wrong_operations_are_refused(
    broker: InMemoryBroker, operations: list[tuple[int, str | None]], message: str
) -> None:
    await broker.create_topic("t", retention_ms=7)

    rows = [("retention.ms", *operation) for operation in operations]
    assert await alter_some(broker, TOPIC, "t", *rows) == (ErrorCode.INVALID_REQUEST, message)

    assert broker.log_of("t").config.retention_ms == 7


async def test_a_resource_is_altered_once_in_a_request(broker: InMemoryBroker) -> None:
    await broker.create_topic("t")

    twice = [(TOPIC, "t", [("retention.ms", SET, "7")]), (TOPIC, "t", [("retention.bytes", SET, "8")])]
    answer = await broker.call(ApiKey.INCREMENTAL_ALTER_CONFIGS, 0, resources=twice, validate_only=False)

    assert [tuple(row) for row in answer.responses] == [
        (ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.", TOPIC, "t")
    ]


@pytest.mark.parametrize(
    ("current", "operation", "value", "expected"),
    [
        ({"cleanup.policy": "compact"}, APPEND, "delete", "compact,delete"),
        ({"cleanup.policy": "compact"}, APPEND, "compact", "compact"),
        ({"cleanup.policy": "compact,delete"}, SUBTRACT, "compact", "delete"),
        ({"cleanup.policy": "compact"}, SUBTRACT, "delete", "compact"),
        ({"cleanup.policy": "delete"}, APPEND, " compact , delete", "delete,compact"),
        ({}, APPEND, "compact", "delete,compact"),
    ],
)
def test_an_element_is_in_a_list_once(current: dict[str, Any], operation: int, value: str, expected: str) -> None:
    configs = altered(current, [make_row(name="cleanup.policy", operation=operation, value=value)], is_topic=True)

    assert configs == {"cleanup.policy": expected}


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


LOGGER = 8


@pytest.mark.parametrize("kind", [0, 1, 3, 99, -128, LOGGER])
@pytest.mark.parametrize(
    ("key", "version"),
    [
        *((ApiKey.DESCRIBE_CONFIGS, version) for version in range(5)),
        *((ApiKey.ALTER_CONFIGS, version) for version in range(3)),
        *((ApiKey.INCREMENTAL_ALTER_CONFIGS, version) for version in range(2)),
    ],
)
async def test_a_resource_of_an_unknown_type_is_answered_as_it_was_named(
    broker: InMemoryBroker, key: ApiKey, version: int, kind: int
) -> None:
    """Kafka 2.0.1 calls it UNKNOWN, for which no client has asked."""
    rows: list[Any] | None = None if key is ApiKey.DESCRIBE_CONFIGS else []

    answer = await broker.call(key, version, resources=[(kind, "x", rows)])

    ((code, message, answered_kind, name, *_),) = answer[-1]
    is_later = version > {ApiKey.DESCRIBE_CONFIGS: 2, ApiKey.ALTER_CONFIGS: 1}.get(key, -1)
    assert (code, answered_kind, name) == (ErrorCode.INVALID_REQUEST, kind, "x")
    if not is_later or (key is ApiKey.DESCRIBE_CONFIGS and kind != LOGGER):
        assert message.startswith("Unexpected resource type UNKNOWN")
    elif kind != LOGGER or key is ApiKey.ALTER_CONFIGS:
        assert message == f"Unknown resource type {kind}"


async def test_one_resource_of_an_unknown_type_is_no_harm_to_the_others(broker: InMemoryBroker) -> None:
    await broker.create_topic("t")
    resources: list[Any] = [(99, "t", []), (TOPIC, "t", [("retention.ms", SET, "5")])]

    answer = await broker.call(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, resources=resources)

    assert [(row.error_code, row.resource_type) for row in answer.responses] == [(42, 99), (0, TOPIC)]


@pytest.mark.parametrize(
    ("name", "rows", "error", "message"),
    [
        ("0", [("kafka.server", SET, "DEBUG")], ErrorCode.INVALID_CONFIG, "Logger kafka.server does not exist!"),
        ("0", [("kafka.server", DELETE, None)], ErrorCode.INVALID_CONFIG, "Logger kafka.server does not exist!"),
        ("0", [], ErrorCode.NONE, None),
        (
            *("0", [("kafka.server", APPEND, "DEBUG")], ErrorCode.INVALID_REQUEST),
            "APPEND operation is not allowed for the BROKER_LOGGER resource",
        ),
        ("0", [("kafka.server", 9, "DEBUG")], ErrorCode.UNKNOWN_SERVER_ERROR, None),
        (
            *("0", [("kafka.server", SET, None)], ErrorCode.INVALID_REQUEST),
            "Null value not supported for : kafka.server",
        ),
        ("", [], ErrorCode.INVALID_REQUEST, "Broker id must not be empty"),
        ("x", [], ErrorCode.INVALID_REQUEST, "Broker id must be an integer, but it is: x"),
    ],
)
async def test_a_broker_has_no_loggers(
    broker: InMemoryBroker, name: str, rows: list[Any], error: ErrorCode, message: str | None
) -> None:
    assert await alter_some(broker, LOGGER, name, *rows) == (error, message)


@pytest.mark.parametrize("version", [3, 4])
async def test_the_loggers_of_a_broker_are_described_as_none(broker: InMemoryBroker, version: int) -> None:
    resources = [(LOGGER, "0", None), (LOGGER, "1", None)]

    own, other = (await broker.call(ApiKey.DESCRIBE_CONFIGS, version, resources=resources)).results

    assert (own.error_code, own.resource_type, own.configs) == (ErrorCode.NONE, LOGGER, [])
    assert (other.error_code, other.configs) == (ErrorCode.INVALID_REQUEST, [])


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
