"""Releases that `--act-as` names: their tables, docs/profiles.md, and what a broker answers that acts as one.

Versions and settings, error codes of the release's time, and its habits.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from minibroker.broker.apis.known_errors import known_code
from minibroker.broker.config import profiles
from minibroker.broker.config.kafka_config import ConfigError, KafkaConfig
from minibroker.broker.config.profiles import HABITS_SINCE, HABITS_UNTIL, RELEASES, Habit, profile_of, rows_of
from minibroker.broker.config.settings.changeable import SETTINGS
from minibroker.conformance.kafka_versions import LAST_VERSIONS_OF_KAFKA_2_0
from minibroker.protocol import api_table
from minibroker.protocol.api import API_TABLE, Api, ApiKey, encode_request
from minibroker.protocol.api_table import versions_of
from minibroker.protocol.errors import ErrorCode, KafkaProtocolError
from minibroker.protocol.message_rows import columns
from minibroker.protocol.message_set import build_message_set
from minibroker.protocol.primitives import Meaning
from minibroker.protocol.record import Record
from minibroker.storage.cluster_settings import settings_of_cluster
from minibroker.storage.config import TOPIC_CONFIGS
from tests.broker.asking import rows
from tests.broker.conftest import NOW_MS, InMemoryBroker, MakeBroker
from tests.integration.sample_requests import sample_body


async def create(broker: InMemoryBroker, name: str, **configs: str) -> Any:
    """In the version that all releases have; the topic's row of the answer."""
    rows = [(key.replace("_", "."), value) for key, value in configs.items()]
    answer = await broker.call(ApiKey.CREATE_TOPICS, 0, topics=[(name, 1, 1, [], rows)], timeout_ms=1000)
    return answer.topics[0]


DOCUMENT = Path(__file__).parent.parent.parent / "docs" / "profiles.md"
MAGIC_AT = 16  # in a batch of any format


def test_the_versions_of_an_api_only_grow_from_release_to_release() -> None:
    assert tuple(RELEASES) == api_table.RELEASES
    for api in API_TABLE.values():
        assert sorted(api.since.last_versions) == [*api.since.last_versions]
        assert (api.since.release in api_table.RELEASES_UNTIL_2_0) == bool(api.since.last_versions)
        assert api.last_of_2_0 <= api.versions[1]


def test_every_setting_of_the_tables_is_one() -> None:
    tables = (profiles.SETTINGS_SINCE, profiles.SETTINGS_UNTIL)
    named = {name for name, *_ in rows_of(profiles.DEFAULTS)} | set(
        " ".join(text for each in tables for text in each.values()).split()
    )

    assert [each for each in named if not any(known.startswith(each) for known in SETTINGS)] == []
    assert set(profiles.TOPIC_CONFIGS_SINCE.values()) <= TOPIC_CONFIGS.keys()


def test_2_0_is_the_release_that_all_answers_are_compared_with_and_has_the_defaults_of_none() -> None:
    acting, own = KafkaConfig({}, profile=profile_of("2.0")), KafkaConfig({})

    assert {key: last for key, (_, last) in versions_of("2.0").items()} == LAST_VERSIONS_OF_KAFKA_2_0
    other = [name for name, *_ in rows_of(profiles.DEFAULTS) if acting.text_of(name) != own.text_of(name)]
    assert other == ["transaction.abort.timed.out.transaction.cleanup.interval.ms"]


def tables() -> Iterable[str]:
    """The tables of docs/profiles.md."""
    releases = [versions_of(name) for name in RELEASES]
    apis = sorted({key for each in releases for key in each})
    rows = ([str(int(key)), API_TABLE[key].name, *(shown(each.get(key)) for each in releases)] for key in apis)
    yield table(["key", "API", *RELEASES], rows)
    yield table(["setting", *RELEASES], ([f"`{name}`", *values] for name, *values in rows_of(profiles.DEFAULTS)))
    since = profiles.SETTINGS_SINCE.items()
    yield table(["since", "settings"], ([each, " ".join(map(starred, names.split()))] for each, names in since))
    until = profiles.SETTINGS_UNTIL.items()
    yield table(["until", "settings"], ([each, " ".join(map(starred, names.split()))] for each, names in until))
    of_topics = profiles.TOPIC_CONFIGS_SINCE.items()
    yield table(["since", "config of topics"], ([each, f"`{name}`"] for each, name in of_topics))
    gone = profiles.TOPIC_CONFIGS_UNTIL.items()
    yield table(["until", "config of topics"], ([each, " ".join(map(starred, names.split()))] for each, names in gone))
    names = {int(each): each.name for each in ErrorCode}  # of those that this broker answers
    last_codes = ([name, f"{last} {names.get(last, '')}".rstrip()] for name, last in profiles.LAST_ERRORS.items())
    yield table(["release", "last error code"], last_codes)
    instead = ([ErrorCode(code).name for code in codes] for codes in profiles.ERRORS_INSTEAD.items())
    yield table(["error code", "before it was known"], instead)


