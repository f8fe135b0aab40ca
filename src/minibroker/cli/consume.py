"""`minibroker consume TOPIC...`: records of any Kafka broker as lines, in a format or as JSON.

It stops where the partitions ended when it started, unless --follow is given. In a group it continues from the
committed offsets, and commits only what it has printed: within a second, and when a signal ends it.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import typer

from minibroker import patience
from minibroker.admin.positions import BEGINNING, Position
from minibroker.any_cluster.bootstrap import Cluster
from minibroker.any_cluster.logins import login_to
from minibroker.any_cluster.record_filter import fulfilling, parse_condition
from minibroker.any_cluster.record_text import Access, compile_format, harmless, json_renderer
from minibroker.cli.completion import group_names
from minibroker.cli.liveness import gone_brokers_reported
from minibroker.cli.options import Output, numbers_of
from minibroker.cli.parameters import (
    OutputOption,
    PartitionsOption,
    ReadCommittedOption,
    TopicsArgument,
    on_cluster,
    position_option,
)
from minibroker.cli.progress import progress_bar
from minibroker.cli.record_reader import GroupReader, Reader, Selection
from minibroker.cli.signals import interruption
from minibroker.errors import EXIT_FAILED, EXIT_OK, BadValue
from minibroker.registry_client import SchemaRegistry

VALUE_LINE = r"%v\n"

EPILOG = r"""Format, with the fields of kcat and rpk: %t topic, %p partition, %o offset, %k key, %v or %s value, \
%h headers, %H their number, %T or %d timestamp in ms, %e leader epoch, %K the size of the key, %V or %S of the value \
(-1 for none), %R the size of the value as 4 bytes, %% a percent sign, \n, \t, \r, \0, \xNN. \
%k{hex}, %v{base64} and the like encode bytes.

Examples:

minibroker consume flights --follow --from end

minibroker consume flights --from @2013-01-01T06:00:00Z --to @2013-01-01T07:00:00Z -f '%p %o %k: %v\n'

minibroker consume flights --group reports -o json | jq .value

minibroker consume flights --where 'value.delay>60' --where key=UA

minibroker consume flights --decode http://127.0.0.1:8081 -o json

