"""The archive: each record of a topic once in one of two tables, through crashes, compaction and lost records."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlparse

import pyarrow.parquet as pq  # type: ignore[import-untyped]
import pytest
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from minibroker import Broker
from minibroker.registry_client import SchemaRegistry
from minibroker.spark_jobs import archive
from minibroker.spark_jobs.archive import BYTES, Values
from minibroker.spark_jobs.errors import JobFailed
from minibroker.spark_jobs.hadoop_files import HadoopFiles
from minibroker.spark_jobs.query_source import lost
from minibroker.spark_jobs.sink_table import SinkTable
from tests.spark_jobs.kafka_rows import KAFKA_ROW

if TYPE_CHECKING:
    from tests.spark_jobs.conftest import Kafka

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(300)]

HOUR_MS = 3_600_000
AVRO = json.dumps(
    {"type": "record", "name": "R", "fields": [{"name": name, "type": ["null", "long"]} for name in ("a", "b")]}
)
WIDER = json.dumps(json.loads(AVRO) | {"fields": [*json.loads(AVRO)["fields"], {"name": "c", "type": "string"}]})


def rows_of(spark: SparkSession, values: Sequence[bytes | None], decoding: Values, **late: Any) -> list[Row]:
    numbered = [
        ("t", 0, offset, offset * HOUR_MS, 0, None, value if value is None else bytearray(value), None)
        for offset, value in enumerate(values)
    ]
    records = spark.createDataFrame(numbered, KAFKA_ROW.replace("timestamp timestamp", "timestamp long"))
    records = records.withColumn("timestamp", F.timestamp_millis("timestamp"))
    return archive.transform(records, decoding, **late).orderBy("offset").collect()


def test_a_record_keeps_its_fields_and_gets_its_hour(spark: SparkSession) -> None:
    *_, row = rows_of(spark, [b""] * 26, BYTES)

    assert (row.offset, str(row.date), row.hour, row.value, row.reason) == (25, "1970-01-02", 1, b"", None)
    assert "record" not in row


JSON = Values("json", "a int, b string")
FRAME = b"\0\0\0\0\7"


@pytest.mark.parametrize(
    ("decoding", "values"),
    [
        (
            JSON,
            {
                b'{"a": 1, "b": "x"}': (1, "x"),
                b"{}": (None, None),
                FRAME + b'{"a": 1}': (1, None),
                b'{"a": "no number"}': None,
                b"": None,
                b"null": None,
                b"\xff\xfe": None,
            },
        ),
        (JSON._replace(framing="none"), {b'{"a": 1}': (1, None), FRAME + b'{"a": 1}': None}),
        (JSON._replace(framing="confluent"), {FRAME + b'{"a": 1}': (1, None), b'{"a": 1}': None}),
        (
            Values("avro", AVRO),
            {
                b"\2\2\2\4": (1, 2),
                FRAME + b"\2\2\2\4": (1, 2),
                FRAME + b"\0\0": (None, None),
                FRAME: None,
                b"junk": None,
            },
        ),
        (Values("avro", AVRO, framing="none"), {b"\0\0\0\0\0\0\0": (None, None)}),
        (Values("avro", AVRO, {7: WIDER}), {FRAME + b"\2\2\2\4\2x": (1, 2), b"\0\0\0\0\6\0\0": None}),
    ],
    ids=lambda part: f"{part.format} {part.framing} {list(part.writer_schemas)}" if isinstance(part, Values) else "",
)
def test_a_value_that_cannot_be_decoded_is_marked(
    spark: SparkSession, decoding: Values, values: dict[bytes, tuple[Any, ...] | None]
) -> None:
    *rows, without_value = rows_of(spark, [*values, None], decoding)

    assert {row.value: row.record and tuple(row.record) for row in rows} == values
    assert [row.reason for row in rows] == [None if read else "unreadable" for read in values.values()]
    assert without_value.reason is None
    if decoding.framing != "none":
        assert [row.schema_id for row in rows if row.value.startswith(FRAME)] == [7] * sum(
            value.startswith(FRAME) for value in values
        )


def test_a_record_older_than_the_watermark_is_late(spark: SparkSession) -> None:
    rows = rows_of(spark, [b"{}", b"?", b"{}", b"?"], JSON, late_before=F.timestamp_millis(F.lit(2 * HOUR_MS)))

    assert [row.reason for row in rows] == ["late", "unreadable", None, "unreadable"]


def test_records_are_lost_where_the_topic_begins_later_or_was_made_anew() -> None:
    reached = {"t": {0: 5, 1: 5, 2: 5, 3: 5}, "gone": {0: 3}}

    found = list(lost(reached, {"t": {0: 5, 1: 1200, 2: 0, 3: 0}}, {"t": {0: 9, 1: 1300, 2: 4, 3: 5}}))

    assert [each.is_anew for each in found] == [False, True, False]

    assert [str(each).partition(": ")[0] for each in found] == ["t-1", "t-2", "gone-0"]
    assert "offsets 5 to 1,199 (1,195)" in str(found[0])


class Archived:
    """The job's options for one topic, and what is then in its tables."""

    def __init__(self, spark: SparkSession, kafka: Kafka, topic: str, folder: Path) -> None:
        self.spark = spark
        self.output = folder / "archive"
        (schema := folder / "schema").write_text("n int")
        self.command_line = ["-b", kafka.bootstrap, "--subscribe", topic, "--output", str(self.output)]
        self.command_line += ["--value-format", "json", "--schema", str(schema), "--watermark", "1 second", "--json"]

    def run(self, *more: str) -> None:
        arguments = archive.options().parse_args([*self.command_line, *more])
        assert archive.run(self.spark, arguments, threading.Event()) == 0

    def read(self, name: str) -> list[Row]:
        # As anyone would, without the job.
        return self.spark.read.parquet(f"{self.output}/{name}").orderBy("partition", "offset").collect()


