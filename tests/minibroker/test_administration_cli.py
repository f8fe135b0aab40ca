"""Log directories, a transaction aborted by its producer's id, and what old releases lack, from the command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from minibroker import Broker
from tests.minibroker.commands import minibroker
from tests.minibroker.conftest import CommandLine

pytestmark = [pytest.mark.integration, pytest.mark.slow]


def test_log_directories_list_the_bytes_of_each_partition(cli: CommandLine) -> None:
    topic = cli.topic(partitions=2, values=["a"])
    cli.records.write(topic, ["a"], partition=1)

    rows = cli.document("log-dirs", topic)

    assert [(row["topic"], row["partition"], row["lag"], row["is_future"]) for row in rows] == [
        (topic, 0, 0, False),
        (topic, 1, 0, False),
    ]
    assert all(row["size_bytes"] > 0 and Path(row["directory"]).is_absolute() for row in rows)
    assert cli.lines("log-dirs", topic)[0] == ["BROKER", "DIRECTORY", "TOPIC", "PARTITION", "BYTES", "LAG"]


def test_empty_partitions_of_internal_topics_are_one_line_unless_they_are_asked_for(
    cli: CommandLine,
) -> None:
    cli.records.commit(cli.new("reports"), cli.topic(), 0)

    def of_offsets(lines: list[list[str]]) -> list[list[str]]:
        return [line for line in lines if "__consumer_offsets" in line]

    sizes = {row["partition"]: row["size_bytes"] for row in cli.document("log-dirs", "__consumer_offsets")}
    empty = sum(size == 0 for size in sizes.values())
    listed = of_offsets(cli.lines("log-dirs"))

    assert [line[3:] for line in listed if "empty" in line] == [[str(empty), "empty", "0", "0"]]
    assert len(listed) == len(sizes) - empty + 1
    assert len(of_offsets(cli.lines("log-dirs", "__consumer_offsets"))) == len(sizes)


def test_a_transaction_is_aborted_in_one_partition_without_its_coordinator(
    cli: CommandLine,
) -> None:
    topic = cli.topic()
    with cli.records.open_transaction(cli.new("payments"), topic):
        producer_id = cli.document("producers", topic)[0]["producer_id"]
        arguments = ["transactions", "abort", "-t", topic, "-p", 0, "--producer-id", producer_id]

        assert cli.out(*arguments) == f"aborted: producer {producer_id} in {topic} 0\n"

        assert cli.lines("producers", topic, "-p", 0)[1][-1] == "-"
        assert f"producer {producer_id} has no open transaction in {topic} 0; " in cli.complaint(*arguments)


def test_elections_and_moves_need_a_release_that_has_them() -> None:
    with Broker(act_as="2.0") as broker:
        for command, first in ((["elect"], "2.2"), (["move", "t", "--to", 0], "2.4"), (["moves"], "2.4")):
            complaint = minibroker("topics", *command, "-b", broker.bootstrap_servers).complaint
            assert "is of Apache Kafka 2.0, and " in complaint
            assert f"by request came with {first}; use the tools of its release" in complaint
