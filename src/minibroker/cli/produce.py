"""`minibroker produce TOPIC`: lines or files as records, into any Kafka broker.

It never creates a topic, because a typing error would leave one behind. It exits with status 0 only when every record
is acknowledged.
"""

from __future__ import annotations

import json
import os
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Annotated, Any, BinaryIO, Literal, NamedTuple

import typer

from minibroker.admin.partitions import DEFAULT_MAX_MESSAGE_BYTES, no_such_partition
from minibroker.admin.produce_refusals import acknowledged_before, interrupted, refusal, unanswered
from minibroker.admin.topics import internal_refusal
from minibroker.any_cluster.bootstrap import Cluster, Setting
from minibroker.any_cluster.cluster import brokers_of, connected
from minibroker.any_cluster.logins import login_to
from minibroker.any_cluster.partition_offsets import configs_of_topics, partitions_of
from minibroker.any_cluster.record_clients import producing
from minibroker.any_cluster.record_lines import (
    Encoding,
    NewRecord,
    Template,
    decode,
    pieces_of,
    records_of,
    records_of_files,
    records_with_lengths,
)
from minibroker.any_cluster.topic_admin import internal_among
from minibroker.cli.liveness import gone_brokers_reported
from minibroker.cli.options import parse_delimiter, parse_header
from minibroker.cli.parameters import OutputOption, TopicArgument, changing_cluster
from minibroker.cli.progress import Advance, progress_bar
from minibroker.cli.signals import Interrupted, interruption
from minibroker.cli.terminal import complain
from minibroker.client.address import Address
from minibroker.client.errors import ClientError
from minibroker.errors import EXIT_OK, BadValue, CommandFailed
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.text import counted
from minibroker.registry_client import SchemaRegistry

DELIVERY_TIMEOUT_MS = 30_000
FLUSH_SECONDS = DELIVERY_TIMEOUT_MS / 1000 + 5  # by then every record is acknowledged or has failed
INTERRUPTED_SECONDS = 5.0  # for the acknowledgements of what was sent; a second signal does not wait
LINE_END = b"\n"

EPILOG = r"""Examples:

echo 'UA1545:on time' | minibroker produce flights --key-separator :

minibroker produce flights --file flights.jsonl --json  (lines such as {"key": "UA", "value": {"delay": 2}, \
"headers": {"source": "tower"}}; also "partition" and "timestamp")

minibroker produce orders --encode http://127.0.0.1:8081 --schema order.avsc --file orders.jsonl

minibroker produce pictures *.png --compression zstd

minibroker consume flights -o json | minibroker produce copy --json

minibroker consume pictures -f '%R%v' | minibroker produce copy --length-prefixed""".replace("\\\n", "")


app = typer.Typer()


