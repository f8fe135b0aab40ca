"""`minibroker topics`: what it shows, and what it says when something is wrong.

With MINIBROKER_TEST_KAFKA=<folder of Apache Kafka's jars> the same tests run against Apache Kafka 2.0.1.
"""

from __future__ import annotations

import json

import pytest

from minibroker import Broker
from minibroker.cli import terminal
from minibroker.cli.app import main
from tests.minibroker.commands import minibroker
from tests.minibroker.conftest import CommandLine
from tests.minibroker.records_by_hand import Records

pytestmark = [pytest.mark.integration, pytest.mark.slow]

OFFSETS_TOPIC = "__consumer_offsets"


# -- what there is


def test_an_empty_list_of_topics_names_the_command_that_makes_one(capsys: pytest.CaptureFixture[str]) -> None:
    with Broker() as fresh:
        assert main(["topics", "list", "-b", fresh.bootstrap_servers]) == 0
        as_text = capsys.readouterr()
        assert main(["topics", "list", "-b", fresh.bootstrap_servers, "-o", "json"]) == 0
        as_json = capsys.readouterr()

    assert as_text.out == ""
    assert "minibroker topics create NAME" in as_text.err
    assert (as_json.out, as_json.err) == ("[]\n", "")


def test_created_topics_are_listed_with_their_partitions(cli: CommandLine) -> None:
    flights, airports = cli.topic("flights", partitions=3), cli.topic("airports")

    lines = cli.lines("topics", "list")

    assert lines[0] == ["TOPIC", "PARTITIONS", "REPLICAS"]
    assert [line for line in lines if line[0] in (flights, airports)] == [[airports, "1", "1"], [flights, "3", "1"]]
    assert cli.topics() == [
        {"name": airports, "partitions": 1, "replication_factor": 1, "internal": False},
        {"name": flights, "partitions": 3, "replication_factor": 1, "internal": False},
    ]


def test_several_topics_are_created_and_deleted_at_once(cli: CommandLine) -> None:
    names = [cli.new("a"), cli.new("b")]

    created, deleted = cli.out("topics", "create", *names), cli.out("topics", "delete", *names)

    assert sorted(created.splitlines()) == [f"created: {name}" for name in names]
    assert sorted(deleted.splitlines()) == [f"deleted: {name}" for name in names]
    assert cli.topics() == []
    assert cli.out("topics", "delete", names[0], "--if-exists") == f"absent: {names[0]}\n"


def test_describe_shows_partitions_offsets_and_configs(cli: CommandLine) -> None:
    name = cli.topic(partitions=2, retention_ms=-1, segment_bytes=100000)
    cli.records.write(name, ["a", "b", "c"], partition=1)

    out = cli.out("topics", "describe", name)

    lines = [line.split() for line in out.splitlines()]
    assert lines[0] == ["PARTITION", "LEADER", "REPLICAS", "IN", "SYNC", "EARLIEST", "LATEST"]
    assert lines[1:3] == [["0", "0", "0", "0", "0", "0"], ["1", "0", "0", "0", "0", "3"]]
    assert ["retention.ms=-1"] in lines
    assert ["segment.bytes=100000"] in lines
    assert "cleanup.policy" not in out
    assert "--all-configs" in out
    assert "cleanup.policy=delete  (default)\n" in cli.out("topics", "describe", name, "--all-configs")


def test_describe_as_json_is_one_object(cli: CommandLine) -> None:
    name = cli.topic(retention_ms=-1, values=["a", "b", "c"])

    document = cli.document("topics", "describe", name)

    assert document["defaults"].pop("cleanup.policy") == "delete"
    assert len(document.pop("defaults")) > 20
    assert document == {
        "name": name,
        "internal": False,
        "partitions": [{"partition": 0, "leader": 0, "replicas": [0], "isr": [0], "earliest": 0, "latest": 3}],
        "configs": {"retention.ms": "-1"},
    }


def test_a_topic_grows_to_so_many_partitions_and_does_not_shrink(cli: CommandLine) -> None:
    name = cli.topic()

    assert cli.out("topics", "grow", name, "--partitions", "3") == f"grown: {name}\n"

    assert cli.topics() == [{"name": name, "partitions": 3, "replication_factor": 1, "internal": False}]
    line = cli.complaint("topics", "grow", name, "-p", "2")
    assert "currently has 3 partitions" in line
    assert "--partitions" in line


# -- refusals


@pytest.mark.parametrize(
    ("name", "configs", "said"),
    [
        ("a.b", [], "collides with existing topics: {}a_b; choose another name: in names of metrics, `.` and `_`"),
        ("c!", [], "use letters, digits, `.`, `_` and `-`, 249 at most"),
        ("d", ["--config", "retention.ms=soon"], "retention.ms: not a whole number of 64 bits; "),
    ],
)
def test_a_topic_that_cannot_be_is_refused_with_its_own_next_step(
    cli: CommandLine, name: str, configs: list[str], said: str
) -> None:
    cli.topic("a_b")

    assert said.format(cli.new("")) in cli.complaint("topics", "create", cli.new(name), *configs)


def test_a_topic_that_exists_is_refused_with_the_way_on(cli: CommandLine) -> None:
    name = cli.topic()

    line = cli.complaint("topics", "create", name)

    assert f"'{name}' already exists" in line
    assert f"minibroker topics describe {name}" in line
    assert cli.out("topics", "create", name, "--if-not-exists") == f"exists: {name}\n"


