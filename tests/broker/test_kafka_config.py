"""The broker's settings, held against what Apache Kafka 2.0.1 says of itself and of the same properties."""

from __future__ import annotations

import ast
import gzip
import json
import logging
from pathlib import Path
from typing import Any

import pytest

from minibroker.broker.config.entries import ConfigSource, config_entries, synonyms_of
from minibroker.broker.config.kafka_config import ConfigError, KafkaConfig, load_config
from minibroker.broker.config.profiles import profile_of
from minibroker.broker.config.settings.changeable import SETTINGS
from minibroker.broker.config.settings.table import SETTINGS_OF_AUTHORIZER, KafkaSettings
from minibroker.broker.config.settings.types import Setting
from minibroker.broker.config.settings.unused import ONLY_CHECKED, UNUSED_SETTINGS, reason_unused
from minibroker.broker.wings.images.images import Images
from minibroker.conformance.kafka_versions import is_later
from minibroker.storage.config import LogConfig

# The table of settings that kafka 2.0.1's KafkaConfig prints.
GOLDEN = Path(__file__).parent.parent / "golden" / "kafka-2.0.1-broker-config.json.gz"


@pytest.fixture(scope="module")
def kafka() -> Any:
    return json.loads(gzip.decompress(GOLDEN.read_bytes()))


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
    path = write(tmp_path / "s.properties", "broker.id=1\nbroker.id=2\nzookeeper.sync.time.ms=1\n")

    with caplog.at_level(logging.INFO):
        config = load_config(path, [], listen=None, data_dir="d")

    assert config.broker_id == 2
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        ("WARNING", "broker.id is set twice: s.properties line 1 and s.properties line 2; the last counts"),
        ("INFO", "zookeeper.sync.time.ms: no effect, this broker needs no ZooKeeper"),
    ]


def test_a_file_of_kafka_4_is_read_without_its_quorum_of_controllers(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = write(
        tmp_path / "server.properties",
        "process.roles=broker,controller\nnode.id=7\ncontroller.quorum.bootstrap.servers=a:9093\n"
        "controller.listener.names=CONTROLLER\nlisteners=PLAINTEXT://127.0.0.1:5,CONTROLLER://127.0.0.1:6\n"
        "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT\n",
    )

    with caplog.at_level(logging.INFO):
        config = load_config(path, [], listen=None, data_dir="d", images=Images({}))

    assert (config.broker_id, config.listen_addresses) == (7, [("127.0.0.1", 5)])
    assert [record.getMessage() for record in caplog.records] == [
        "controller.listener.names, controller.quorum.bootstrap.servers, process.roles: no effect, this broker is its "
        "own controller"
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
    with pytest.raises(ConfigError, match=r"cannot read .*none: No such file.*; name another"):
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


def test_a_setting_of_the_authorizer_is_described_as_an_unknown_one() -> None:
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


def test_only_named_settings_are_described_and_unknown_names_left_out() -> None:
    entries = config_entries(KafkaConfig({}), ["num.partitions", "no.such", "broker.id"])

    assert [entry.name for entry in entries] == ["num.partitions", "broker.id"]


def test_synonyms_of_a_topic_setting_start_with_the_one_that_decides() -> None:
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


def test_a_setting_that_changes_nothing_is_listed() -> None:
    read = settings_read() | OBEYED_BY_RULES

    assert sorted(name for name in ATTRIBUTES.values() if name not in read and reason_unused(name) is None) == []


def test_a_setting_that_is_listed_to_change_nothing_is_read_nowhere() -> None:
    assert sorted(settings_read() & (ONLY_CHECKED.keys() | UNUSED_SETTINGS.keys())) == []
    assert ONLY_CHECKED.keys() <= set(ATTRIBUTES.values())
    assert not UNUSED_SETTINGS.keys() & set(ATTRIBUTES.values())
