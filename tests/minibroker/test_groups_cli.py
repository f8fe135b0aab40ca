"""`minibroker groups`: what it shows, what it changes, and what it says when something is wrong."""

from __future__ import annotations

import json

import pytest

from tests.minibroker.conftest import CommandLine

pytestmark = [pytest.mark.integration, pytest.mark.slow]

FIVE = ["a", "b", "c", "d", "e"]


@pytest.fixture
def topic(cli: CommandLine) -> str:
    return cli.topic(partitions=2, values=FIVE)


@pytest.fixture
def group(cli: CommandLine, topic: str) -> str:
    """A group without members that has read two of five records."""
    group = cli.new("reports")
    cli.records.commit(group, topic, 2)
    return group


def test_groups_are_listed_with_their_state(cli: CommandLine, group: str) -> None:
    assert [group, "Empty", "0", "-"] in cli.lines("groups", "list")
    rows = cli.document("groups", "list")
    assert [row for row in rows if row["group"] == group] == [
        {"group": group, "state": "Empty", "members": 0, "protocol_type": ""}
    ]


def test_describe_shows_committed_offsets_and_lag(cli: CommandLine, topic: str, group: str) -> None:
    lines = cli.lines("groups", "describe", group)

    assert lines[0] == [f"{group}:", "Empty,", "0", "members,", "lag", "3"]
    assert lines[1] == ["TOPIC", "PARTITION", "COMMITTED", "END", "LAG", "CLIENT"]
    assert lines[2:] == [[topic, "0", "2", "5", "3", "-"]]


def test_a_reset_without_execute_shows_every_move_and_changes_nothing(cli: CommandLine, topic: str, group: str) -> None:
    status, out, err = cli.run("groups", "reset", group, "--to", "beginning")
    _, as_json, _ = cli.run("groups", "reset", group, "--to", "end", "-o", "json")

    assert status == 0
    assert out.splitlines()[1].split() == [topic, "0", "2", "0", "-2"]
    assert "--execute" in err
    assert json.loads(as_json) == {
        "group": group,
        "executed": False,
        "partitions": [{"topic": topic, "partition": 0, "before": 2, "after": 5, "error": None, "asked": None}],
    }
    assert committed(cli, group) == {0: 2}


@pytest.mark.parametrize(("position", "offset"), [("start", 0), ("end", 5), ("-1", 4), ("+1", 1), ("3", 3), ("99", 5)])
def test_a_reset_sets_what_the_group_has_committed(cli: CommandLine, group: str, position: str, offset: int) -> None:
    cli.out("groups", "reset", group, "--to", position, "--execute")

    assert committed(cli, group) == {0: offset}


def test_a_reset_to_a_time_is_to_the_first_record_since(cli: CommandLine) -> None:
    topic, group = cli.topic(retention_ms=-1), cli.new("by-time")
    cli.records.write(topic, FIVE, timestamp_ms=1_357_020_000_000)

    for at, offset in (("@2013-01-01T06:00:01.500Z", 2), ("@1357020004000", 4), ("@2013-01-02T00:00:00Z", 5)):
        document = cli.document("groups", "reset", group, "-t", topic, "--to", at, "--execute")
        assert [move["after"] for move in document["partitions"]] == [offset]

    assert committed(cli, group) == {0: 5}


def test_describe_shows_who_reads_what_and_a_group_in_use_is_neither_reset_nor_deleted(
    cli: CommandLine, topic: str, group: str
) -> None:
    with cli.records.member(group, topic):
        document = cli.document("groups", "describe", group)
        reset = cli.complaint("groups", "reset", group, "--to", "end", "--execute")
        deleted = cli.complaint("groups", "delete", group)

    (member,) = document["members"]
    assert (document["state"], document["lag"]) == ("Stable", 3)
    assert (member["client_id"], member["host"]) == ("by-hand", "127.0.0.1")
    assert member["partitions"] == [{"topic": topic, "partition": 0}, {"topic": topic, "partition": 1}]
    assert document["partitions"] == [
        {"topic": topic, "partition": 0, "committed": 2, "end": 5, "lag": 3, "client_id": "by-hand"},
        {"topic": topic, "partition": 1, "committed": None, "end": 0, "lag": None, "client_id": "by-hand"},
    ]
    assert "in use by 1 member;" in reset
    assert "stop them first" in reset
    assert "is in use; stop its consumers first" in deleted
    assert committed(cli, group) == {0: 2}


