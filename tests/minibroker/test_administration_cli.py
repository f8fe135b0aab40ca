"""Seeking groups, deleting records, transactions, producers and log directories from the command line."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from minibroker.any_cluster.cluster import KafkaProducer
from tests.minibroker.conftest import CommandLine

pytestmark = [pytest.mark.integration, pytest.mark.slow]

FIVE = ["a", "b", "c", "d", "e"]


@pytest.fixture
def topic(cli: CommandLine) -> str:
    name = cli.topic(partitions=2, values=FIVE)
    cli.records.write(name, FIVE, partition=1)
    return name


@pytest.fixture
def group(cli: CommandLine, topic: str) -> str:
    """A group that has committed 2 and 4."""
    name = cli.new("reports")
    cli.records.commit(name, topic, 2)
    cli.records.commit(name, topic, 4, partition=1)
    return name


def committed(cli: CommandLine, group: str) -> dict[int, int]:
    return {row["partition"]: row["committed"] for row in cli.document("groups", "describe", group)["partitions"]}


# -- groups


def test_a_reset_moves_only_the_partitions_named(cli: CommandLine, topic: str, group: str) -> None:
    cli.out("groups", "reset", group, "--to", "end", "-p", 1, "--execute")
    assert committed(cli, group) == {0: 2, 1: 5}

    assert "has no partition 7" in cli.complaint("groups", "reset", group, "--to", "end", "-p", 0, "-p", 7)


def test_a_group_takes_over_the_offsets_of_another_or_of_a_file(
    cli: CommandLine, topic: str, group: str, tmp_path: Path
) -> None:
    other, third, file = cli.new("nightly"), cli.new("weekly"), tmp_path / "offsets.csv"

    cli.out("groups", "reset", other, "--to-group", group, "--execute")
    exported = cli.out("groups", "export", other)
    file.write_text(exported)
    cli.out("groups", "reset", third, "--from-file", file, "-p", 0, "--execute")

    other_topic = cli.complaint("groups", "reset", third, "--to-group", group, "-t", topic, "-t", "typo")
    assert f"group {group} has no offsets of topic typo; correct --topic" in other_topic
    assert "has no offsets of topic typo" in cli.complaint("groups", "export", group, "-t", topic, "-t", "typo")
    assert exported == f"{topic},0,2\n{topic},1,4\n"
    assert cli.document("groups", "export", other)[1] == {"topic": topic, "partition": 1, "offset": 4}
    assert (committed(cli, other), committed(cli, third)) == ({0: 2, 1: 4}, {0: 2})
    file.write_text(f'"{third}","{topic}",0,99\n{topic} 1 3\n\n"{group}","{topic}",1,0\n')
    status, _, err = cli.run("groups", "reset", third, "--from-file", file, "--execute")
    assert (status, err.splitlines()) == (
        0,
        [
            f"minibroker: {file}: 1 line of other groups left out",
            f"minibroker: {topic} 0: it has no offset 99; the nearest that it has is 5",
        ],
    )
    assert committed(cli, third) == {0: 5, 1: 3}


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("TOPIC,0,1\nTOPIC,1\n", "line 2: not TOPIC,PARTITION,OFFSET"),
        ("TOPIC,0,-1\n", "line 1: not TOPIC,PARTITION,OFFSET"),
        ("GROUP,TOPIC,0,1,2\n", "line 1: not TOPIC,PARTITION,OFFSET"),
        ('"TOPIC,0,1\n', "line 1: not TOPIC,PARTITION,OFFSET"),
        ("TOPIC,0,1\nmissing,0,1\n", "offsets of partitions that do not exist: missing 0; leave them out"),
        ("TOPIC,9,1\nTOPIC,0,1\n", "offsets of partitions that do not exist: TOPIC 9; leave them out"),
        ("TOPIC,0,1\nTOPIC,1,1\nTOPIC,0,2\n", "line 3: TOPIC 0 is in line 1 too"),
        ("other,TOPIC,0,1\n", "has no offsets of group GROUP; it has those of other"),
        ("\n", "has no offsets to take over"),
        (None, "cannot read"),
    ],
)
def test_a_file_that_does_not_fit_changes_nothing(
    cli: CommandLine, topic: str, group: str, tmp_path: Path, content: str | None, reason: str
) -> None:
    file = tmp_path / "offsets.csv"
    if content is not None:
        file.write_text(content.replace("TOPIC", topic).replace("GROUP", group))
    reason = re.sub(r"\bTOPIC\b(?!,)", topic, reason).replace("GROUP", group)

    assert reason in cli.complaint("groups", "reset", group, "--from-file", file, "--execute")
    assert committed(cli, group) == {0: 2, 1: 4}


# -- records


def test_records_before_a_position_are_deleted(cli: CommandLine, topic: str) -> None:
    rows = cli.document("topics", "delete-records", topic, "--before", "-2", "-p", 1)
    assert rows == [{"partition": 1, "earliest_before": 0, "earliest": 3, "latest": 5}]

    assert cli.lines("topics", "delete-records", topic, "--before", 1)[1:] == [
        ["0", "0", "1", "5"],
        ["1", "3", "3", "5"],
    ]

    assert cli.out("consume", topic, "-p", 0, "-f", "%v") == "bcde"
    assert cli.out("consume", topic, "-p", 1, "-f", "%v") == "de"
    assert "has no partition 7" in cli.complaint("topics", "delete-records", topic, "--before", 1, "-p", 7)


def test_records_of_compacted_and_of_internal_topics_are_not_deleted(cli: CommandLine, group: str) -> None:
    cli.out("topics", "create", "compacted-only", "--config", "cleanup.policy=compact")

    assert group  # its commits are in the internal topic
    for topic, reason in (("compacted-only", "cleanup.policy=compact,delete"), ("__consumer_offsets", "is internal")):
        assert reason in cli.complaint("topics", "delete-records", topic, "--before", "end")


def test_log_directories_list_the_bytes_of_each_partition(cli: CommandLine, topic: str) -> None:
    rows = cli.document("log-dirs", topic)

    assert [(row["topic"], row["partition"], row["lag"], row["is_future"]) for row in rows] == [
        (topic, 0, 0, False),
        (topic, 1, 0, False),
    ]
    assert all(row["size_bytes"] > 0 and Path(row["directory"]).is_absolute() for row in rows)
    assert cli.lines("log-dirs", topic)[0] == ["BROKER", "DIRECTORY", "TOPIC", "PARTITION", "BYTES", "LAG"]
    assert "does not exist" in cli.complaint("log-dirs", cli.new("missing"))


def test_empty_partitions_of_internal_topics_are_one_line_unless_they_are_asked_for(
    cli: CommandLine, group: str
) -> None:
    def of_offsets(lines: list[list[str]]) -> list[list[str]]:
        return [line for line in lines if "__consumer_offsets" in line]

    sizes = {row["partition"]: row["size_bytes"] for row in cli.document("log-dirs", "__consumer_offsets")}
    empty = sum(size == 0 for size in sizes.values())
    listed = of_offsets(cli.lines("log-dirs"))

    assert [line[3:] for line in listed if "empty" in line] == [[str(empty), "empty", "0", "0"]]
    assert len(listed) == len(sizes) - empty + 1
    assert len(of_offsets(cli.lines("log-dirs", "__consumer_offsets"))) == len(sizes)


# -- transactions


@contextmanager
def open_transaction(cli: CommandLine, topic: str) -> Iterator[str]:
    """A transactional id with an open transaction of one record in partition 0."""
    name = cli.new("payments")
    producer: Any = KafkaProducer(bootstrap_servers=cli.bootstrap, transactional_id=name)
    producer.init_transactions()
    producer.begin_transaction()
    producer.send(topic, b"pending", partition=0)
    producer.flush(20)
    try:
        yield name
    finally:
        producer._sender.force_close()
        producer.close(timeout=3)


@pytest.fixture
def transaction(cli: CommandLine) -> Iterator[tuple[str, str]]:
    """The topic and the transactional id."""
    topic = cli.topic("payments")
    with open_transaction(cli, topic) as name:
        yield topic, name


def test_an_open_transaction_is_listed_described_and_aborted(cli: CommandLine, transaction: tuple[str, str]) -> None:
    topic, name = transaction

    listed = [row for row in cli.document("transactions", "list", "--state", "Ongoing") if name in row.values()]
    described = cli.document("transactions", "describe", name)
    (active,) = cli.document("producers", topic)

    assert (listed[0]["state"], listed[0]["producer_id"]) == ("Ongoing", active["producer_id"])
    assert described["partitions"] == [{"topic": topic, "partition": 0}]
    assert (described["state"], described["timeout_ms"], described["started"] > 0) == ("Ongoing", 60000, True)
    assert active["transaction_start"] == 0
    assert re.match(f"{name}: Ongoing since 20", cli.out("transactions", "describe", name))
    assert cli.out("consume", topic, "--read-committed") == ""

    assert cli.out("transactions", "abort", name) == f"aborted: {name}\n"

    assert cli.document("transactions", "describe", name)["started"] is None
    assert cli.document("producers", topic)[0]["transaction_start"] is None
    assert cli.document("offsets", topic, "--read-committed")[0]["latest"] == 2


def test_a_transaction_is_aborted_in_one_partition_without_its_coordinator(
    cli: CommandLine, transaction: tuple[str, str]
) -> None:
    topic, _ = transaction
    producer_id = cli.document("producers", topic)[0]["producer_id"]
    arguments = ["transactions", "abort", "-t", topic, "-p", 0, "--producer-id", producer_id]

    assert cli.out(*arguments) == f"aborted: producer {producer_id} in {topic} 0\n"

    assert cli.lines("producers", topic, "-p", 0)[1][-1] == "-"
    assert f"producer {producer_id} has no open transaction in {topic} 0; " in cli.complaint(*arguments)


def test_what_does_not_exist_is_explained(cli: CommandLine) -> None:
    missing, topic = cli.new("missing"), cli.topic()

    for command in ("describe", "abort"):
        assert f"transactional id {missing} does not exist; " in cli.complaint("transactions", command, missing)
    assert (
        cli.run("transactions", "list", "-s", "PrepareCommit")[2]
        == "minibroker: no transactions in state PrepareCommit\n"
    )
    assert cli.run("producers", topic)[2] == f"minibroker: topic {topic} has no idempotent producers now\n"
    assert "has no partition 7" in cli.complaint("producers", topic, "-p", 7)
