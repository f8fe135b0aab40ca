"""The broker's settings, held against what Apache Kafka 2.0.1 says of itself and of the same properties."""

from __future__ import annotations

import ast
import gzip
import json
import logging
import re
from pathlib import Path
from typing import Any

import pytest

from minibroker.broker.config.entries import ConfigSource, config_entries, synonyms_of
from minibroker.broker.config.kafka_config import ConfigError, KafkaConfig, load_config
from minibroker.broker.config.profiles import LATER, SETTINGS_SINCE, profile_of
from minibroker.broker.config.settings.changeable import SETTINGS
from minibroker.broker.config.settings.table import SETTINGS_OF_AUTHORIZER, KafkaSettings
from minibroker.broker.config.settings.types import Setting
from minibroker.broker.config.settings.unused import ONLY_CHECKED, UNUSED_SETTINGS, reason_unused
from minibroker.storage.config import LogConfig
from tests.conformance.kafka_versions import is_later

# The table of settings that kafka 2.0.1's KafkaConfig prints.
GOLDEN = Path(__file__).parent.parent / "golden" / "kafka-2.0.1-broker-config.json.gz"


@pytest.fixture(scope="module")
def kafka() -> Any:
    return json.loads(gzip.decompress(GOLDEN.read_bytes()))


def without_later(settings: dict[str, Any]) -> dict[str, Any]:
    """Those that kafka 2.0.1 has."""
    return {name: value for name, value in settings.items() if name not in SETTINGS_SINCE[LATER].split()}


def test_the_table_has_each_setting_of_kafka_with_its_type_and_default(kafka: Any) -> None:
    acting = KafkaConfig({}, profile=profile_of("2.0"))
    ours = {
        name: [row.kind.name, row.write(acting.default_of(row))] for name, row in SETTINGS.items() if not is_later(name)
    }

    for name in SETTINGS_OF_AUTHORIZER:
        del ours[name]  # which Kafka's brokers do not know
    assert ours == {name: [kind, default] for name, (kind, default, _) in kafka["settings"].items()}


def test_the_table_has_the_bounds_of_kafka(kafka: Any) -> None:
    for name, (_, _, bounds) in kafka["settings"].items():
        allowed = SETTINGS[name].check.allowed
        if bounds.endswith(",...]"):
            assert allowed == f"{bounds[1:-5]} or more", name
        elif name != "authorizer.class.name":  # there a Java class, here one of three
            assert set(allowed.split(" ", 2)[-1].split(", ")) - {""} == set(filter(None, bounds[1:-1].split(", ")))


def test_the_default_of_each_setting_is_a_value_it_accepts() -> None:
    for row in SETTINGS.values():
        if row.default is not None:
            assert row.read(row.write(row.default) or "") == row.default, row.name
    assert KafkaConfig({}).log_config == LogConfig()


def test_settings_in_use_are_explained() -> None:
    assert [row.name for name, row in SETTINGS.items() if name not in UNUSED_SETTINGS and not row.doc] == []


def test_values_are_read_as_their_type_and_trimmed() -> None:
    config = KafkaConfig(
        {
            "num.partitions": " 3 ",
            "auto.create.topics.enable": "FALSE",
            "log.cleaner.min.cleanable.ratio": ".25",
            "log.cleanup.policy": "compact , delete",
            "replica.lag.time.max.ms": "9223372036854775807",
            "broker.rack": " r1 ",
        }
    )

    assert (config.num_partitions, config.auto_create_topics_enable, config.broker_rack) == (3, False, "r1")
    assert (config.log_cleaner_min_cleanable_ratio, config.replica_lag_time_max_ms) == (0.25, 2**63 - 1)
    assert config.log_cleanup_policy == ("compact", "delete")
    assert config.text_of("log.cleanup.policy") == "compact,delete"