def test_a_group_that_is_no_consumer_group_is_shown_as_what_it_is_and_the_others_as_usual(
    cli: CommandLine, topic: str, group: str
) -> None:
    unread = {"connect": "14 bytes of protocol type connect", "registry": "23 bytes of protocol type sr"}
    unread |= {"damaged": "13 bytes, damaged"}
    with cli.records.member(group, topic), cli.records.other_groups(cli.new("")):
        listed = [row for row in cli.lines("groups", "list") if row[0].startswith(cli.new(""))]
        described = {name: cli.out("groups", "describe", cli.new(name)) for name in unread}
        document = cli.document("groups", "describe", cli.new("damaged"))
        plan = cli.document("groups", "reset", cli.new("registry"), "-t", topic, "--to", "end")
        refused = cli.complaint("groups", "reset", cli.new("connect"), "-t", topic, "--to", "end", "--execute")
        metrics = cli.out("metrics", "show").splitlines()
        joining = cli.complaint("consume", topic, "--group", cli.new("connect"))
        usual = cli.lines("groups", "describe", group)

    assert listed == [
        [cli.new("connect"), "Stable", "1", "connect"],
        [cli.new("damaged"), "Stable", "1", "consumer"],
        [cli.new("registry"), "Stable", "1", "sr"],
        [group, "Stable", "1", "consumer"],
    ]
    for name, text in unread.items():
        assert f"127.0.0.1  {text}" in described[name]
    assert described["connect"].startswith(f"{cli.new('connect')}: Stable, 1 member, lag 0, protocol type connect\n")
    assert [(each["partitions"], each["unread_bytes"]) for each in document["members"]] == [([], 13)]
    assert [(each["partition"], each["after"]) for each in plan["partitions"]] == [(0, 5), (1, 0)]
    assert "in use by 1 member" in refused
    assert "the members of the group use another protocol" in joining
    for each in (group, *map(cli.new, unread)):
        assert f'kafka_consumergroup_members{{consumergroup="{each}"}} 1.0' in metrics
    assert usual[1:3] == [["CLIENT", "HOST", "PARTITIONS"], ["by-hand", "127.0.0.1", topic, "0-1"]]


def test_a_reset_asks_for_topics_if_the_group_has_none(cli: CommandLine) -> None:
    assert "--topic NAME" in cli.complaint("groups", "reset", cli.new("nobody"), "--to", "end")


@pytest.mark.parametrize("command", ["describe", "delete"])
def test_a_group_that_is_not_there_is_refused_with_the_way_on(cli: CommandLine, command: str) -> None:
    name = cli.new("missing")

    assert f"group {name} does not exist; `minibroker groups list`" in cli.complaint("groups", command, name)


@pytest.mark.parametrize(
    "command",
    ["groups describe", "groups delete", "groups export", "groups reset --to end", "groups reset g --to-group"],
)
def test_a_group_whose_name_is_alike_is_guessed(cli: CommandLine, group: str, command: str) -> None:
    assert f"; did you mean {group}?" in cli.complaint(*command.split(), group.replace("reports", "Reprots"))


def test_deleted_groups_are_gone_and_deleting_what_is_not_there_may_be_allowed(cli: CommandLine, group: str) -> None:
    missing = cli.new("missing")

    assert cli.out("groups", "delete", group) == f"deleted: {group}\n"

    assert "does not exist; `minibroker groups list`" in cli.complaint("groups", "describe", group)
    rows = cli.document("groups", "delete", missing, "--if-exists")
    assert [(row["name"], row["outcome"]) for row in rows] == [(missing, "absent")]


def committed(cli: CommandLine, group: str) -> dict[int, int]:
    rows = cli.document("groups", "describe", group)["partitions"]
    return {row["partition"]: row["committed"] for row in rows if row["committed"] is not None}