def shown(versions: tuple[int, int] | None) -> str:
    if versions is None:
        return "-"
    first, last = versions
    return f"{first}-{last}" if first else str(last)


def table(heads: list[str], rows: Iterable[Iterable[str]]) -> str:
    lines = [f"| {' | '.join(heads)} |", f"|{'---|' * len(heads)}", *(f"| {' | '.join(row)} |" for row in rows)]
    return "\n".join(lines) + "\n"


def starred(name: str) -> str:
    return f"`{name}*`" if name.endswith(".") else f"`{name}`"


def test_the_document_has_the_tables() -> None:
    text = DOCUMENT.read_text(encoding="utf-8")

    for each in tables():
        assert each in text, f"put this table into {DOCUMENT.name}:\n\n{each}"


@pytest.mark.parametrize("habit", Habit)
def test_the_document_has_every_habit_and_its_releases(habit: Habit) -> None:
    marks = " | ".join("yes" if habit in profile_of(name).habits else "-" for name in RELEASES)

    assert f"| {habit.value} | {marks} | " in DOCUMENT.read_text(encoding="utf-8")
    assert habit in HABITS_UNTIL or habit in HABITS_SINCE


async def offer(broker: InMemoryBroker, version: int = 0) -> dict[int, tuple[int, int]]:
    answer = await broker.call(ApiKey.API_VERSIONS, version)
    assert answer.error_code == ErrorCode.NONE
    return {key: (first, last) for key, first, last in answer.api_keys}


@pytest.mark.parametrize("name", RELEASES)
async def test_a_release_offers_its_own_versions_of_the_apis(make_broker: MakeBroker, name: str) -> None:
    offered = await offer(make_broker(profile=profile_of(name)))

    assert offered == versions_of(name)


@pytest.mark.parametrize("name", RELEASES)
async def test_an_api_or_version_that_the_release_lacks_closes_the_connection(
    make_broker: MakeBroker, name: str
) -> None:
    broker = make_broker(profile=profile_of(name))
    offered = versions_of(name)

    answered = {ApiKey.API_VERSIONS}
    if name in ("3.9", "4.0", "4.4"):
        answered |= {ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, ApiKey.PUSH_TELEMETRY}  # which they do not list
    asked = [(key, offered.get(key, (0, -1))[1] + 1) for key in API_TABLE.keys() - answered]
    asked += [(key, first - 1) for key, (first, _) in offered.items() if first]
    for key, version in asked:
        api = API_TABLE[key]
        if not api.versions[0] <= version <= api.versions[1]:
            continue
        frame = encode_request(key, version, 1, "test", sample_body(ApiKey(key), version))
        with pytest.raises(KafkaProtocolError, match=f"{api.name} (is not served|has no version {version})"):
            await broker.answer(frame[4:])


@pytest.mark.parametrize("name", RELEASES)
async def test_a_later_api_versions_is_answered_in_its_first_version(make_broker: MakeBroker, name: str) -> None:
    broker = make_broker(profile=profile_of(name))

    _, last = versions_of(name)[ApiKey.API_VERSIONS]

    response = await broker.answer(struct.pack(">hhih", ApiKey.API_VERSIONS, last + 1, 7, -1))

    own = struct.pack(">ihhh", 1, ApiKey.API_VERSIONS, 0, last) if last >= 3 else bytes(4)  # KIP-511, of kafka 2.4
    assert response == b"\0\0\0\7" + b"\0\x23" + own  # correlation id, UNSUPPORTED_VERSION


@pytest.mark.parametrize(("name", "magic"), [("0.10", 1), ("0.11", 2), ("1.1", 2), ("2.0", 2)])
async def test_records_are_kept_in_the_format_of_the_release(make_broker: MakeBroker, name: str, magic: int) -> None:
    broker = make_broker(profile=profile_of(name))
    await create(broker, "topic")
    records = build_message_set([Record(0, NOW_MS, None, b"value", ())], magic=1)

    await broker.write("topic", records, version=2)

    stored = broker.log_of("topic").read(0, 1000).records.read()
    assert stored[MAGIC_AT] == magic


def test_settings_of_a_release_and_after_it() -> None:
    name = "group.initial.rebalance.delay.ms"

    config = KafkaConfig({name: "777", "offsets.retention.minutes": "7"}, profile=profile_of("0.10"))

    assert config.group_initial_rebalance_delay_ms == 0
    assert config.warnings == [f"{name} is not a setting of Kafka 0.10, which this broker acts as"]
    assert config.offsets_retention_minutes == 7
    assert KafkaConfig({}, profile=profile_of("1.1")).offsets_retention_minutes == 1440


@pytest.mark.parametrize("name", RELEASES)
def test_a_cluster_gives_its_brokers_the_settings_that_their_release_has(name: str) -> None:
    settings, of_all = settings_of_cluster(3, name), settings_of_cluster(3, None)

    assert KafkaConfig(settings, profile=profile_of(name)).warnings == []
    left_out = dict(of_all.items() - settings.items())
    assert len(KafkaConfig(left_out, profile=profile_of(name)).warnings) == len(left_out)


