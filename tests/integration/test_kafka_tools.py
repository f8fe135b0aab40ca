"""Kafka's own tools of 2.0.1 and 4.4.0, as their scripts in its bin folder start them, against a broker of ours."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from benchmarks.apache_kafka import KafkaUnavailable
from benchmarks.later_kafka import RELEASES, later_jars
from tests.integration.brokers import BrokerProcess
from tests.integration.conftest import Join, NewTopic, Write
from tests.integration.kafka_tools import kafka_tool
from tests.integration.members import wait_until_read

PARTITIONS = 2
GROUPS = "kafka.admin.ConsumerGroupCommand"
READER = "kafka.tools.ConsoleConsumer"

Tool = Callable[..., str]


@pytest.fixture
def tool(broker: BrokerProcess, jars: Path) -> Tool:
    """Run one of Kafka's main classes; `{}` in an argument stands for the broker's address."""

    def run(main: str, *arguments: str, text: str = "") -> str:
        return kafka_tool(jars, main, *(each.replace("{}", broker.bootstrap) for each in arguments), text=text)

    return run


def table(text: str) -> list[dict[str, str]]:
    """The rows that ConsumerGroupCommand prints, by its column names."""
    lines = [line.split() for line in text.splitlines() if line.strip()]
    first = next(position for position, line in enumerate(lines) if line[0] in ("GROUP", "TOPIC", "CONSUMER-ID"))
    return [dict(zip(lines[first], line, strict=False)) for line in lines[first + 1 :]]


def events(text: str) -> list[dict[str, Any]]:
    """Return the events that the verifiable clients print, a JSON object a line."""
    return [json.loads(line) for line in text.splitlines() if line.startswith("{")]


@pytest.mark.ability("administration", "tools of 2.0")
def test_consumer_group_command_lists_and_describes_a_group_that_lives(
    tool: Tool, new_topic: NewTopic, join: Join, write: Write
) -> None:
    topic = new_topic("described", PARTITIONS)
    group = f"group-{topic}"
    member = join("confluent-kafka", group, topic, client_id="the-member", session_timeout_ms=60_000)
    wait_until_read(write(topic, 5, partitions=PARTITIONS), member)
    member.commit()
    write(topic, 2, partitions=PARTITIONS)

    listed = tool(GROUPS, "--bootstrap-server", "{}", "--list").split()
    described = table(tool(GROUPS, "--bootstrap-server", "{}", "--describe", "--group", group))
    members = table(tool(GROUPS, "--bootstrap-server", "{}", "--describe", "--members", "--group", group))

    assert group in listed
    offsets = {
        row["PARTITION"]: (row["CURRENT-OFFSET"], row["LOG-END-OFFSET"], row["LAG"], row["CLIENT-ID"])
        for row in described
    }
    assert offsets == {str(partition): ("5", "7", "2", "the-member") for partition in range(PARTITIONS)}
    assert [(row["CLIENT-ID"], row["#PARTITIONS"]) for row in members] == [("the-member", str(PARTITIONS))]


@pytest.mark.nightly  # each command is a JVM
def test_consumer_group_command_resets_and_deletes_an_empty_group(
    tool: Tool, new_topic: NewTopic, join: Join, write: Write
) -> None:
    topic = new_topic("reset", PARTITIONS)
    group = f"group-{topic}"
    values = write(topic, 5, partitions=PARTITIONS)
    member = join("java", group, topic)  # has left once it is closed
    wait_until_read(values, member)
    member.commit()
    member.close()
    reset = ("--bootstrap-server", "{}", "--reset-offsets", "--group", group, "--topic", topic, "--execute")

    to_begin = table(tool(GROUPS, *reset, "--to-earliest"))
    forth = table(tool(GROUPS, *reset, "--shift-by", "3"))
    described = table(tool(GROUPS, "--bootstrap-server", "{}", "--describe", "--group", group))
    back = join("java", group, topic)
    wait_until_read([value for value in values if int(value) % 5 >= 3], back)
    back.close()
    deleted = tool(GROUPS, "--bootstrap-server", "{}", "--delete", "--group", group)

    assert [row["NEW-OFFSET"] for row in to_begin] == ["0"] * PARTITIONS
    assert [row["NEW-OFFSET"] for row in forth] == ["3"] * PARTITIONS
    assert [(row["CURRENT-OFFSET"], row["LAG"], row["CONSUMER-ID"]) for row in described] == [("3", "2", "-")] * 2
    assert f"('{group}') was successful" in deleted


@pytest.mark.ability("records", "tools of 2.0")
@pytest.mark.ability("groups", "tools of 2.0")
def test_console_clients_write_and_read_on_where_their_group_was(tool: Tool, new_topic: NewTopic) -> None:
    topic = new_topic("console")
    lines = [f"line {number}" for number in range(6)]
    tool("kafka.tools.ConsoleProducer", "--broker-list", "{}", "--topic", topic, text="\n".join(lines) + "\n")

    reading = ("--bootstrap-server", "{}", "--topic", topic, "--group", f"group-{topic}", "--max-messages", "3")
    first = tool(READER, *reading, "--from-beginning", "--isolation-level", "read_committed")
    second = tool(READER, *reading)

    assert first.splitlines() == lines[:3]
    assert second.splitlines() == lines[3:]


@pytest.mark.ability("records", "tools of 2.0")
def test_verifiable_clients_agree_on_the_records_written(tool: Tool, new_topic: NewTopic) -> None:
    topic = new_topic("verifiable", PARTITIONS)
    common = ("--broker-list", "{}", "--topic", topic, "--max-messages", "500")

    produced = events(tool("org.apache.kafka.tools.VerifiableProducer", *common, "--acks", "-1"))
    consumed = events(tool("org.apache.kafka.tools.VerifiableConsumer", *common, "--group-id", f"group-{topic}"))

    acked = sorted(int(event["value"]) for event in produced if event["name"] == "producer_send_success")
    committed = [event for event in consumed if event["name"] == "offsets_committed"]
    assert acked == list(range(500))
    assert sum(event["count"] for event in consumed if event["name"] == "records_consumed") == 500
    assert all(event["success"] for event in committed)
    ends = {row["partition"]: row["offset"] for event in committed for row in event["offsets"]}
    assert sum(ends.values()) == 500


@pytest.mark.ability("transactions", "tools of 2.0")
def test_transactional_message_copier_copies_all_though_it_aborts_at_random(tool: Tool, new_topic: NewTopic) -> None:
    source, target = new_topic("copied"), new_topic("copy")
    written = ("--broker-list", "{}", "--topic", source, "--max-messages", "1000", "--acks", "-1")
    tool("org.apache.kafka.tools.VerifiableProducer", *written)
    copying = ("--broker-list", "{}", "--input-topic", source, "--input-partition", "0", "--output-topic", target)
    group = ("--consumer-group", f"group-{source}", "--transactional-id", source, "--transaction-size", "100")
    most = ("--max-messages", "1000")
    reading = ("--bootstrap-server", "{}", "--topic", target, "--from-beginning", "--isolation-level", "read_committed")

    copier = "org.apache.kafka.tools.TransactionalMessageCopier"
    copied = events(tool(copier, *copying, *group, *most, "--enable-random-aborts"))
    read = tool(READER, *reading, *most)

    assert copied[-1]["remaining"] == 0
    assert [int(line) for line in read.splitlines()] == list(range(1000))


@pytest.mark.nightly  # each command is a JVM
def test_other_tools_find_offsets_versions_and_directories(
    tool: Tool, new_topic: NewTopic, write: Write, tmp_path: Path, broker: BrokerProcess
) -> None:
    topic = new_topic("asked", PARTITIONS)
    write(topic, 7, partitions=PARTITIONS)
    below = {"version": 1, "partitions": [{"topic": topic, "partition": 0, "offset": 4}]}
    (tmp_path / "below.json").write_text(json.dumps(below))

    where = ("--bootstrap-server", "{}", "--offset-json-file", str(tmp_path / "below.json"))
    deleted = tool("kafka.admin.DeleteRecordsCommand", *where)
    first = tool("kafka.tools.GetOffsetShell", "--broker-list", "{}", "--topic", topic, "--time", "-2")
    last = tool("kafka.tools.GetOffsetShell", "--broker-list", "{}", "--topic", topic, "--time", "-1")
    versions = tool("kafka.admin.BrokerApiVersionsCommand", "--bootstrap-server", "{}")
    described = tool("kafka.admin.LogDirsCommand", "--bootstrap-server", "{}", "--describe", "--topic-list", topic)

    assert "low_watermark: 4" in deleted
    assert sorted(first.split()) == [f"{topic}:0:4", f"{topic}:1:0"]
    assert sorted(last.split()) == [f"{topic}:0:7", f"{topic}:1:7"]
    assert f"{broker.bootstrap} (id: 0 rack: null) -> (" in versions
    (directory,) = json.loads(described.splitlines()[-1])["brokers"][0]["logDirs"]
    assert sorted(row["partition"] for row in directory["partitions"]) == [f"{topic}-0", f"{topic}-1"]


@pytest.mark.ability("administration", "tools of 4.4")
@pytest.mark.nightly
def test_the_tools_of_kafka_4_do_their_work(new_topic: NewTopic, broker: BrokerProcess) -> None:
    try:
        jars = later_jars(RELEASES[-1])
    except KafkaUnavailable as error:
        pytest.skip(f"needs Apache Kafka {RELEASES[-1]}: {error}")
    topic = new_topic("tools-of-4", PARTITIONS)
    group = f"group-{topic}"

    def tool(main: str, *arguments: str, text: str = "") -> str:
        where = ("--bootstrap-server", broker.bootstrap)
        return kafka_tool(jars, f"org.apache.kafka.tools.{main}", *where, *arguments, text=text)

    quota = ("--entity-type", "clients", "--entity-name", topic, "--alter")
    tool("ConfigCommand", *quota, "--add-config", "consumer_byte_rate=1000000000")
    tool("ConsoleProducer", "--topic", topic, "--compression-codec", "zstd", text="a\nb\nc\n")
    reading = ("--topic", topic, "--from-beginning", "--max-messages", "3", "--timeout-ms", "30000", "--group", group)
    read = tool("consumer.ConsoleConsumer", *reading, "--command-property", "group.protocol=consumer")
    tool("ConfigCommand", *quota, "--delete-config", "consumer_byte_rate")
    described = tool("TopicCommand", "--describe", "--topic", topic)
    state = tool("consumer.group.ConsumerGroupCommand", "--describe", "--group", group, "--state")
    offsets = table(tool("consumer.group.ConsumerGroupCommand", "--describe", "--group", group))
    reset = ("--reset-offsets", "--to-earliest", "--topic", topic, "--execute", "--group", group)
    tool("consumer.group.ConsumerGroupCommand", *reset)
    listed = tool("GroupsCommand", "--list")
    ends = tool("GetOffsetShell", "--topic", topic)

    assert sorted(read.split()) == ["a", "b", "c"]
    assert f"PartitionCount: {PARTITIONS}" in described
    assert "uniform" in state
    assert sum(int(row["CURRENT-OFFSET"]) for row in offsets) == 3
    assert re.search(rf"^{group} +Consumer +consumer", listed, re.M)
    assert sum(int(line.rpartition(":")[2]) for line in ends.split()) == 3
