"""`minibroker produce TOPIC`: lines as records, from a file or from standard input, into any Kafka broker.

It never creates a topic, because a typing error would leave one behind. It exits with status 0 only when every record
is acknowledged.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO, Literal

import typer

from minibroker.cli.completion import topic_names
from minibroker.cli.failures import EXIT_OK, CommandFailed
from minibroker.cli.options import (
    DEFAULT_BOOTSTRAP,
    Bootstrap,
    BootstrapOption,
    OutputOption,
    Setting,
    parse_header,
)

if TYPE_CHECKING:
    from minibroker.cli.progress import Advance
    from minibroker.cli.record_lines import NewRecord

DELIVERY_TIMEOUT_MS = 30_000
FLUSH_SECONDS = DELIVERY_TIMEOUT_MS / 1000 + 5  # by then every record is acknowledged or has failed
# The broker limits the size of a record and reports it; the client's own limit must not be lower.
MAX_REQUEST_BYTES = 100 * 1024 * 1024

EPILOG = """Examples:

echo 'UA1545:on time' | minibroker produce flights --key-separator :

minibroker produce flights --file flights.jsonl --json  (lines such as {"key": "UA", "value": {"delay": 2}, \
"headers": {"source": "tower"}}; also "partition" and "timestamp")

minibroker consume flights -o json | minibroker produce copy --json"""


def produce(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", show_default=False, autocompletion=topic_names)],
    file: Annotated[
        Path | None, typer.Option("--file", "-f", metavar="FILE", help="Read this file instead of standard input.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", "-J", help="Each line is a JSON object.")] = False,
    key: Annotated[
        str | None, typer.Option("--key", "-k", metavar="TEXT", help="Key of records that have none.")
    ] = None,
    key_separator: Annotated[
        str | None, typer.Option("--key-separator", "-K", metavar="TEXT", help="Separates key and value in a line.")
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
    compression: Annotated[Literal["none", "gzip", "lz4"], typer.Option("--compression", "-z")] = "none",
    acks: Annotated[
        Literal["all", "1"],
        typer.Option("--acks", help="Which replicas must acknowledge: all in sync, or the leader."),
    ] = "all",
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    output: OutputOption = "text",
) -> int:
    """Write lines to a topic, each a record."""
    from minibroker.cli.record_lines import Template, records_of

    if as_json and key_separator is not None:
        raise typer.BadParameter("--json and --key-separator exclude each other: a JSON line names its key")
    template = Template(
        None if key is None else key.encode(),
        [(header.key, header.value.encode()) for header in headers or ()],
        partition,
        key_separator.encode() if key_separator else None,
        as_json,
    )
    settings = {
        "compression_type": None if compression == "none" else compression,
        "acks": "all" if acks == "all" else 1,
        "enable_idempotence": acks == "all",  # then a retry neither doubles nor reorders
    }
    with opened(file) as source, bar_for(source) as advance:
        partitions = partitions_in(topic, bootstrap)
        sent = send(records_of(watched(source, advance), template), topic, partitions, bootstrap, settings)
    print(json.dumps({"topic": topic, "records": sent}) if output == "json" else f"produced: {sent} to {topic}")
    return EXIT_OK


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
    import os
    import stat

    from minibroker.cli.progress import progress_bar

    try:
        status = os.fstat(source.fileno())
        total = status.st_size if stat.S_ISREG(status.st_mode) else None
    except OSError:  # a source without a descriptor
        total = None
    with progress_bar("producing", total, unit="bytes", wanted=not source.isatty()) as advance:
        yield advance


def watched(source: BinaryIO, advance: Advance) -> Iterator[bytes]:
    for line in source:
        yield line
        advance(len(line))


def partitions_in(topic: str, bootstrap: Bootstrap) -> int:
    """Raises CommandFailed if the topic does not exist."""
    from minibroker.cli.cluster import connected
    from minibroker.cli.partition_offsets import partitions_of

    with connected(bootstrap.addresses) as client:
        return len(partitions_of(client, [topic]))


def send(
    records: Iterator[NewRecord], topic: str, partitions: int, bootstrap: Bootstrap, settings: dict[str, Any]
) -> int:
    """Send all records, wait for their acknowledgements, return how many. Raises CommandFailed if one fails."""
    from minibroker.cli.cluster import errors, producing
    from minibroker.cli.partition_offsets import no_such_partition

    counts: Counter[str] = Counter()
    refusals: list[BaseException] = []

    def count_sent(metadata: object) -> None:
        counts["acked"] += 1

    settings |= {
        "max_request_size": MAX_REQUEST_BYTES,
        "request_timeout_ms": DELIVERY_TIMEOUT_MS // 2,
        "delivery_timeout_ms": DELIVERY_TIMEOUT_MS,
        "max_block_ms": DELIVERY_TIMEOUT_MS,
        "linger_ms": 5,
    }
    with producing(bootstrap.addresses, **settings) as producer:
        try:
            for record in records:
                if record.partition is not None and record.partition >= partitions:
                    advice = "correct it, or add partitions with `minibroker topics grow`"
                    raise no_such_partition(topic, record.partition, partitions, advice)
                sending = producer.send(
                    topic, record.value, record.key, record.headers, record.partition, record.timestamp_ms
                )
                sending.add_callback(count_sent).add_errback(refusals.append)
                if refusals:
                    break
            producer.flush(timeout=FLUSH_SECONDS)
        except CommandFailed as failure:
            producer.flush(timeout=FLUSH_SECONDS)
            written = f"; {acknowledged_before(counts['acked'])}" if counts["acked"] else ""
            raise CommandFailed(f"{failure}{written}") from None
        except errors.KafkaTimeoutError as error:
            raise CommandFailed(unanswered(topic, counts["acked"])) from error
    if refusals:
        raise CommandFailed(refusal(topic, refusals[0], counts["acked"]))
    return counts["acked"]


def unanswered(topic: str, acked: int) -> str:
    from minibroker.protocol.text import counted

    return (
        f"topic {topic} acknowledges no more records; check its brokers with `minibroker health`; "
        f"{counted(acked, 'record')} acknowledged, some of the rest may be written"
    )


def acknowledged_before(acked: int) -> str:
    from minibroker.protocol.text import counted

    return f"{counted(acked, 'record')} before it acknowledged"


def refusal(topic: str, error: BaseException, acked: int) -> str:
    from minibroker.cli.cluster import error_name, errors

    if isinstance(error, errors.KafkaTimeoutError):
        return unanswered(topic, acked)
    code = getattr(error, "errno", None)
    reason = error_name(code) if isinstance(error, errors.BrokerResponseError) and code else str(error)
    advice = {
        errors.MessageSizeTooLargeError.errno: "see max.message.bytes in `minibroker configs describe --help`",
        errors.RecordListTooLargeError.errno: "see max.message.bytes in `minibroker configs describe --help`",
        errors.TopicAuthorizationFailedError.errno: "the cluster's ACLs deny this client; ask its administrator",
    }.get(code, "see the broker's log")
    return f"topic {topic} refuses a record: {reason}; {advice}; {acknowledged_before(acked)}"