minibroker consume --regex 'flights-.*' -f '%t %v\n'""".replace("\\\n", "")


app = typer.Typer()


@app.command("consume", epilog=EPILOG)
@on_cluster
def consume(
    topics: TopicsArgument,
    cluster: Cluster,
    regex: Annotated[
        bool,
        typer.Option("--regex", "-r", help="Each TOPIC is a regular expression for whole names of topics."),
    ] = False,
    start: Annotated[Position, position_option("--from", does="Start at", default="beginning")] = BEGINNING,
    end: Annotated[Position | None, position_option("--to", does="Stop before")] = None,
    follow: Annotated[bool, typer.Option("--follow", "-F", help="Wait for more, until Ctrl-C.")] = False,
    count: Annotated[
        int | None, typer.Option("--count", "-n", metavar="N", min=1, help="Stop after N records.")
    ] = None,
    partitions: PartitionsOption = None,
    group: Annotated[
        str | None,
        typer.Option(
            "--group",
            "-g",
            metavar="NAME",
            autocompletion=group_names,
            help="Join this group, and commit offsets.",
        ),
    ] = None,
    text_format: Annotated[
        str | None, typer.Option("--format", "-f", metavar="FORMAT", help=rf"See below; {VALUE_LINE} by default.")
    ] = None,
    read_committed: ReadCommittedOption = False,
    where: Annotated[
        list[str] | None,
        typer.Option(
            "--where",
            "-w",
            metavar="CONDITION",
            help="Only records that fulfil it, such as key=UA, value~late, header.source=tower or, in JSON, "
            "value.delay>60; may be repeated.",
        ),
    ] = None,
    decode: Annotated[
        SchemaRegistry | None,
        typer.Option(
            "--decode",
            metavar="URL",
            parser=SchemaRegistry,
            help="Print the records of serializers as JSON, by the schema registry at URL; others as they are.",
        ),
    ] = None,
    output: OutputOption = "text",
) -> int:
    """Print the records of topics."""
    check_format(text_format, output)
    if group is not None and (end or partitions or start.kind not in ("beginning", "end") or start.value):
        raise BadValue(
            "--group continues from the committed offsets: it takes no --partition, no --to, and --from, for "
            "partitions without a commit, only as beginning or end; `minibroker groups reset` moves a group"
        )
    if follow and end is not None:
        raise BadValue("--follow and --to exclude each other: --follow has no end")
    if where and group is not None and count is not None:
        raise BadValue("--where with --group commits all that it reads, and cannot stop after --count; leave one out")
    check_patterns(topics if regex else [])
    conditions = [parse_condition(each) for each in where or ()]
    wanted = Selection(topics, regex, numbers_of(partitions), start, end, read_committed)
    reader = Reader(cluster, wanted) if group is None else GroupReader(cluster, wanted, group)
    with (
        interruption() as signals,
        reader.opened(),
        reading_on(),
        gone_brokers_reported(reader.brokers, login_to(cluster)),
        printing(reader.expected(None if conditions else count), wanted=not follow) as show,
        signals.deferred(),
    ):
        renders: dict[Any, Any] = {}
        left = count
        for records, of_client in reader.batches(None if conditions else count, follow=follow):
            access = of_client if decode is None else decoding(decode, of_client)
            chosen = fulfilling(records, access, conditions)[:left] if conditions else records
            if records:
                if of_client not in renders:
                    renders[of_client] = renderer(text_format, output, access)
                show(chosen, renders[of_client], len(records))
            reader.printed()
            signals.check()
            if conditions and left is not None:
                left -= len(chosen)
                if left == 0:
                    break
    return EXIT_FAILED if reader.unreadable else EXIT_OK


def decoding(registry: SchemaRegistry, access: Access) -> Access:
    """Access to records whose keys and values are decoded."""
    return access._replace(
        key=lambda record: registry.shown(access.key(record)),
        value=lambda record: registry.shown(access.value(record)),
    )


def check_format(text_format: str | None, output: Output) -> None:
    """Raises BadValue."""
    if text_format is not None and output == "json":
        raise BadValue("--format and -o json exclude each other: JSON has its own form; leave one of them out")
    compile_format(text_format or "")


def check_patterns(patterns: list[str]) -> None:
    """Raises BadValue."""
    for pattern in patterns:
        try:
            re.compile(pattern)
        except re.error as error:
            raise BadValue(f"{pattern!r} is not a regular expression: {error}") from error


def renderer(text_format: str | None, output: Output, access: Any) -> Any:
    if output == "json":
        render = json_renderer(access)
    else:
        render = compile_format(VALUE_LINE if text_format is None else text_format, access)
    if not sys.stdout.isatty():
        return render
    marks = {} if text_format is not None or output == "json" else absences()
    return lambda record: marks.get(access.value(record)) or harmless(render(record))


def absences() -> dict[bytes | None, bytes]:
    """How a terminal shows a record without a value, and an empty one: unlike any text."""
    is_plain = "NO_COLOR" in os.environ or os.environ.get("TERM") == "dumb"
    before, behind = ("(", ")\n") if is_plain else ("\x1b[2m", "\x1b[0m\n")
    return {data: f"{before}{word}{behind}".encode() for data, word in ((None, "null"), (b"", "empty"))}


@contextmanager
def reading_on() -> Iterator[None]:
    """Records may come for as long as they like."""
    patience.lift()
    yield


@contextmanager
def printing(total: int | None, *, wanted: bool) -> Iterator[Any]:
    """Yield a function that prints records; a bar shows the progress if they do not go to the terminal."""
    with progress_bar("consuming", total, unit="records", wanted=wanted and not sys.stdout.isatty()) as advance:

        def show(records: list[Any], render: Any, read: int) -> None:
            sys.stdout.buffer.write(b"".join(map(render, records)))
            sys.stdout.buffer.flush()
            advance(read)

        yield show