# The texts after the colon are Kafka's, word for word.
@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("num.partitions", "0", "Value must be at least 1 (server.properties line 3; allowed: an INT, 1 or more)"),
        ("num.partitions", "x", "Not a number of type INT"),
        ("num.partitions", "", "Not a number of type INT"),
        ("num.partitions", "3.0", "Not a number of type INT"),
        ("num.partitions", "1_0", "Not a number of type INT"),
        ("num.partitions", "99999999999", "Not a number of type INT"),
        ("offsets.commit.required.acks", "40000", "Not a number of type SHORT"),
        ("log.retention.ms", "9223372036854775808", "Not a number of type LONG"),
        ("log.cleaner.io.buffer.load.factor", "abc", "Not a number of type DOUBLE"),
        ("log.cleaner.io.buffer.load.factor", "nan", "Not a number of type DOUBLE"),
        ("auto.create.topics.enable", "yes", "Expected value to be either true or false"),
        (
            "log.cleanup.policy",
            "compact,deletee",
            "String must be one of: compact, delete (server.properties line 3; allowed: a LIST, any of compact, delete",
        ),
        ("log.message.timestamp.type", "Foo", "String must be one of: CreateTime, LogAppendTime"),
        ("log.segment.bytes", "13", "Value must be at least 14"),
        ("zookeeper.session.timeout.ms", "6s", "Not a number of type INT"),
        ("log.cleaner.io.buffer.load.factor", "0x1", "Not a number of type DOUBLE"),
        ("principal.builder.class", "", "Class  could not be found."),
    ],
)
def test_a_bad_value_is_refused_in_the_words_of_kafka(name: str, value: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        KafkaConfig({name: value}, {name: "server.properties line 3"})

    assert str(caught.value).startswith(f"Invalid value {value} for configuration {name}: {message}")
    assert " (server.properties line 3; allowed: " in str(caught.value)


def test_all_that_is_wrong_is_reported_at_once() -> None:
    given = {
        "num.partitions": "0",
        "broker.id": "x",
        "listeners": "nonsense",
        "advertised.listeners": "FOO://a:1",
        "max.connections.per.ip.overrides": "a:b",
        "log.dirs": "/one,/two",
    }

    with pytest.raises(ConfigError) as caught:
        KafkaConfig(given)

    assert [line.split(":")[0] for line in str(caught.value).splitlines()] == [
        "Invalid value x for configuration broker.id",
        "Invalid value 0 for configuration num.partitions",
        "Unable to parse nonsense to a broker endpoint, NAME",
        "No security protocol defined for listener FOO (advertised.listeners=FOO",
        "b is not a number of connections (max.connections.per.ip.overrides=a",
        "log.dirs names 2 directories; this broker uses one (log.dirs=/one,/two)",
    ]


def test_what_has_no_effect_is_known_of_wrong_settings_too() -> None:
    with pytest.raises(ConfigError) as caught:
        KafkaConfig({"num.partitions": "0", "foo.bar": "1", "zookeeper.connect": "there:2181"})

    assert caught.value.warnings == ["foo.bar is not a setting of Kafka 2.0"]
    assert caught.value.notes == ["zookeeper.connect: no effect, this broker needs no ZooKeeper"]


# A setting as it was given, and Kafka's words, which often begin with its name.
@pytest.mark.parametrize(
    ("name", "text", "written"),
    [
        ("num.partitions", "٣", "3"),
        ("log.cleaner.io.max.bytes.per.second", "2f", "2.0"),
        ("log.cleaner.io.max.bytes.per.second", "1.5e3D", "1500.0"),
        ("log.cleaner.io.max.bytes.per.second", "0x1p3", "8.0"),
        ("log.cleaner.io.max.bytes.per.second", "-Infinity", "-Infinity"),
        ("log.cleaner.min.cleanable.ratio", "NaN", "NaN"),
    ],
)
def test_numbers_are_read_as_java_reads_them(name: str, text: str, written: str) -> None:
    assert KafkaConfig({name: text}).text_of(name) == written


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("log.cleaner.threads=0", "Log cleaner threads should be at least 1"),
        ("log.retention.hours=0", "log.retention.ms must be unlimited (-1) or, equal or greater than 1"),
        ("log.roll.ms=0", "{} must be equal or greater than 1"),
        ("log.roll.jitter.ms=-1", "{} must be equal or greater than 0"),
        ("compression.type=foo", "{} : foo is not valid. Valid options are uncompressed,snappy,lz4,gzip,zstd,producer"),
        ("log.message.format.version=2.1", "Version `2.1` is not a valid version"),
        ("broker.id=1001", "{} must be equal or greater than -1 and not greater than reserved.broker.max.id"),
        ("broker.id.generation.enable=false", "broker.id must be equal or greater than 0"),
        ("log.dirs=", "At least one log directory must be defined via log.dirs or log.dir."),
        (
            "replica.fetch.wait.max.ms=20000",
            "{} should always be less than or equal to replica.lag.time.max.ms to prevent frequent changes in ISR",
        ),
        (
            "replica.socket.timeout.ms=100",
            "{} should always be at least replica.fetch.wait.max.ms to prevent unnecessary socket timeouts",
        ),
        (
            "offsets.commit.required.acks=4",
            "{} must be greater or equal -1 and less or equal to offsets.topic.replication.factor",
        ),
        ("offsets.topic.compression.codec=7", "7 is an unknown compression codec"),
        ("max.connections.per.ip=0", "{} can be set to zero only if {}.overrides property is set."),
        ("log.cleaner.dedupe.buffer.size=10", "{} must be at least 1MB per cleaner thread."),
        ("log.flush.scheduler.interval.ms=0", "{} must be at least 1"),
        ("log.flush.scheduler.interval.ms=-1", "{} must be at least 1"),
        ("log.flush.offset.checkpoint.interval.ms=0", "{} must be at least 1"),
        ("log.flush.start.offset.checkpoint.interval.ms=0", "{} must be at least 1"),
        ("metrics.recording.level=x", "{} x is not valid. Valid options are INFO,DEBUG"),
        ("metrics.recording.level=", "{}  is not valid. Valid options are INFO,DEBUG"),
        (
            "queued.max.request.bytes=104857599",
            "{} must be larger or equal to socket.request.max.bytes",
        ),
        ("inter.broker.protocol.version=2.1", "Version `2.1` is not a valid version"),
        (
            "inter.broker.protocol.version=0.10.2",
            "log.message.format.version 2.0-IV1 can only be used when {} is set to version 0.11.0 or higher",
        ),
    ],
)
def test_values_that_do_not_go_together_are_refused_in_the_words_of_kafka(setting: str, message: str) -> None:
    name, _, value = setting.partition("=")

    with pytest.raises(ConfigError) as caught:
        KafkaConfig({name: value}, {name: "--set"})

    assert str(caught.value) == f"{message.replace('{}', name)} ({setting} in --set)"


