"""AlterConfigs at the handlers: in effect at once, there after a restart, or refused.

Codes and messages are those of Apache Kafka 2.0.1 (tests/conformance/scripts/changing.py).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from minibroker.protocol.api import ApiKey
from minibroker.protocol.errors import ErrorCode
from tests.broker.config_requests import BROKER, OK, TOPIC, alter, alter_some, described
from tests.broker.conftest import InMemoryBroker, MakeBroker


def edit(path: Path, old: str, new: str) -> None:
    path.write_text(path.read_text().replace(old, new))


# -- topics ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(3))
async def test_a_topics_configs_count_in_its_live_logs(broker: InMemoryBroker, version: int) -> None:
    await broker.create_topic("t", 2)

    assert await alter(broker, TOPIC, "t", {"segment.bytes": "1000", "retention.ms": "7"}, version=version) == OK

    assert [broker.log_of("t", partition).config.segment_bytes for partition in range(2)] == [1000, 1000]
    assert broker.log_of("t").config.retention_ms == 7


async def test_altered_configs_replace_all_there_were(broker: InMemoryBroker) -> None:
    await broker.create_topic("t", segment_bytes=1000)

    await alter(broker, TOPIC, "t", {"retention.ms": "7"})

    assert broker.log_of("t").config.segment_bytes == 1024**3
    assert await described(broker, TOPIC, "t", "segment.bytes", "retention.ms") == {
        "segment.bytes": ("1073741824", 5),
        "retention.ms": ("7", 1),
    }


async def test_a_smaller_limit_refuses_the_next_batch(broker: InMemoryBroker) -> None:
    await broker.create_topic("t")
    assert (await broker.produce("t", [b"x" * 500])).error_code == ErrorCode.NONE

    await alter(broker, TOPIC, "t", {"max.message.bytes": "100"})

    assert (await broker.produce("t", [b"x" * 500])).error_code == ErrorCode.MESSAGE_TOO_LARGE


async def test_more_insync_replicas_refuse_the_next_acks_all(broker: InMemoryBroker) -> None:
    await broker.create_topic("t")

    await alter(broker, TOPIC, "t", {"min.insync.replicas": "2"})

    assert (await broker.produce("t", [b"x"], acks=-1)).error_code == ErrorCode.NOT_ENOUGH_REPLICAS


async def test_a_topics_configs_outlive_a_restart(make_broker: MakeBroker, tmp_path: Path) -> None:
    broker = make_broker(tmp_path / "shared")
    await broker.create_topic("t")
    await alter(broker, TOPIC, "t", {"segment.bytes": "1000"})
    broker.close()

    broker = make_broker(tmp_path / "shared")

    assert broker.log_of("t").config.segment_bytes == 1000
    assert await described(broker, TOPIC, "t", "segment.bytes") == {"segment.bytes": ("1000", 1)}


async def test_validation_alone_alters_nothing(broker: InMemoryBroker) -> None:
    await broker.create_topic("t")

    assert await alter(broker, TOPIC, "t", {"segment.bytes": "1000"}, validate_only=True) == OK
    assert (await alter(broker, TOPIC, "t", {"segment.bytes": "1"}, validate_only=True))[0] != ErrorCode.NONE

    assert broker.log_of("t").config.segment_bytes == 1024**3


@pytest.mark.parametrize(
    ("configs", "code", "message"),
    [
        ({"no.such": "1"}, ErrorCode.INVALID_CONFIG, "Unknown topic config name: no.such"),
        ({"retention.ms": "x", "no.such": "1"}, ErrorCode.INVALID_CONFIG, "Unknown topic config name: no.such"),
        (
            {"retention.ms": "x"},
            ErrorCode.INVALID_REQUEST,
            "Invalid config value for resource ConfigResource(type=TOPIC, name='t'): "
            "Invalid value x for configuration retention.ms: Not a number of type LONG",
        ),
        (
            {"cleanup.policy": "compact,burn"},
            ErrorCode.INVALID_REQUEST,
            "Invalid config value for resource ConfigResource(type=TOPIC, name='t'): "
            "Invalid value burn for configuration cleanup.policy: String must be one of: compact, delete",
        ),
        ({"retention.ms": None}, ErrorCode.INVALID_REQUEST, "Null value not supported for : retention.ms"),
    ],
)
async def test_wrong_configs_alter_nothing(
    broker: InMemoryBroker, configs: dict[str, Any], code: ErrorCode, message: str
) -> None:
    await broker.create_topic("t", segment_bytes=1000)

    assert await alter(broker, TOPIC, "t", configs) == (code, message)

    assert broker.log_of("t").config.segment_bytes == 1000


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
        (99, "t", ErrorCode.INVALID_REQUEST, "Unexpected resource type UNKNOWN"),
    ],
)
async def test_what_is_not_there_is_not_altered(
    broker: InMemoryBroker, kind: int, name: str, code: ErrorCode, message: str
) -> None:
    assert await alter(broker, kind, name, {}) == (code, message)
    assert await alter_some(broker, kind, name) == (code, message)


async def test_a_failing_disk_alters_nothing(broker: InMemoryBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    await broker.create_topic("t")

    def fail() -> None:
        raise OSError("no space left")

    monkeypatch.setattr(broker.app._store, "save", fail)

    assert (await alter(broker, TOPIC, "t", {"segment.bytes": "1000"}))[0] == ErrorCode.KAFKA_STORAGE_ERROR
    assert (await alter(broker, BROKER, "0", {"log.segment.bytes": "1000"}))[0] == ErrorCode.KAFKA_STORAGE_ERROR

    assert broker.log_of("t").config.segment_bytes == 1024**3
    assert await described(broker, TOPIC, "t", "segment.bytes") == {"segment.bytes": ("1073741824", 5)}


# -- the broker -----------------------------------------------------------------------------------------------


async def test_a_brokers_settings_count_in_live_logs_below_what_topics_set(broker: InMemoryBroker) -> None:
    await broker.create_topic("own", segment_bytes=1000)
    await broker.create_topic("t")

    assert await alter(broker, BROKER, "0", {"log.segment.bytes": "5000"}) == OK

    assert broker.log_of("own").config.segment_bytes == 1000
    assert broker.log_of("t").config.segment_bytes == 5000
    await broker.create_topic("later")
    assert broker.log_of("later").config.segment_bytes == 5000


async def test_one_brokers_settings_win_over_those_of_all(broker: InMemoryBroker) -> None:
    await broker.create_topic("t")

    await alter(broker, BROKER, "", {"log.segment.bytes": "5000", "log.retention.bytes": "9"})
    await alter(broker, BROKER, "0", {"log.segment.bytes": "6000"})

    keys = ("log.segment.bytes", "log.retention.bytes")
    assert await described(broker, BROKER, "0", *keys) == {
        "log.segment.bytes": ("6000", 2),
        "log.retention.bytes": ("9", 3),
    }
    assert await described(broker, BROKER, "") == {"log.segment.bytes": ("5000", 3), "log.retention.bytes": ("9", 3)}
    assert await described(broker, TOPIC, "t", "segment.bytes", "retention.bytes") == {
        "segment.bytes": ("6000", 2),
        "retention.bytes": ("9", 3),
    }


async def test_settings_taken_back_are_as_the_broker_was_started(make_broker: MakeBroker) -> None:
    broker = make_broker(log_retention_ms=100_000)
    await broker.create_topic("t")
    await alter(broker, BROKER, "0", {"log.retention.ms": "5", "log.segment.bytes": "5000"})

    assert await alter(broker, BROKER, "0", {}) == OK

    assert broker.log_of("t").config.retention_ms == 100_000
    assert broker.log_of("t").config.segment_bytes == 1024**3
    assert await described(broker, BROKER, "0", "log.retention.ms") == {"log.retention.ms": ("100000", 4)}


async def test_a_brokers_settings_outlive_a_restart(make_broker: MakeBroker, tmp_path: Path) -> None:
    broker = make_broker(tmp_path / "shared")
    await broker.create_topic("t")
    await alter(broker, BROKER, "0", {"log.segment.bytes": "5000", "plugin.key": "secret"})
    await alter(broker, BROKER, "", {"log.retention.bytes": "9"})
    broker.close()

    broker = make_broker(tmp_path / "shared")

    assert broker.log_of("t").config.segment_bytes == 5000
    keys = ("log.segment.bytes", "log.retention.bytes", "plugin.key")
    assert await described(broker, BROKER, "0", *keys) == {
        "log.segment.bytes": ("5000", 2),
        "log.retention.bytes": ("9", 3),
        "plugin.key": (None, 2),
    }


async def test_a_stored_setting_that_is_no_longer_right_is_ignored(
    make_broker: MakeBroker, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    broker = make_broker(tmp_path / "shared")
    await alter(broker, BROKER, "0", {"log.segment.bytes": "5000", "log.retention.bytes": "9"})
    broker.close()
    edit(tmp_path / "shared" / "minibroker.json", '"5000"', '"many"')

    broker = make_broker(tmp_path / "shared")

    assert "log.segment.bytes=many is ignored" in caplog.text
    keys = ("log.segment.bytes", "log.retention.bytes")
    assert await described(broker, BROKER, "0", *keys) == {
        "log.segment.bytes": ("1073741824", 5),
        "log.retention.bytes": ("9", 2),
    }


async def test_what_clients_are_told_to_connect_to_may_change(broker: InMemoryBroker) -> None:
    assert await alter(broker, BROKER, "0", {"advertised.listeners": "PLAINTEXT://elsewhere:1234"}) == OK

    answer = await broker.call(ApiKey.METADATA, 1, topics=[])
    assert [(row.host, row.port) for row in answer.brokers] == [("elsewhere", 1234)]


async def test_secrets_are_not_written_down(broker: InMemoryBroker, tmp_path: Path) -> None:
    code, message = await alter(broker, BROKER, "0", {"listener.name.x.ssl.keystore.password": "hunter2"})

    assert (code, message) == (
        ErrorCode.INVALID_REQUEST,
        "Invalid config value for resource ConfigResource(type=BROKER, name='0'): "
        "Password encoder secret not configured",
    )
    assert all("hunter2" not in path.read_text() for path in tmp_path.rglob("minibroker.json"))  # noqa: ASYNC240


async def test_of_a_resource_given_twice_the_last_counts(broker: InMemoryBroker) -> None:
    await broker.create_topic("t")

    answer = await broker.call(
        ApiKey.ALTER_CONFIGS,
        1,
        resources=[(TOPIC, "t", [("retention.ms", "7")]), (TOPIC, "t", [("retention.ms", "8")])],
        validate_only=False,
    )

    assert [tuple(row) for row in answer.responses] == [(ErrorCode.NONE, None, TOPIC, "t")]
    assert broker.log_of("t").config.retention_ms == 8


# -- DescribeConfigs, what v3 added ---------------------------------------------------------------------------


@pytest.mark.parametrize("version", [3, 4])
async def test_types_and_documentation_are_told_from_v3(broker: InMemoryBroker, version: int) -> None:
    await broker.create_topic("t")

    answer = await broker.call(
        ApiKey.DESCRIBE_CONFIGS,
        version,
        resources=[(TOPIC, "t", ["retention.ms", "cleanup.policy"]), (BROKER, "0", ["log.segment.bytes"])],
        include_documentation=True,
    )

    rows = [row for result in answer.results for row in result.configs]
    assert {row.name: row.config_type for row in rows} == {
        "retention.ms": 5,
        "cleanup.policy": 7,
        "log.segment.bytes": 3,
    }
    assert all(row.documentation for row in rows)


async def test_documentation_is_told_when_asked_for(broker: InMemoryBroker) -> None:
    answer = await broker.call(ApiKey.DESCRIBE_CONFIGS, 3, resources=[(BROKER, "0", ["log.segment.bytes"])])

    assert [row.documentation for row in answer.results[0].configs] == [None]


async def test_the_file_of_topics_holds_the_changed_settings(make_broker: MakeBroker, tmp_path: Path) -> None:
    broker = make_broker(tmp_path / "data")

    await alter(broker, BROKER, "", {"log.retention.bytes": "9"})

    document = json.loads((tmp_path / "data" / "minibroker.json").read_text())
    assert document["broker_configs"] == {"": {"log.retention.bytes": "9"}}