@pytest.mark.parametrize("command", [["describe"], ["delete"], ["grow", "-p", "2"]])
def test_a_topic_that_is_not_there_is_refused_with_the_way_on_and_not_created(
    cli: CommandLine, command: list[str]
) -> None:
    name = cli.new("missing")

    line = cli.complaint("topics", *command, name)

    assert name in line
    assert "does not exist" in line
    assert "minibroker topics list" in line
    assert cli.topics() == []


@pytest.mark.parametrize(
    ("name", "options", "said", "advice"),
    [
        ("x y", [], "is illegal", "use letters"),
        ("flights", ["-r", "3"], "larger than available brokers", "--replication-factor"),
        ("flights", ["-c", "no.such.config=1"], "no.such.config", "--all-configs"),
        ("flights", ["-c", "retention.ms=soon"], "Invalid value soon for configuration retention.ms", "; "),
    ],
)
def test_a_refused_topic_is_an_error_in_the_brokers_words_with_advice(
    cli: CommandLine, name: str, options: list[str], said: str, advice: str
) -> None:
    line = cli.complaint("topics", "create", cli.new(name), *options)

    assert said in line
    assert advice in line


def test_a_failure_of_one_topic_leaves_the_others_done(cli: CommandLine) -> None:
    old, new = cli.topic("old"), cli.new("new")

    status, out, err = cli.run("topics", "create", old, new)

    assert status == 1
    assert out == f"created: {new}\n"
    assert len(err.splitlines()) == 1


def test_json_of_a_partial_success_has_both_outcomes(cli: CommandLine) -> None:
    there, missing = cli.topic("there"), cli.new("missing")

    status, out, err = cli.run("topics", "delete", there, missing, "-o", "json")

    rows = {row["name"]: row for row in json.loads(out)}
    assert status == 1
    assert rows[there] == {"name": there, "outcome": "deleted", "error": None}
    assert rows[missing]["outcome"] == "failed"
    assert rows[missing]["error"] in err


@pytest.mark.parametrize(
    "command",
    [
        *("consume", "produce", "offsets", "producers", "log-dirs", "topics describe", "topics delete"),
        *("topics grow -p 9", "topics delete-records --before end", "groups reset g --to end -t"),
        *("configs describe --topic", "configs set a=b --topic", "configs unset a --topic"),
    ],
)
def test_a_topic_whose_name_is_alike_is_guessed(cli: CommandLine, command: str) -> None:
    topic = cli.topic("flights")
    typed = topic.replace("flights", "Flihgts")

    line = cli.complaint(*command.split(), typed)

    assert line == f"minibroker: topic {typed} does not exist; did you mean {topic}?"


@pytest.mark.parametrize(
    ("command", "advice"),
    [
        (["topics", "delete", OFFSETS_TOPIC], "--internal allows to delete it all the same"),
        (["topics", "grow", OFFSETS_TOPIC, "-p", "51"], "--internal allows to grow it all the same"),
        (["topics", "delete-records", OFFSETS_TOPIC, "--before", "end"], "Kafka deletes none of its records"),
        (["produce", OFFSETS_TOPIC, "/dev/null"], "only the broker writes to it"),
    ],
)
def test_an_internal_topic_is_not_changed_by_mistake(cli: CommandLine, command: list[str], advice: str) -> None:
    cli.records.commit(cli.new("reports"), cli.topic(values=["a"]), 1)

    line = cli.complaint(*command)

    assert line == (
        f"minibroker: topic {OFFSETS_TOPIC} is internal, with the state of groups or transactions; {advice}"
    )


def test_internal_topics_are_deleted_and_grown_where_that_is_meant(capsys: pytest.CaptureFixture[str]) -> None:
    with Broker() as broker:
        records, at = Records(broker.bootstrap_servers), ("-b", broker.bootstrap_servers)
        broker.create_topic("flights")
        records.commit("reports", "flights", 0)

        grown = main(["topics", "grow", OFFSETS_TOPIC, "-p", "51", "--internal", *at])
        deleted = main(["topics", "delete", OFFSETS_TOPIC, "flights", "--internal", *at])

    assert (grown, deleted) == (0, 0)
    assert sorted(capsys.readouterr().out.splitlines()) == [
        f"deleted: {OFFSETS_TOPIC}",
        "deleted: flights",
        f"grown: {OFFSETS_TOPIC}",
    ]


# -- as a process


def test_the_address_may_come_from_the_environment(cli_bootstrap: str) -> None:
    assert minibroker("topics", "list", "-o", "json", MINIBROKER_BOOTSTRAP=cli_bootstrap).document is not None


def test_colours_are_for_terminals(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm")

    terminal.complain("[bold]not markup[/]")
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    terminal.complain("x")
    monkeypatch.setenv("NO_COLOR", "1")
    terminal.complain("x")

    lines = capsys.readouterr().err.splitlines()
    assert lines == ["minibroker: [bold]not markup[/]", "\x1b[31mminibroker:\x1b[0m x", "minibroker: x"]


def test_a_line_is_as_long_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    terminal.complain("word " * 100)
    terminal.print_table(("TOPIC",), [("t" * 249,)], left=("TOPIC",))

    printed = capsys.readouterr()
    assert len(printed.err.splitlines()) == 1
    assert printed.out.splitlines()[1].rstrip() == "t" * 249


def test_text_from_a_cluster_does_not_control_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    client_id = "evil\x1b]0;owned\x07\n\x9b31m"

    terminal.complain(client_id)
    terminal.print_line(client_id)
    terminal.print_table(("CLIENT",), [(client_id,)], left=("CLIENT",))

    printed = capsys.readouterr()
    for line in (printed.err, *printed.out.splitlines()[::2]):
        assert line.strip().removeprefix("minibroker: ") == r"evil\x1b]0;owned\x07\x0a\x9b31m"
