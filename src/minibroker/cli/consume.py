"""`minibroker consume TOPIC`: records of any Kafka broker as lines, in a format or as JSON.

It stops where the partitions ended when it started, unless --follow is given. In a group it continues from the
committed offsets, and commits only what it has printed: within a second, and when a signal ends it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import typer

from minibroker.cli.completion import group_names, topic_names
from minibroker.cli.failures import EXIT_OK
from minibroker.cli.options import DEFAULT_BOOTSTRAP, BootstrapOption, OutputOption
from minibroker.cli.positions import BEGINNING, HOW, Position, parse_position
from minibroker.cli.signals import interruption

VALUE_LINE = r"%v\n"

EPILOG = r"""Format: %t topic, %p partition, %o offset, %k key, %v value, %h headers, %T timestamp in ms, \
%K and %V the sizes of key and value, %% a percent sign, \n, \t, \xNN.

Examples:

minibroker consume flights --follow --from end

minibroker consume flights --from @2013-01-01T06:00:00Z -n 10 -f '%p %o %k: %v\n'

minibroker consume flights --group reports -o json | jq .value""".replace("\\\n", "")


def consume(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", show_default=False, autocompletion=topic_names)],
    position: Annotated[
        Position,
        typer.Option(
            "--from", metavar="POSITION", parser=parse_position, help=f"Start at {HOW}.", show_default="beginning"
        ),
    ] = BEGINNING,
    follow: Annotated[bool, typer.Option("--follow", "-F", help="Wait for more, until Ctrl-C.")] = False,
    count: Annotated[
        int | None, typer.Option("--count", "-n", metavar="N", min=1, help="Stop after N records.")
    ] = None,
    partition: Annotated[
        int | None, typer.Option("--partition", "-p", metavar="N", min=0, help="Only this partition.")
    ] = None,
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
    text_format: Annotated[str, typer.Option("--format", "-f", metavar="FORMAT", help="See below.")] = VALUE_LINE,
    read_committed: Annotated[
        bool, typer.Option("--read-committed", help="Skip open and aborted transactions.")
    ] = False,
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    output: OutputOption = "text",
) -> int:
    """Print a topic's records."""
    from minibroker.cli.record_text import as_json, compile_format

    render = as_json if output == "json" else compile_format(text_format)
    if group is not None and (partition is not None or position.kind not in ("beginning", "end") or position.value):
        raise typer.BadParameter(
            "--group continues from the committed offsets: it takes no --partition, and --from, for partitions without "
            "a commit, only as beginning or end; `minibroker groups reset` moves a group"
        )
    from minibroker.cli.record_reader import GroupReader, Reader

    addresses = bootstrap.addresses
    if group is None:
        reader: Any = Reader(addresses, topic, partition, position, committed_only=read_committed)
    else:
        reader = GroupReader(addresses, topic, group, position, committed_only=read_committed)
    with (
        interruption() as signals,
        reader.opened(),
        printing(reader.expected(count), wanted=not follow) as show,
        signals.deferred(),
    ):
        for records in reader.batches(count, follow=follow):
            if records:
                show(records, render)
            reader.printed(records)
            signals.check()
    return EXIT_OK


@contextmanager
def printing(total: int | None, *, wanted: bool) -> Iterator[Any]:
    """Yield a function that prints records; a bar shows the progress if they do not go to the terminal."""
    from minibroker.cli.progress import progress_bar
    from minibroker.cli.record_text import harmless

    to_terminal = sys.stdout.isatty()
    with progress_bar("consuming", total, unit="records", wanted=wanted and not to_terminal) as advance:

        def show(records: list[Any], render: Any) -> None:
            lines = b"".join(map(render, records))
            sys.stdout.buffer.write(harmless(lines) if to_terminal else lines)
            sys.stdout.buffer.flush()
            advance(len(records))

        yield show