@app.command("produce", epilog=EPILOG)
@changing_cluster
def produce(
    topic: TopicArgument,
    cluster: Cluster,
    files: Annotated[
        list[Path] | None,
        typer.Argument(metavar="FILE", help="Each becomes one record, instead of lines.", show_default=False),
    ] = None,
    file: Annotated[
        Path | None,
        typer.Option("--file", "-f", metavar="FILE", help="Read this file's lines instead of standard input."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", "-J", help="Each line is a JSON object.")] = False,
    delimiter: Annotated[
        bytes | None,
        typer.Option(
            "--delimiter",
            "-D",
            metavar="TEXT",
            parser=parse_delimiter,
            help=r"Ends a record instead of the line's end, such as \0 or \x1e.",
        ),
    ] = None,
    length_prefixed: Annotated[
        bool,
        typer.Option("--length-prefixed", "-R", help="Before each value: its size in 4 bytes, as `consume -f '%R%v'`."),
    ] = False,
    key: Annotated[
        str | None, typer.Option("--key", "-k", metavar="TEXT", help="Key of records that have none.")
    ] = None,
    key_separator: Annotated[
        bytes | None,
        typer.Option(
            "--key-separator",
            "-K",
            metavar="TEXT",
            parser=parse_delimiter,
            help="Separates key and value in a line.",
        ),
    ] = None,
    key_encoding: Annotated[
        Encoding, typer.Option("--key-encoding", help="How --key and the keys of lines are written.")
    ] = "text",
    value_encoding: Annotated[
        Encoding, typer.Option("--value-encoding", help="How the values of lines are written.")
    ] = "text",
    encode: Annotated[
        SchemaRegistry | None,
        typer.Option(
            "--encode",
            metavar="URL",
            parser=SchemaRegistry,
            help="Values are JSON: write them by a schema of the schema registry at URL, the latest of TOPIC-value.",
        ),
    ] = None,
    schema: Annotated[
        Path | None,
        typer.Option(
            "--schema", metavar="FILE", help="With --encode: register this schema (.avsc, .json, .proto) and use it."
        ),
    ] = None,
    headers: Annotated[
        list[Setting] | None,
        typer.Option(
            "--header",
            "-H",
            metavar="NAME=VALUE",
            parser=parse_header,
            help="Add this header to every record; may be repeated.",
        ),
    ] = None,
    partition: Annotated[
        int | None,
        typer.Option("--partition", "-p", min=0, metavar="N", help="Write to this partition; default: by key."),
    ] = None,
    compression: Annotated[
        Literal["none", "gzip", "snappy", "lz4", "zstd"] | None,
        typer.Option("--compression", "-z", help="Codec of the batches; none by default."),
    ] = None,
    acks: Annotated[
        Literal["all", "1", "0"] | None,
        typer.Option("--acks", help="Which replicas acknowledge: all in sync (the default), the leader, or none."),
    ] = None,
    output: OutputOption = "text",
) -> int:
    """Write lines to a topic, each a record; or files, each a record."""
    if as_json and key_separator is not None:
        raise BadValue("--json and --key-separator exclude each other: a JSON line names its key")
    if length_prefixed and (as_json or key_separator or delimiter):
        raise BadValue("--length-prefixed is for values: it takes no --json, --key-separator, --delimiter")
    if files and (file or as_json or key_separator or delimiter or length_prefixed):
        raise BadValue("FILE arguments become one record each; --file FILE reads the lines of one")
    if as_json and (key_encoding, value_encoding) != ("text", "text"):
        raise BadValue("--key-encoding and --value-encoding are not for JSON, which has bytes as base64:...")
    if (length_prefixed or files) and value_encoding != "text":
        raise BadValue("--value-encoding is for lines: it takes no --length-prefixed and no FILE")
    if schema is not None and encode is None:
        raise BadValue("--schema is registered in a schema registry; name it with --encode URL")
    template = Template(
        None if key is None else key_of(key, key_encoding),
        [(header.key, os.fsencode(header.value)) for header in headers or ()],
        partition,
        key_separator,
        as_json,
        key_encoding,
        value_encoding,
    )
    target = target_of(topic, cluster)
    with (
        interruption(),
        records_from(files or [], file, template, delimiter or LINE_END, length_prefixed=length_prefixed) as records,
    ):
        what = "line" if delimiter is None and not (files or length_prefixed) else "record"
        if encode is not None:
            records = encoded(records, encode.encoder(f"{topic}-value", schema))
        settings = settings_of(cluster, compression, acks)
        sent = send(records, target, cluster, settings, what)
    report(topic, sent, output, is_acknowledged=settings["acks"] != "0")
    return EXIT_OK


def encoded(records: Iterator[NewRecord], encode: Callable[[bytes], bytes]) -> Iterator[NewRecord]:
    """The records with their values encoded; null stays null. Raises CommandFailed."""
    for number, record in enumerate(records, 1):
        try:
            yield record if record.value is None else record._replace(value=encode(record.value))
        except CommandFailed as error:
            raise CommandFailed(f"record {number}: {error}") from None


def key_of(text: str, encoding: Encoding) -> bytes:
    """Raises BadValue."""
    try:
        return decode(os.fsencode(text), encoding)
    except ValueError:
        raise BadValue(f"--key {text!r} is not {encoding}; correct it, or --key-encoding") from None


def report(topic: str, sent: int, output: str, *, is_acknowledged: bool) -> None:
    if output == "json":
        print(json.dumps({"topic": topic, "records": sent}))
    elif is_acknowledged:
        print(f"produced: {counted(sent, 'record')} to {topic}")
    else:
        print(f"sent: {counted(sent, 'record')} to {topic}, without acknowledgement")


def settings_of(cluster: Cluster, compression: str | None, acks: str | None) -> dict[str, str]:
    """The producer's properties; an option goes before -X, and -X before our defaults."""
    acks = acks or cluster.properties.get("acks", "all")
    is_idempotent = "true" if acks in ("all", "-1") else "false"  # then a retry neither doubles nor reorders
    return {
        "acks": acks,
        "enable.idempotence": cluster.properties.get("enable.idempotence", is_idempotent),
        "request.timeout.ms": str(DELIVERY_TIMEOUT_MS // 2),
        "delivery.timeout.ms": str(DELIVERY_TIMEOUT_MS),
        **({"compression.type": compression} if compression else {}),
    }


# -- where the records come from


@contextmanager
def records_from(
    files: list[Path], file: Path | None, template: Any, delimiter: bytes, *, length_prefixed: bool
) -> Iterator[Iterator[NewRecord]]:
    if files:
        yield records_of_files(files, template)
        return
    with opened(file) as source, bar_for(source) as advance:
        if length_prefixed:
            yield records_with_lengths(source, template)
        elif delimiter == LINE_END:
            yield records_of(watched(source, advance), template)
        else:
            yield records_of(watched(pieces_of(source, delimiter), advance), template, by_line=False)


def opened(file: Path | None) -> Any:
    """The lines' source, as a context. Raises CommandFailed."""
    if file is None:
        if sys.stdin.isatty():
            print("one record per line; end with Ctrl-D", file=sys.stderr)
        return nullcontext(sys.stdin.buffer)
    try:
        return file.open("rb")
    except OSError as error:
        raise CommandFailed(f"cannot read {file}: {error.strerror}; name another with --file") from error


@contextmanager
def bar_for(source: BinaryIO) -> Iterator[Advance]:
    """A bar over the bytes of a file; the size of a pipe is unknown."""

    try:
        status = os.fstat(source.fileno())
        total = status.st_size if stat.S_ISREG(status.st_mode) else None
    except OSError:  # a source without a descriptor
        total = None
    with progress_bar("producing", total, unit="bytes", wanted=not source.isatty()) as advance:
        yield advance


def watched(lines: Any, advance: Advance) -> Iterator[bytes]:
    for line in lines:
        yield line
        advance(len(line))


# -- where they go


class Target(NamedTuple):
    """The topic, and what its brokers allow."""

    topic: str
    partitions: int
    max_message_bytes: int
    is_compacted: bool
    brokers: list[Address]


def target_of(topic: str, cluster: Cluster) -> Target:
    """Raises CommandFailed if the topic does not exist, or is internal."""
    with connected(cluster) as client:
        partitions = partitions_of(client, [topic])
        if internal_among(client, [topic]):
            raise CommandFailed(internal_refusal(topic, "only the broker writes to it"))
        configs = configs_of_topics(client, [topic], "max.message.bytes", "cleanup.policy").get(topic, {})
        return Target(
            topic,
            len(partitions),
            int(configs.get("max.message.bytes", DEFAULT_MAX_MESSAGE_BYTES)),
            "compact" in configs.get("cleanup.policy", ""),
            brokers_of(client),
        )


def send(records: Iterator[NewRecord], target: Target, cluster: Cluster, settings: dict[str, str], what: str) -> int:
    """Send all records, wait for their acknowledgements, return how many. Raises CommandFailed if one fails.

    `what` a record is to the user: a line, or a record.
    """
    with (
        producing(cluster, target.topic, batch_bytes=target.max_message_bytes, **settings) as producer,
        gone_brokers_reported(target.brokers, login_to(cluster)),
    ):
        try:
            send_all(records, target, producer)
            has_answers = producer.flush(FLUSH_SECONDS)
        except Interrupted:
            with suppress(ClientError, KafkaError):
                has_answers = producer.flush(INTERRUPTED_SECONDS)
                complain(interrupted(producer.acknowledged, has_answers=has_answers))
            raise
        except CommandFailed as failure:
            producer.flush(FLUSH_SECONDS)
            written = f"; {acknowledged_before(producer.acknowledged)}" if producer.acknowledged else ""
            raise CommandFailed(f"{failure}{written}") from None
        except KafkaError as error:
            if error.code != ErrorCode.REQUEST_TIMED_OUT:
                raise
            raise CommandFailed(unanswered(target.topic, producer.acknowledged)) from error
        if producer.refusal is not None:
            raise CommandFailed(
                refusal(
                    target.topic,
                    producer.refusal,
                    producer.acknowledged,
                    producer.refused,
                    what=what,
                    is_compacted=target.is_compacted,
                )
            )
        if not has_answers:
            raise CommandFailed(unanswered(target.topic, producer.acknowledged))
        return producer.acknowledged


def send_all(records: Iterator[NewRecord], target: Target, producer: Any) -> None:
    """Send them until one is refused. Raises CommandFailed."""
    for number, record in enumerate(records, 1):
        if record.partition is not None and record.partition >= target.partitions:
            advice = "correct it, or add partitions with `minibroker topics grow`"
            raise no_such_partition(target.topic, record.partition, target.partitions, advice)
        producer.send(record, number)
        if producer.refusal is not None:
            return