def test_the_look_for_lagging_followers_has_a_period_of_its_own() -> None:
    """Half of replica.lag.time.max.ms, in whole milliseconds."""
    with pytest.raises(ConfigError, match=r"replica\.lag\.time\.max\.ms must be at least 2"):
        KafkaConfig({"replica.lag.time.max.ms": "1", "replica.fetch.wait.max.ms": "0"})

    KafkaConfig({"replica.lag.time.max.ms": "2", "replica.fetch.wait.max.ms": "0", "metrics.recording.level": "debug"})


@pytest.mark.parametrize(
    ("given", "time_ms"),
    [
        ({}, 604_800_000),
        ({"log.retention.hours": "1"}, 3_600_000),
        ({"log.retention.hours": "1", "log.retention.minutes": "5"}, 300_000),
        ({"log.retention.hours": "1", "log.retention.minutes": "5", "log.retention.ms": "7"}, 7),
        ({"log.retention.minutes": "-5"}, -1),
        ({"log.retention.ms": "-1", "log.retention.hours": "1"}, -1),
    ],
)
def test_the_finest_unit_of_retention_wins(given: dict[str, str], time_ms: int) -> None:
    assert KafkaConfig(given).log_config.retention_ms == time_ms


def test_settings_that_cannot_be_changed_later_become_the_defaults_of_topics_too() -> None:
    given = {"log.roll.hours": "2", "log.flush.scheduler.interval.ms": "77", "log.message.format.version": "0.10.2.1"}

    config = KafkaConfig(given).log_config

    assert (config.segment_ms, config.flush_ms, config.message_format_version) == (7_200_000, 77, "0.10.2.1")


def test_log_dirs_wins_over_log_dir_and_a_broker_without_id_is_broker_0() -> None:
    assert KafkaConfig({"log.dir": "/x"}).log_dir == Path("/x")
    assert KafkaConfig({"log.dir": "/x", "log.dirs": "/y"}).log_dir == Path("/y")
    assert [KafkaConfig({}).broker_id, KafkaConfig({"broker.id": "7"}).broker_id] == [0, 7]


