"""`minibroker produce` and `consume` as kcat's and rpk's users know them, with librdkafka and with kafka-python."""

from __future__ import annotations

import io
import struct
import sys
from pathlib import Path

import pytest
from kafka import codec

from minibroker import Broker
from minibroker.any_cluster import codecs
from minibroker.any_cluster.bootstrap import parse_bootstrap
from minibroker.any_cluster.cluster import connected
from minibroker.any_cluster.record_appends import append
from minibroker.cli.app import main
from tests.edge_records import EDGES, SHORTENED_BY_LIBRDKAFKA, damage, named, stored
from tests.minibroker.conftest import CommandLine

pytestmark = [pytest.mark.integration, pytest.mark.slow]

FIVE = ["a", "b", "c", "d", "e"]
LIBRDKAFKA = "minibroker.any_cluster.librdkafka"


@pytest.fixture(autouse=True, params=["librdkafka", "kafka-python"])
def client(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The client that reads and writes the records."""
    if request.param == "kafka-python":
        monkeypatch.setitem(sys.modules, LIBRDKAFKA, None)  # as if confluent-kafka were not installed
    else:
        __import__(LIBRDKAFKA)
    return str(request.param)


@pytest.fixture
def topic(cli: CommandLine) -> str:
    name = cli.topic(retention_ms=-1)
    cli.records.write(name, FIVE, timestamp_ms=1_357_020_000_000)
    return name


def produced(cli: CommandLine, monkeypatch: pytest.MonkeyPatch, data: bytes, *arguments: object) -> tuple[int, str]:
    """Exit status and standard error of `produce` with those bytes at its standard input."""
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
    status, _, err = cli.run("produce", *arguments)
    return status, err


@pytest.mark.parametrize(
    ("arguments", "values"),
    [
        (["--to", "2"], "ab"),
        (["--to", "end"], "abcde"),
        (["--from", "+1", "--to", "-1"], "bcd"),
        (["--to", "@2013-01-01T06:00:02Z"], "ab"),
        (["--from", "3", "--to", "3"], ""),
        (["--to", "4", "-n", "2"], "ab"),
        (["--from", "end"], ""),
    ],
)
def test_it_prints_up_to_a_position(cli: CommandLine, topic: str, arguments: list[str], values: str) -> None:
    assert cli.out("consume", topic, *arguments, "-f", "%v") == values


def test_several_topics_are_read_by_name_and_by_pattern(cli: CommandLine, topic: str) -> None:
    other = cli.topic("other", partitions=2, values=["x"])

    assert sorted(cli.lines("consume", topic, other, "-f", r"%t %v\n")) == sorted(
        [[topic, value] for value in FIVE] + [[other, "x"]]
    )
    prefix = cli.new("")
    assert len(cli.lines("consume", "--regex", f"{prefix}.*", "nothing")) == len(FIVE) + 1
    assert len(cli.lines("consume", "--regex", f"{prefix}.*", "--group", cli.new("all"))) == len(FIVE) + 1
    assert cli.complaint("consume", "-r", f"{prefix}none").startswith(f"minibroker: no topic matches {prefix}none; ")


def test_a_group_goes_on_where_it_stopped_and_commits_past_the_end_of_a_transaction(cli: CommandLine) -> None:
    topic, group = cli.topic(), cli.new("reports")
    cli.records.transaction(topic, ["a", "b"], commit=True)
    cli.records.transaction(topic, ["dropped"], commit=False)

    assert cli.out("consume", topic, "-g", group, "-n", 1, "--read-committed") == "a\n"
    assert cli.out("consume", topic, "-g", group, "--read-committed") == "b\n"
    assert cli.out("consume", topic, "-g", group, "--read-committed") == ""
    assert cli.out("consume", topic, "-g", cli.new("dirty")) == "a\nb\ndropped\n"
    described = cli.document("groups", "describe", group)
    assert (described["members"], described["partitions"][0]["committed"] >= 2) == ([], True)


@pytest.mark.parametrize("name", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_every_codec_is_written_and_read(
    cli: CommandLine, monkeypatch: pytest.MonkeyPatch, name: str, client: str
) -> None:
    if client == "kafka-python":  # as without python-snappy and zstandard, which are for its own tests
        for module in ("snappy", "zstd"):
            monkeypatch.setattr(codec, module, None)
        codecs.complete(codec)
    topic = cli.topic()

    assert produced(cli, monkeypatch, b"x" * 9999 + b"\n", topic, "-z", name) == (0, "")

    assert cli.out("consume", topic) == "x" * 9999 + "\n"
    assert [row["size_bytes"] < 1000 for row in cli.document("log-dirs", topic)] == [name != "none"]


def test_a_delimiter_of_any_bytes_ends_a_record(cli: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    topic = cli.topic()

    done = produced(cli, monkeypatch, b"k=one\r\n\0l=two\0", topic, "-D", r"\0", "-K", r"\x3d")

    assert done == (0, "")
    assert [(each.key, each.value) for each in cli.records.read(topic, 2)] == [(b"k", b"one\r\n"), (b"l", b"two")]
    assert cli.out("consume", topic, "-f", r"%v\0") == "one\r\n\0two\0"


def test_values_after_their_sizes_keep_every_byte(cli: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    topic, values = cli.topic(), [b"\n\xff\0", None, b""]
    data = b"".join(struct.pack(">i", -1 if value is None else len(value)) + (value or b"") for value in values)

    assert produced(cli, monkeypatch, data, topic, "-R", "-k", "key") == (0, "")

    assert [each.value for each in cli.records.read(topic, 3)] == values
    assert cli.out("consume", topic, "-f", "%R{%v{hex}", "-n", 1) == "\0\0\0\3{0aff00"


def test_json_goes_back_in_as_it_came_out(cli: CommandLine, monkeypatch: pytest.MonkeyPatch, client: str) -> None:
    topic, copy = cli.topic(retention_ms=-1), cli.topic("copy", retention_ms=-1)
    with connected(parse_bootstrap(cli.bootstrap)) as cluster:
        append(cluster, topic, list(EDGES.values()))

    done = produced(cli, monkeypatch, cli.out("consume", topic, "-o", "json").encode(), copy, "--json")

    assert done == (0, "")
    assert named(stored(cli.bootstrap, topic)) == EDGES
    assert named(stored(cli.bootstrap, copy)) == (EDGES | SHORTENED_BY_LIBRDKAFKA if client == "librdkafka" else EDGES)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"\0\0\0\1a\0\0", "record 2: the input ends within its size"),
        (b"\0\0\0\5abc", "record 1: the input ends after 3 bytes of 5"),
        (b"\x7f\xff\xff\xff", "record 1: 2147483647 is not the size"),
        (b"\xff\xff\xff\xfe", "record 1: -2 is not the size"),
    ],
)
def test_sizes_that_do_not_fit_are_explained(
    cli: CommandLine, monkeypatch: pytest.MonkeyPatch, data: bytes, reason: str
) -> None:
    status, err = produced(cli, monkeypatch, data, cli.topic(), "--length-prefixed")

    assert (status, reason in err) == (1, True)


def test_each_file_becomes_one_record(cli: CommandLine, tmp_path: Path) -> None:
    topic = cli.topic()
    contents = [b"\x89PNG\n\r\n", b"", b"two\nlines\n"]
    files = [tmp_path / str(number) for number in range(3)]
    for file, content in zip(files, contents, strict=True):
        file.write_bytes(content)

    assert cli.out("produce", topic, *files, "-H", "kind=picture") == f"produced: 3 records to {topic}\n"

    assert [each.value for each in cli.records.read(topic, 3)] == contents
    assert "cannot read" in cli.complaint("produce", topic, tmp_path / "missing")


@pytest.mark.parametrize(
    ("how", "why"),
    [
        ("its CRC is wrong", "the CRC of the batch is wrong"),
        ("a record is too long", "a record of 63 bytes cannot be in the remaining"),
    ],
)
def test_a_batch_that_cannot_be_read_hides_none_behind_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, how: str, why: str
) -> None:
    monkeypatch.setattr("minibroker.cli.record_reader.IDLE_SECONDS", 0.3)  # librdkafka waits for ever without a word
    with Broker(settings={"group.initial.rebalance.delay.ms": 0}) as broker:
        broker.create_topic("orders")
        for values in (["a", "b"], ["c", "d"], ["e", "f"]):
            broker.produce("orders", values)
        damage(broker.data_dir / "orders-0" / f"{0:020}.log", 2, how)
        cli = CommandLine(broker.bootstrap_servers, capsys)
        complaint = f"minibroker: topic orders: offsets 2 to 3 of partition 0 cannot be read: {why}"

        for arguments, printed in (([], "abef"), (["-n", 3], "abe"), (["-g", "readers"], "abef"), (["--to", 5], "abe")):
            status, out, err = cli.run("consume", "orders", "-f", "%v", *arguments)
            assert (status, out, err.startswith(complaint)) == (1, printed, True), err
        assert cli.run("consume", "orders", "-g", "readers")[:2] == (0, "")  # it has gone on behind the batch


def test_a_topic_of_small_batches_takes_many_records(cli: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    topic = cli.topic(max_message_bytes=2000)

    assert produced(cli, monkeypatch, b"a line of some bytes\n" * 1000, topic) == (0, "")

    assert cli.out("offsets", topic).split()[-1] == "1000"


def test_client_properties_reach_the_client(cli: CommandLine, topic: str, tmp_path: Path) -> None:
    config = tmp_path / "client.properties"
    config.write_text(f"# of a cluster\nbootstrap.servers = {cli.bootstrap}\nmax.partition.fetch.bytes=1000\n")

    assert main(["consume", topic, "--command-config", str(config), "-n", "1"]) == 0
    assert cli.out("consume", topic, "-n", 1, "-X", "fetch.max.wait.ms=50", "-X", "client.id=x") == "a\na\n"
