"""Releases that `--act-as` names: their tables, docs/profiles.md, and what a broker answers that acts as one."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from minibroker.broker.config.dynamic_settings import SETTINGS
from minibroker.broker.config.kafka_config import ConfigError, KafkaConfig
from minibroker.broker.config.profiles import (
    ABSENT,
    APIS,
    DEFAULTS,
    ERRORS_INSTEAD,
    HABITS_UNTIL,
    LAST_ERRORS,
    RELEASES,
    SETTINGS_SINCE,
    TOPIC_CONFIGS_SINCE,
    Habit,
    profile_of,
    rows_of,
)
from minibroker.protocol.api import API_TABLE, ApiKey, encode_request
from minibroker.protocol.errors import ErrorCode, KafkaProtocolError
from minibroker.protocol.message_set import build_message_set
from minibroker.protocol.record import Record
from minibroker.storage.config import TOPIC_CONFIGS
from tests.broker.conftest import NOW_MS, InMemoryBroker, MakeBroker
from tests.broker.releases import BROKER, PROFILES, TOPIC, create
from tests.conformance.kafka_versions import LAST_VERSIONS_OF_KAFKA_2_0

DOCUMENT = Path(__file__).parent.parent.parent / "docs" / "profiles.md"
MAGIC_AT = 16  # in a batch of any format


# -- the tables -----------------------------------------------------------------------------------------------


def test_the_table_calls_apis_as_the_protocol_does() -> None:
    known = {str(int(key)): api.name for key, api in API_TABLE.items()}

    assert [name for _, name, *_ in rows_of(APIS)] == [known.get(key, name) for key, name, *_ in rows_of(APIS)]


def test_no_release_has_fewer_versions_than_the_one_before() -> None:
    for _, _, *versions in rows_of(APIS):
        numbers = [-1 if last == ABSENT else int(last) for last in versions]
        assert numbers == sorted(numbers)


def test_2_0_is_the_release_that_all_answers_are_compared_with() -> None:
    assert LAST_VERSIONS_OF_KAFKA_2_0.items() <= (profile_of("2.0").last_versions or {}).items()


def test_every_setting_of_the_tables_is_one() -> None:
    named = {name for name, *_ in rows_of(DEFAULTS)} | set(" ".join(SETTINGS_SINCE.values()).split())

    assert [each for each in named if not any(known.startswith(each) for known in SETTINGS)] == []
    assert set(TOPIC_CONFIGS_SINCE.values()) <= TOPIC_CONFIGS.keys()


def test_the_defaults_of_2_0_are_those_of_no_release() -> None:
    names = [name for name, *_ in rows_of(DEFAULTS)]

    acting, own = KafkaConfig({}, profile=profile_of("2.0")), KafkaConfig({})

    assert [acting.text_of(name) for name in names] == [own.text_of(name) for name in names]


def tables() -> Iterable[str]:
    """Those of docs/profiles.md."""
    releases, lines = " | ".join(RELEASES), "---|" * len(RELEASES)
    here = {str(int(key)): "yes" for key in API_TABLE}
    yield table(
        f"| key | API | {releases} | here |\n|---|---|{lines}---|",
        ([key, name, *versions, here.get(key, "no")] for key, name, *versions in rows_of(APIS)),
    )
    yield table(
        f"| setting | {releases} |\n|---|{lines}", ([f"`{name}`", *values] for name, *values in rows_of(DEFAULTS))
    )
    yield table(
        "| since | settings |\n|---|---|",
        ([since, " ".join(starred(name) for name in names.split())] for since, names in SETTINGS_SINCE.items()),
    )
    yield table(
        "| since | config of topics |\n|---|---|", ([since, f"`{name}`"] for since, name in TOPIC_CONFIGS_SINCE.items())
    )
    yield table(
        "| release | last error code |\n|---|---|",
        ([name, f"{last} {ErrorCode(last).name}"] for name, last in LAST_ERRORS.items()),
    )
    yield table(
        "| error code | before it was known |\n|---|---|",
        ([ErrorCode(later).name, ErrorCode(before).name] for later, before in ERRORS_INSTEAD.items()),
    )


def table(head: str, rows: Iterable[Iterable[str]]) -> str:
    return "\n".join([head, *(f"| {' | '.join(row)} |" for row in rows)]) + "\n"


def starred(name: str) -> str:
    return f"`{name}*`" if name.endswith(".") else f"`{name}`"


def test_the_document_has_the_tables() -> None:
    text = DOCUMENT.read_text(encoding="utf-8")

    for each in tables():
        assert each in text, f"put this table into {DOCUMENT.name}:\n\n{each}"


@pytest.mark.parametrize("habit", Habit)
def test_the_document_tells_every_habit_and_who_has_it(habit: Habit) -> None:
    marks = " | ".join("yes" if habit in profile_of(name).habits else "-" for name in RELEASES)

    assert f"| {habit.value} | {marks} | " in DOCUMENT.read_text(encoding="utf-8")
    assert habit in HABITS_UNTIL


# -- versions -------------------------------------------------------------------------------------------------


async def offer(broker: InMemoryBroker, version: int = 0) -> dict[int, tuple[int, int]]:
    answer = await broker.call(ApiKey.API_VERSIONS, version)
    assert answer.error_code == ErrorCode.NONE
    return {key: (first, last) for key, first, last in answer.api_keys}


@pytest.mark.parametrize("name", PROFILES)
async def test_a_release_offers_its_versions_of_what_is_here(make_broker: MakeBroker, name: str) -> None:
    last_versions = profile_of(name).last_versions or {}
    everything = await offer(make_broker())

    offered = await offer(make_broker(profile=profile_of(name)))

    assert offered == {key: (0, last) for key, last in last_versions.items() if key in everything}


async def test_without_a_release_everything_is_offered(make_broker: MakeBroker) -> None:
    offered = await offer(make_broker())

    assert offered == {int(key): api.versions for key, api in API_TABLE.items()}


@pytest.mark.parametrize("name", PROFILES)
async def test_what_came_after_the_release_closes_the_connection(make_broker: MakeBroker, name: str) -> None:
    broker = make_broker(profile=profile_of(name))
    last_versions = profile_of(name).last_versions or {}

    for key, api in API_TABLE.items():
        version = last_versions.get(key, -1) + 1
        if key == ApiKey.API_VERSIONS or version > api.versions[1]:
            continue
        frame = encode_request(key, version, 1, "test", default_body(key))
        with pytest.raises(KafkaProtocolError, match=f"{api.name} (is not served|has no version {version})"):
            await broker.answer(frame[4:])


def default_body(key: int) -> Any:
    """A body is never looked at; what is null is no longer when it cannot be."""
    body = API_TABLE[key].request()
    return body._replace(**{name: () for name, value in body._asdict().items() if name == "topics" and value is None})


async def test_a_later_api_versions_is_answered_in_its_first_version(make_broker: MakeBroker) -> None:
    broker = make_broker(profile=profile_of("0.10"))

    response = await broker.answer(encode_request(ApiKey.API_VERSIONS, 1, 7, "test", default_body(18))[4:])

    assert response == b"\0\0\0\7" + b"\0\x23" + b"\0\0\0\0"  # correlation id, UNSUPPORTED_VERSION, no APIs


# -- settings -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "magic"), [("0.10", 1), ("0.11", 2), ("1.1", 2), ("2.0", 2)])
async def test_records_are_kept_in_the_format_of_the_release(make_broker: MakeBroker, name: str, magic: int) -> None:
    broker = make_broker(profile=profile_of(name))
    await create(broker, "topic")
    records = build_message_set([Record(0, NOW_MS, None, b"value", ())], magic=1)

    await broker.call(ApiKey.PRODUCE, 2, acks=1, timeout_ms=1000, topics=[("topic", [(0, records)])])

    stored = broker.log_of("topic").read(0, 1000).records.read()
    assert stored[MAGIC_AT] == magic


def test_a_setting_that_came_after_the_release_has_no_effect_and_a_warning() -> None:
    name = "group.initial.rebalance.delay.ms"

    config = KafkaConfig({name: "777"}, profile=profile_of("0.10"))

    assert config.group_initial_rebalance_delay_ms == 0
    assert config.warnings == [f"{name} is not a setting of Kafka 0.10, which this broker acts as"]


def test_a_default_of_the_release_is_overruled_as_any_other() -> None:
    config = KafkaConfig({"offsets.retention.minutes": "7"}, profile=profile_of("1.1"))

    assert config.offsets_retention_minutes == 7
    assert KafkaConfig({}, profile=profile_of("1.1")).offsets_retention_minutes == 1440


@pytest.mark.parametrize("given", [{"compression.type": "zstd"}, {"log.message.format.version": "2.0"}])
def test_a_value_that_came_after_the_release_keeps_the_broker_from_starting(given: dict[str, str]) -> None:
    KafkaConfig(given)

    with pytest.raises(ConfigError, match=next(iter(given.values()))):
        KafkaConfig(given, profile=profile_of("1.1"))


@pytest.mark.parametrize(
    ("name", "version", "is_known"),
    [
        ("0.10", "0.10.2", True),
        ("0.10", "0.9.0.1", True),
        ("0.10", "0.11.0", False),
        ("1.1", "1.1.7", True),
        ("1.1", "1.0-IV0", True),
        ("1.1", "2.0-IV0", False),
        ("2.0", "2.0", True),
    ],
)
def test_message_formats_are_those_up_to_the_release(name: str, version: str, is_known: bool) -> None:
    problem = profile_of(name).problem_with_topic_config("message.format.version", version)

    assert (problem is None) == is_known


@pytest.mark.parametrize(
    "configs",
    [
        {"message_downconversion_enable": "false"},
        {"max_compaction_lag_ms": "5"},
        {"compression_type": "zstd"},
        {"message_format_version": "2.0"},
    ],
)
async def test_a_config_that_came_after_the_release_is_refused(
    make_broker: MakeBroker, configs: dict[str, str]
) -> None:
    assert (await create(make_broker(), "topic", **configs)).error_code == ErrorCode.NONE

    answer = await create(make_broker(profile=profile_of("1.1")), "topic", **configs)

    assert answer.error_code == ErrorCode.INVALID_CONFIG


async def test_a_config_that_came_after_the_release_is_not_described(make_broker: MakeBroker) -> None:
    broker = make_broker(profile=profile_of("1.1"))
    await create(broker, "topic")

    described = await broker.call(ApiKey.DESCRIBE_CONFIGS, 0, resources=[(TOPIC, "topic", None), (BROKER, "0", None)])

    names = {row.name for result in described.results for row in result.configs}
    assert {"segment.bytes", "num.partitions", "inter.broker.protocol.version"} <= names
    assert not names & {
        "message.downconversion.enable", "max.compaction.lag.ms",
        "log.message.downconversion.enable", "log.cleaner.max.compaction.lag.ms",
    }  # fmt: skip