def test_known_settings_without_effect_are_noted_and_unknown_ones_warned_of() -> None:
    config = KafkaConfig(
        {
            "zookeeper.connect": "z:1",
            "zookeeper.set.acl": "true",
            "num.io.threads": "4",
            "num.partition": "3",
            "retention.ms": "1",  # a topic's
        },
        {"num.partition": "server.properties line 9"},
    )

    assert config.notes[0] == "zookeeper.connect, zookeeper.set.acl: no effect, this broker needs no ZooKeeper"
    assert config.notes[1].startswith("num.io.threads: no effect, ")
    assert config.warnings == [
        "num.partition is not a setting of Kafka 2.0 (server.properties line 9); did you mean num.partitions?",
        "retention.ms is not a setting of Kafka 2.0; did you mean log.retention.ms?",
    ]


def test_asking_for_protection_that_is_not_there_is_warned_of() -> None:
    config = KafkaConfig(
        {"ssl.keystore.password": "secret", "principal.builder.class": "a.B", "listener.name.x.ssl.y": ""}
    )

    assert len(config.warnings) == 2
    assert "secret" not in " ".join(config.warnings)


def write(path: Path, text: str) -> Path:
    path.write_bytes(text.encode("latin-1"))
    return path


def test_the_file_is_overridden_by_set_and_that_by_the_arguments(tmp_path: Path) -> None:
    path = write(
        tmp_path / "server.properties", "num.partitions=2\nbroker.id=3\nlisteners=PLAINTEXT://file:1\nlog.dirs=/file\n"
    )

    config = load_config(
        path, ["broker.id=4", "listeners=PLAINTEXT://set:2"], listen="127.0.0.1:5", data_dir=str(tmp_path)
    )

    assert config.num_partitions == 2
    assert config.broker_id == 4
    assert config.listen_addresses == [("127.0.0.1", 5)]
    assert config.log_dir == tmp_path


def test_without_settings_it_listens_on_this_machine_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    config = load_config(None, [], listen=None, data_dir=None)

    assert config.listen_addresses == [("127.0.0.1", 9092)]
    assert config.log_dir == tmp_path / "minibroker-data"


def test_a_bad_value_of_a_file_names_the_line(tmp_path: Path) -> None:
    path = write(tmp_path / "server.properties", "# mine\nbroker.id=1\n\nnum.partitions=\\\n  many\n")

    with pytest.raises(ConfigError, match=r"for configuration num.partitions: .*server.properties line 4; allowed"):
        load_config(path, [], listen=None, data_dir=None)


def test_a_key_that_stands_twice_is_warned_of(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = write(tmp_path / "s.properties", "broker.id=1\nbroker.id=2\nzookeeper.connect=z\n")

    with caplog.at_level(logging.INFO):
        config = load_config(path, [], listen=None, data_dir="d")

    assert config.broker_id == 2
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        ("WARNING", "broker.id is set twice: s.properties line 1 and s.properties line 2; the last counts"),
        ("INFO", "zookeeper.connect: no effect, this broker needs no ZooKeeper"),
    ]


@pytest.mark.parametrize("text", ["broker.rack=caf\xe9", "broker.rack=caf\\u00e9", "broker.rack=caf\xc3\xa9"])
def test_files_in_utf_8_and_in_latin_1_are_read(tmp_path: Path, text: str) -> None:
    assert load_config(write(tmp_path / "s", text), [], listen=None, data_dir="d").broker_rack == "café"


@pytest.mark.parametrize(
    ("assignments", "listen", "message"),
    [
        (["num.partitions"], None, "--set num.partitions is not KEY=VALUE"),
        (["=1"], None, "--set =1 is not KEY=VALUE"),
        ([], "nonsense", "Unable to parse PLAINTEXT://nonsense .*in --listen"),
    ],
)
def test_bad_arguments_are_refused(assignments: list[str], listen: str | None, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load_config(None, assignments, listen=listen, data_dir=None)


def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cannot read .*none: No such file"):
        load_config(tmp_path / "none", [], listen=None, data_dir=None)
    with pytest.raises(ConfigError, match=r"bad: line 1: .*hexadecimal"):
        load_config(write(tmp_path / "bad", "a=\\u1"), [], listen=None, data_dir=None)


def test_broker_settings_are_described_as_kafka_describes_them(kafka: Any) -> None:
    entries = config_entries(KafkaConfig(kafka["given"], profile=profile_of("2.0")))

    ours = {}
    for entry in entries:
        synonyms = [[synonym.name, synonym.value, synonym.source] for synonym in entry.synonyms]
        ours[entry.name] = [entry.value, entry.is_read_only, entry.source, entry.is_sensitive, synonyms]
    assert {name: each for name, each in ours.items() if not is_later(name)} == kafka["described"]


def test_what_only_the_authorizer_knows_is_described_as_an_unknown_setting() -> None:
    assert SETTINGS_OF_AUTHORIZER.isdisjoint(entry.name for entry in config_entries(KafkaConfig({})))

    (entry,) = config_entries(KafkaConfig({"super.users": "User:a"}), ["super.users"])

    assert (entry.value, entry.is_sensitive, entry.source) == (None, True, ConfigSource.STATIC_BROKER)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("", ()),
        ("User:a", ("User:a",)),
        (" User:CN=a,O=b ; User:c;", ("User:CN=a,O=b", "User:c")),
        ("Group:x:y", ("Group:x:y",)),
    ],
)
def test_super_users_have_semicolons_between(given: str, expected: tuple[str, ...]) -> None:
    assert KafkaConfig({"super.users": given}).super_users == expected


