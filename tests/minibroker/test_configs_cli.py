"""`minibroker configs`: what it shows, what it changes, and what it says when something is wrong."""

from __future__ import annotations

import time

import pytest

from minibroker.cli.app import main
from tests.minibroker.conftest import CommandLine

pytestmark = [pytest.mark.integration, pytest.mark.slow]


def test_what_was_set_is_shown_and_the_rest_when_asked(cli: CommandLine) -> None:
    topic = cli.topic()
    assert cli.out("configs", "set", "-t", topic, "retention.ms=60000", "segment.bytes=100000") == (
        "set: retention.ms=60000\nset: segment.bytes=100000\n"
    )

    own = cli.lines("configs", "describe", "--topic", topic)
    everything = cli.document("configs", "describe", "--topic", topic, "--all")

    assert own[1:3] == [
        ["retention.ms", "60000", "dynamic_topic_config"],
        ["segment.bytes", "100000", "dynamic_topic_config"],
    ]
    assert own[3][1:] == ["more;", "--all", "shows", "them"]
    assert len(everything) > 20
    assert {"name": "cleanup.policy", "value": "delete"}.items() <= everything[0].items()


def test_setting_one_config_leaves_the_others_and_unset_goes_back_to_the_default(cli: CommandLine) -> None:
    topic = cli.topic()
    cli.out("configs", "set", "-t", topic, "retention.ms=60000")
    cli.out("configs", "set", "-t", topic, "segment.bytes=100000")
    assert of_topic(cli, topic) == {"retention.ms": "60000", "segment.bytes": "100000"}

    assert cli.out("configs", "unset", "-t", topic, "retention.ms") == "unset: retention.ms\n"
    assert of_topic(cli, topic) == {"segment.bytes": "100000"}


def test_a_brokers_configs_are_changed_by_its_id(cli: CommandLine) -> None:
    cli.out("configs", "set", "--broker", 0, "log.cleaner.threads=2")
    during = once_from(cli, "DYNAMIC_BROKER_CONFIG")
    cli.out("configs", "unset", "--broker", 0, "log.cleaner.threads")

    assert (during["value"], during["source"]) == ("2", "DYNAMIC_BROKER_CONFIG")
    assert once_from(cli, "DEFAULT_CONFIG")["source"] == "DEFAULT_CONFIG"


def once_from(cli: CommandLine, source: str) -> dict[str, str]:
    """The config, asked until it is from there: Apache Kafka takes it over from ZooKeeper when it comes to it."""
    deadline = time.monotonic() + 10
    while True:
        row: dict[str, str]
        (row,) = cli.document("configs", "describe", "--broker", 0, "log.cleaner.threads")
        if row["source"] == source or time.monotonic() > deadline:
            return row


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["set", "-t", "TOPIC", "no.such.config=1"], "no.such.config"),
        (["set", "-t", "TOPIC", "retention.ms=soon"], "Invalid value soon"),
        (["unset", "-t", "TOPIC", "no.such.config"], "has no config no.such.config"),
        (["describe", "-t", "TOPIC", "no.such.config"], "has no config no.such.config"),
        (["set", "-t", "missing", "retention.ms=1"], "topic missing does not exist; `minibroker topics list`"),
        (["describe", "-t", "missing"], "topic missing does not exist; `minibroker topics list`"),
        (["describe", "--broker", "7"], "the cluster has no broker 7; its brokers: 0"),
        (["set", "--broker", "0", "broker.id=3"], "broker.id"),
    ],
)
def test_what_cannot_be_is_refused_with_the_way_on(cli: CommandLine, arguments: list[str], said: str) -> None:
    topic = cli.topic()

    line = cli.complaint("configs", *(topic if word == "TOPIC" else word for word in arguments))

    assert said in line
    assert "; " in line
    assert of_topic(cli, topic) == {}


@pytest.mark.parametrize("subject", [[], ["--topic", "flights", "--broker", "0"]])
def test_one_topic_or_one_broker_is_meant(subject: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["configs", "describe", *subject]) == 2

    assert "either --topic NAME or --broker ID" in capsys.readouterr().err


def of_topic(cli: CommandLine, topic: str) -> dict[str, str]:
    return {row["name"]: row["value"] for row in cli.document("configs", "describe", "-t", topic)}