@pytest.fixture
def archived(spark: SparkSession, kafka: Kafka, tmp_path: Path) -> Archived:
    topic = kafka.create_topic(partitions=2)
    kafka.produce(topic, [json.dumps({"n": number}) for number in range(20)])
    kafka.produce(topic, ["?", *(json.dumps({"n": number}) for number in range(9)), "?"], partition=1)
    return Archived(spark, kafka, topic, tmp_path)


@pytest.mark.nightly  # the nemesis beside it kills drivers anywhere
def test_each_record_is_in_one_table_through_a_crash_between_the_two(
    archived: Archived, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    add = SinkTable.add

    def crash_at_the_second_quarantine(table: SinkTable, batch: int, rows: DataFrame) -> DataFrame | None:
        if batch == 2 and table.files.folder.endswith("quarantine"):
            raise RuntimeError("crashed")
        return add(table, batch, rows)

    monkeypatch.setattr(SinkTable, "add", crash_at_the_second_quarantine)
    with pytest.raises(JobFailed, match="crashed"):
        archived.run("--max-offsets-per-trigger", "8")
    monkeypatch.setattr(SinkTable, "add", add)
    archived.run("--max-offsets-per-trigger", "8", "--picture", str(tmp_path / "hours.png"))

    good, bad = archived.read("records"), archived.read("quarantine")
    places = [(row.partition, row.offset) for row in (*good, *bad)]
    assert sorted(places) == [(0, offset) for offset in range(20)] + [(1, offset) for offset in range(11)]
    assert [row.value for row in bad if row.reason == "unreadable"] == [b"?", b"?"]
    assert all(json.loads(row.value)["n"] == row.record.n for row in good)
    *batches, summary = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    late = sum(row.reason == "late" for row in bad)
    assert summary | {"archived": len(good), "late": late, "unreadable": 2} == summary
    assert 0 < late < 9
    assert [facts["batch"] for facts in batches][-2:] == [2, 3]
    assert all(facts["records"] <= 9 for facts in batches)  # some eight, though both tables read them
    assert (tmp_path / "hours.png").stat().st_size > 5000


def test_an_archive_goes_on_after_retention_only_if_told_to(
    archived: Archived, kafka: Kafka, capsys: pytest.CaptureFixture[str]
) -> None:
    archived.run()
    topic = archived.command_line[3]
    kafka.produce(topic, ["{}"] * 7)
    kafka.delete_records(topic, partition=0, before=25)

    with pytest.raises(JobFailed, match=rf"{topic}-0: offsets 20 to 24 \(5\) .*--fail-on-data-loss false"):
        archived.run()
    capsys.readouterr()
    archived.run("--fail-on-data-loss", "false")

    first = json.loads(capsys.readouterr().out.splitlines()[0])
    assert first == {"lost": {"topic": topic, "partition": 0, "first": 20, "next": 25}}
    every = [*archived.read("records"), *archived.read("quarantine")]
    assert sorted(row.offset for row in every if row.partition == 0) == [*range(20), 25, 26]


def test_a_checkpoint_of_another_archive_is_refused(archived: Archived, tmp_path: Path) -> None:
    archived.run()

    with pytest.raises(JobFailed, match=r"that .*elsewhere knows nothing of"):
        archived.run("--checkpoint", str(tmp_path / "elsewhere"))
    archived.output.rename(tmp_path / "moved")
    with pytest.raises(JobFailed, match="lacks micro-batches"):
        archived.run("--checkpoint", str(tmp_path / "moved" / "_checkpoint"))


def numbers(spark: SparkSession, folder: str) -> Counter[int]:
    return Counter(row.offset for row in spark.read.parquet(folder).select("offset").collect())


def offsets_by_file(table: SinkTable) -> list[list[int]]:
    paths = [urlparse(file.path).path for file in table.files.below("topic=007") if file.path.endswith(".parquet")]
    assert len(paths) == 20
    return [pq.read_table(path, columns=["offset"], partitioning=None)["offset"].to_pylist() for path in paths]


class Killed(BaseException):
    """As kill -9: no handler runs."""


@pytest.mark.nightly
def test_a_reader_sees_each_record_once_wherever_a_compaction_is_killed(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = SinkTable(spark, str(tmp_path / "table"))
    columns = "topic string, partition int, offset long, date string, hour int"
    for batch in range(10):
        rows = [("007", 0, 4 * batch + number, "2026-01-01", number % 2) for number in reversed(range(4))]
        table.add(batch, spark.createDataFrame(rows, columns).coalesce(1))
    assert all(offsets == sorted(offsets) for offsets in offsets_by_file(table))  # though rows came in reverse
    every = Counter(range(40))
    steps = 0

    def killed_at(step: int) -> bool:
        nonlocal steps
        steps = 0

        def dying(method: Any) -> Any:
            def call(*arguments: Any) -> Any:
                nonlocal steps
                steps += 1
                if steps == step:
                    raise Killed
                return method(*arguments)

            return call

        with monkeypatch.context() as patch:
            for name in ("replace", "move", "delete"):
                patch.setattr(HadoopFiles, name, dying(getattr(HadoopFiles, name)))
            try:
                table.compact(below_bytes=1 << 20, keep_replaced_seconds=0)
            except Killed:
                return True
        return False

    step = 1
    while killed_at(step):
        assert numbers(spark, table.files.folder) == every, f"after a kill at step {step}"
        step += 1

    assert step > 6
    table.compact(below_bytes=1 << 20, keep_replaced_seconds=0)
    assert numbers(spark, table.files.folder) == every
    left = [file.path for file in table.files.below("topic=007") if file.path.endswith(".parquet")]
    assert len(left) == 2  # one an hour
    assert table.files.names("_compactions") == []
    frame = table.read()
    assert frame is not None
    assert {row.topic for row in frame.select("topic").distinct().collect()} == {"007"}


def test_values_are_read_by_the_schemas_of_a_registry_also_by_one_that_came_meanwhile(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    older, newer = (tmp_path / f"{name}.avsc" for name in ("older", "newer"))
    fields = [{"name": "id", "type": "int"}, {"name": "price", "type": "int", "default": 9}]
    for path, number in ((older, 1), (newer, 2)):
        path.write_text(json.dumps({"type": "record", "name": "Order", "fields": fields[:number]}))

    with Broker(schema_registry=True) as broker:
        broker.create_topic("orders")
        assert broker.schema_registry_url is not None
        registry = SchemaRegistry(broker.schema_registry_url)
        encode = registry.encoder("orders-value", older)
        broker.produce("orders", [encode(b'{"id": 1}'), b"\0\0\0\0\x63\2"])
        asked = {"-b": broker.bootstrap_servers, "--subscribe": "orders", "--output": f"{tmp_path}/out"}
        asked |= {"--value-format": "avro", "--schema-registry": broker.schema_registry_url, "--schema": str(newer)}
        arguments = archive.options().parse_args([word for option in asked.items() for word in option])
        values, subjects = archive.values_of(arguments, archive.subjects_of(arguments)), archive.subjects_of(arguments)
        assert subjects is not None and list(subjects.schemas()) == list(values.writer_schemas) == [1]
        assert archive.run(spark, arguments, threading.Event()) == 0
        broker.produce("orders", [registry.encoder("orders-value", newer)(b'{"id": 2, "price": 5}')])
        assert list(subjects.schemas()) == [1, 2]
        arguments.schema = None  # the latest, then
        assert archive.run(spark, arguments, threading.Event()) == 0

    rows = spark.read.parquet(str(tmp_path / "out/records")).orderBy("offset").collect()
    assert [(row.schema_id, row.record.id, row.record.price) for row in rows] == [(1, 1, 9), (2, 2, 5)]
    apart = spark.read.parquet(str(tmp_path / "out/quarantine")).collect()
    assert [(row.offset, row.reason, row.schema_id) for row in apart] == [(1, "unreadable", 99)]