@pytest.mark.parametrize("given", [{"compression.type": "zstd"}, {"log.message.format.version": "2.0"}])
def test_a_value_that_came_after_the_release_keeps_the_broker_from_starting(given: dict[str, str]) -> None:
    KafkaConfig(given)

    with pytest.raises(ConfigError, match=next(iter(given.values()))):
        KafkaConfig(given, profile=profile_of("1.1"))


@pytest.mark.parametrize(
    ("name", "known", "unknown"),
    [("0.10", ["0.10.2", "0.9.0.1"], ["0.11.0"]), ("1.1", ["1.1.7", "1.0-IV0"], ["2.0-IV0"]), ("2.0", ["2.0"], [])],
)
def test_message_formats_are_those_up_to_the_release(name: str, known: list[str], unknown: list[str]) -> None:
    problem = profile_of(name).problem_with_topic_config

    assert [problem("message.format.version", version) for version in known] == [None] * len(known)
    assert all(problem("message.format.version", version) for version in unknown)


@pytest.mark.parametrize(
    ("name", "code", "said"),
    [
        ("0.10", ErrorCode.UNKNOWN_PRODUCER_ID, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER),
        ("0.11", ErrorCode.UNKNOWN_PRODUCER_ID, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER),
        ("1.1", ErrorCode.UNKNOWN_PRODUCER_ID, ErrorCode.UNKNOWN_PRODUCER_ID),
        ("0.11", ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.UNKNOWN_SERVER_ERROR),
        ("2.0", ErrorCode.LISTENER_NOT_FOUND, ErrorCode.LISTENER_NOT_FOUND),
        ("2.0", ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, ErrorCode.UNKNOWN_SERVER_ERROR),
        ("2.0", ErrorCode.NONE, ErrorCode.NONE),
    ],
)
def test_a_code_that_came_after_the_release_is_replaced_by_an_older_one(
    name: str, code: ErrorCode, said: ErrorCode
) -> None:
    assert profile_of(name).error_code_for(code) == said


async def test_a_partitions_code_is_replaced_and_the_rest_stays(make_broker: MakeBroker) -> None:
    broker = make_broker(profile=profile_of("0.11")._replace(last_error=ErrorCode.OFFSET_OUT_OF_RANGE))
    await create(broker, "topic")
    await create(broker, "other")

    answer = await broker.fetch(("topic", 0, 0), ("other", 0, 9), ("nope", 0, 0), version=5)

    codes = {name: ErrorCode(row.error_code).name for name, row in rows(answer)}
    assert codes == {"nope": "UNKNOWN_SERVER_ERROR", "other": "OFFSET_OUT_OF_RANGE", "topic": "NONE"}


STORAGE_ERROR, NOT_LEADER = ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_LEADER_FOR_PARTITION
ABORTABLE, WRONG_STATE = ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.INVALID_TXN_STATE
FENCED, OLD_EPOCH = ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH


@pytest.mark.parametrize(
    ("key", "first", "code", "before"),
    [
        (ApiKey.PRODUCE, 4, STORAGE_ERROR, NOT_LEADER),
        (ApiKey.PRODUCE, 11, ABORTABLE, WRONG_STATE),
        (ApiKey.TXN_OFFSET_COMMIT, 4, ABORTABLE, WRONG_STATE),
        (ApiKey.FETCH, 6, STORAGE_ERROR, NOT_LEADER),
        (ApiKey.INIT_PRODUCER_ID, 4, FENCED, OLD_EPOCH),
        (ApiKey.ADD_PARTITIONS_TO_TXN, 2, FENCED, OLD_EPOCH),
        (ApiKey.ADD_OFFSETS_TO_TXN, 2, FENCED, OLD_EPOCH),
        (ApiKey.END_TXN, 2, FENCED, OLD_EPOCH),
        (ApiKey.METADATA, 6, ErrorCode.LISTENER_NOT_FOUND, ErrorCode.LEADER_NOT_AVAILABLE),
        (ApiKey.DELETE_TOPICS, 3, ErrorCode.TOPIC_DELETION_DISABLED, ErrorCode.INVALID_REQUEST),
    ],
)
def test_a_code_is_not_given_to_versions_before_it(key: ApiKey, first: int, code: ErrorCode, before: ErrorCode) -> None:
    assert (known_code(key, first - 1, code), known_code(key, first, code)) == (before, code)
    assert known_code(key, 0, ErrorCode.UNKNOWN_SERVER_ERROR) is ErrorCode.UNKNOWN_SERVER_ERROR
    assert known_code(key, 0, ErrorCode.NONE) is ErrorCode.NONE
    assert len([api for api in API_TABLE.values() if api.later_codes]) == 9


@pytest.mark.parametrize("api", API_TABLE.values(), ids=lambda api: api.name)
def test_every_error_code_of_every_answer_is_looked_at(api: Api) -> None:
    declared = [path for path, field in api.response.walk() if field.name in ("error_code", "acknowledge_error_code")]

    assert len(columns(api.response, Meaning.ERROR_CODE)) == len(declared)
