"""`minibroker produce` and `consume` as kcat's and rpk's users know them, with librdkafka and with kafka-python."""

from __future__ import annotations

import io
import sys

import pytest
from kafka import codec
from kafka.record import default_records, legacy_records

from minibroker import Broker
from minibroker.any_cluster import codecs
from minibroker.any_cluster.bootstrap import parse_bootstrap
from minibroker.any_cluster.cluster import connected
from minibroker.any_cluster.record_appends import append
from tests.edge_records import EDGES, SHORTENED_BY_LIBRDKAFKA, damage, named, stored
from tests.minibroker.conftest import CommandLine

pytestmark = [pytest.mark.integration, pytest.mark.slow]
LIBRDKAFKA = "minibroker.any_cluster.librdkafka"


@pytest.fixture(autouse=True, params=["librdkafka", "kafka-python"])
def client(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The client that reads and writes the records."""
    if request.param == "kafka-python":
        monkeypatch.setitem(sys.modules, LIBRDKAFKA, None)  # as if confluent-kafka were not installed
    else:
        __import__(LIBRDKAFKA)
    return str(request.param)


def produced(cli: CommandLine, monkeypatch: pytest.MonkeyPatch, data: bytes, *arguments: object) -> tuple[int, str]:
    """Exit status and standard error of `produce` with those bytes at its standard input."""
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
    status, _, err = cli.run("produce", *arguments)
    return status, err


def test_a_header_keeps_bytes_that_are_not_utf_8(cli: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    topic = cli.topic()

    assert produced(cli, monkeypatch, b"one\n", topic, "-H", "source=t\udcffwer")[0] == 0

    assert [each.headers for each in cli.records.read(topic, 1)] == [[("source", b"t\xffwer")]]


@pytest.mark.parametrize("name", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_every_codec_is_written_and_read(
    cli: CommandLine, monkeypatch: pytest.MonkeyPatch, name: str, client: str
) -> None:
    if client == "kafka-python":  # as without python-snappy, lz4 and zstandard, which are for its own tests
        for module in ("snappy", "lz4", "zstd"):
            monkeypatch.setattr(codec, module, None)
        for module in (formats := (default_records, legacy_records)):
            monkeypatch.setattr(module, "lz4_encode", None)
            monkeypatch.setattr(module, "lz4_decode", None)
        codecs.complete(codec, *formats)
    topic = cli.topic()

    assert produced(cli, monkeypatch, b"x" * 9999 + b"\n", topic, "-z", name) == (0, "")

    assert cli.out("consume", topic) == "x" * 9999 + "\n"
    assert [row["size_bytes"] < 1000 for row in cli.document("log-dirs", topic)] == [name != "none"]


def test_json_goes_back_in_as_it_came_out(cli: CommandLine, monkeypatch: pytest.MonkeyPatch, client: str) -> None:
    topic, copy = cli.topic(retention_ms=-1), cli.topic("copy", retention_ms=-1)
    with connected(parse_bootstrap(cli.bootstrap)) as cluster:
        append(cluster, topic, list(EDGES.values()))

    done = produced(cli, monkeypatch, cli.out("consume", topic, "-o", "json").encode(), copy, "--json")

    assert done == (0, "")
    assert named(stored(cli.bootstrap, topic)) == EDGES
    assert named(stored(cli.bootstrap, copy)) == (EDGES | SHORTENED_BY_LIBRDKAFKA if client == "librdkafka" else EDGES)


@pytest.mark.sample(of=lambda client, how: (client == "librdkafka") == (how == "its CRC is wrong"))
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