@pytest.mark.parametrize(
    ("name", "value", "problem"),
    [
        ("super.users", "User:a,b;c", "expected a string in format principalType:principalName but got c"),
        ("super.users", "User:a;;User:b", "expected a string in format principalType:principalName but got "),
        ("allow.everyone.if.no.acl.found", "yes", "Expected value to be either true or false"),
        (
            "authorizer.class.name",
            "com.acme.Authorizer",
            "cannot load Java classes (allowed: a STRING, kafka.security.",
        ),
    ],
)
def test_an_authorizer_that_is_not_understood_is_refused(name: str, value: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=f"{re.escape(name)}.*{re.escape(problem)}"):
        KafkaConfig({name: value})


def test_only_named_settings_are_described_and_unknown_names_left_out() -> None:
    entries = config_entries(KafkaConfig({}), ["num.partitions", "no.such", "broker.id"])

    assert [entry.name for entry in entries] == ["num.partitions", "broker.id"]


def test_synonyms_of_a_topic_setting_start_with_what_decides() -> None:
    config = KafkaConfig({"log.flush.scheduler.interval.ms": "7", "log.flush.interval.ms": "5"})

    synonyms = synonyms_of(config, "log.flush.interval.ms")

    assert [(each.name, each.value, each.source) for each in synonyms] == [
        ("log.flush.interval.ms", "5", ConfigSource.STATIC_BROKER),
        ("log.flush.scheduler.interval.ms", "7", ConfigSource.STATIC_BROKER),
        ("log.flush.scheduler.interval.ms", "9223372036854775807", ConfigSource.DEFAULT),
    ]


def test_secrets_are_neither_described_nor_reported() -> None:
    config = KafkaConfig({"ssl.key.password": "hunter2", "some.key": "hunter2"})

    assert "hunter2" not in repr(config_entries(config)) + repr(config.warnings)


ROOT = Path(__file__).parent.parent.parent
ATTRIBUTES = {attribute: row.name for attribute, row in vars(KafkaSettings).items() if isinstance(row, Setting)}
# Lists of settings, and rules that hold between them: a setting listed there need not have an effect.
LISTS = {
    f"broker/config/{name}.py"
    for name in ("dynamic", "settings/changeable", "settings/rules", "settings/unused", "profiles")
}
# What these forbid a broker is refused at its start, and that is all there is to obey.
OBEYED_BY_RULES = {"broker.id.generation.enable", "reserved.broker.max.id"}


def settings_read() -> set[str]:
    """By attribute, or by name where a topic has a setting of its own beside the broker's."""
    found: set[str] = set()
    for path in [*(ROOT / "broker").rglob("*.py"), *(ROOT / "storage").rglob("*.py")]:
        if str(path.relative_to(ROOT)) in LISTS:
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Attribute) and node.attr in ATTRIBUTES:
                found.add(ATTRIBUTES[node.attr])
            elif isinstance(node, ast.Constant) and node.value in ATTRIBUTES.values():
                found.add(str(node.value))
    return found


def test_a_setting_that_changes_nothing_is_said_to() -> None:
    read = settings_read() | OBEYED_BY_RULES

    assert sorted(name for name in ATTRIBUTES.values() if name not in read and reason_unused(name) is None) == []


def test_a_setting_that_is_said_to_change_nothing_is_read_nowhere() -> None:
    assert sorted(settings_read() & (ONLY_CHECKED.keys() | UNUSED_SETTINGS.keys())) == []
    assert ONLY_CHECKED.keys() <= set(ATTRIBUTES.values())
    assert not UNUSED_SETTINGS.keys() & set(ATTRIBUTES.values())
