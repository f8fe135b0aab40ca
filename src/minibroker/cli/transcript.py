"""`minibroker transcript FILE`: print the requests that a broker received and its responses, field by field.

This module reads arguments, chooses and prints; the file is read in `transcript/exchanges.py`.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

from minibroker.cli.parameters import ApiOption, ClientIdOption, ConnectionOption, OutputOption
from minibroker.cli.progress import progress_bar
from minibroker.cli.terminal import complain
from minibroker.errors import EXIT_OK, BadValue, CommandFailed
from minibroker.protocol.api import API_TABLE
from minibroker.protocol.guesses import next_step
from minibroker.protocol.text import counted, json_text
from minibroker.transcript.exchanges import Event, Exchange, ExchangeReader
from minibroker.transcript.fields import api_named, as_object, errors_of, request_body, response_body, topics_of
from minibroker.transcript.file import TranscriptError
from minibroker.transcript.text import FULL, SHORT, Line, brief_line, event_line, exchange_lines, plain

POLL_SECONDS = 0.1
OF_EXCHANGE = (
    "time_ns", "connection", "address", "client_id", "api", "version",
    "correlation_id", "outcome", "reason", "latency_ms", "request_bytes", "response_bytes",
)  # fmt: skip

EPILOG = """`minibroker serve --transcript FILE` records a transcript, and so does Broker(transcript=True) in a test.

An exchange has the seconds since the transcript began, the sizes of request and response, and the time until the \
response was ready. A long poll appears when it ends. A fetch session names only what changes in it: --topic does not \
find all of its fetches.

Examples:

minibroker transcript broker.transcript --brief

minibroker transcript broker.transcript --api produce --api fetch --topic flights

minibroker transcript broker.transcript --follow --errors

minibroker transcript broker.transcript -o json | jq 'select(.latency_ms > 100)'"""


class Choice(NamedTuple):
    """Chooses the exchanges to show."""

    api_keys: frozenset[int]
    client_id: str | None
    connection: int | None
    topic: str | None
    errors: bool

    def has(self, exchange: Exchange) -> bool:
        if self.api_keys and exchange.head.api_key not in self.api_keys:
            return False
        if self.client_id not in (None, exchange.client_id) or self.connection not in (None, exchange.connection):
            return False
        if self.topic is None and not self.errors:
            return True
        asked, answered = request_body(exchange), response_body(exchange)
        if self.topic is not None and self.topic not in topics_of(asked, answered):
            return False
        is_bad = exchange.outcome == "refused" or asked.problem or answered.problem
        return not self.errors or bool(is_bad) or any(errors_of(answered.fields))

    def has_event(self, event: Event) -> bool:
        """Whether to show an event: only a choice by connection, or none, includes events."""
        if self.api_keys or self.client_id is not None or self.topic is not None or self.errors:
            return False
        return self.connection in (None, event.connection)


def parse_apis(names: list[str]) -> frozenset[int]:
    """Raises BadValue."""
    found = {name: api_named(name) for name in names}
    for name, key in found.items():
        if key is None:
            step = next_step(
                name, (api.name for api in API_TABLE.values()), "write a name such as Fetch or ListOffsets"
            )
            raise BadValue(f"{name!r} is not a known API; {step}")
    return frozenset(key for key in found.values() if key is not None)


app = typer.Typer()


@app.command("transcript", epilog=EPILOG)
def transcript(
    file: Annotated[Path, typer.Argument(metavar="FILE", show_default=False)],
    api: ApiOption = None,
    client_id: ClientIdOption = None,
    connection: ConnectionOption = None,
    topic: Annotated[
        str | None, typer.Option("--topic", "-t", metavar="NAME", help="Only exchanges that name this topic.")
    ] = None,
    errors: Annotated[bool, typer.Option("--errors", help="Only exchanges with an error.")] = False,
    count: Annotated[
        int | None, typer.Option("--count", "-n", metavar="N", min=1, help="Stop after N exchanges.")
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", "-F", help="Wait for more, until Ctrl-C.")] = False,
    brief: Annotated[bool, typer.Option("--brief", help="Print one line per exchange.")] = False,
    full: Annotated[bool, typer.Option("--full", help="Do not shorten anything.")] = False,
    output: OutputOption = "text",
) -> int:
    """Print the requests that a broker received and its responses, field by field."""
    choice = Choice(parse_apis(api or []), client_id, connection, topic, errors)
    show = json_shower(full=full) if output == "json" else text_shower(brief=brief, full=full)
    shown = 0
    begin_ns: int | None = None
    for item in items_of(file, follow=follow):
        begin_ns = item.time_ns if begin_ns is None else begin_ns
        if isinstance(item, Event):
            if choice.has_event(item):
                show(item, begin_ns)
        elif choice.has(item):
            show(item, begin_ns)
            shown += 1
            if shown == count:
                break
    return EXIT_OK


Item = Exchange | Event
Show = Callable[[Item, int], None]  # with the time in ns at which the transcript began


def items_of(path: Path, *, follow: bool) -> Iterator[Item]:
    """The items of the file, and with `follow` those written to it later. Raises CommandFailed."""
    reading = opened(path)
    try:
        yield from followed(reading) if follow else read_once(reading, path.stat().st_size)
        if reading.torn_bytes:
            torn = f"{path} ends in a torn entry of {counted(reading.torn_bytes, 'byte')}"
            complain(f"{torn}: the broker was killed, or is writing it now")
    except TranscriptError as error:
        raise CommandFailed(f"{error}; the rest cannot be read, record a new transcript") from error
    except OSError as error:
        raise CommandFailed(f"cannot read {path}: {error.strerror}; name a transcript") from error
    finally:
        reading.close()


def read_once(reading: ExchangeReader, size_bytes: int) -> Iterator[Item]:
    # On a terminal the printed exchanges show the progress.
    with progress_bar("reading", size_bytes, unit="bytes", wanted=not sys.stdout.isatty()) as advance:
        position = 0
        for item in reading.rest(is_end=True):
            advance(reading.position - position)
            position = reading.position
            yield item


def followed(reading: ExchangeReader) -> Iterator[Item]:
    while True:
        yield from reading.rest()
        sys.stdout.flush()
        time.sleep(POLL_SECONDS)


def opened(path: Path) -> ExchangeReader:
    """Raises CommandFailed."""
    try:
        return ExchangeReader(path)
    except FileNotFoundError:
        next_step = f"`minibroker serve --transcript {path}` records one"
        raise CommandFailed(f"cannot read {path}: No such file or directory; {next_step}") from None
    except TranscriptError as error:
        raise CommandFailed(f"{error}; name a file that `minibroker serve --transcript FILE` recorded") from error
    except OSError as error:
        raise CommandFailed(f"cannot read {path}: {error.strerror}; name a readable file") from error


# -- text -----------------------------------------------------------------------------------------------------


def text_shower(*, brief: bool, full: bool) -> Show:
    print_lines = line_printer()
    limits = FULL if full else SHORT

    def show(item: Item, begin_ns: int) -> None:
        if isinstance(item, Event):
            print_lines([event_line(item, begin_ns)])
        elif brief:
            print_lines([brief_line(item, begin_ns)])
        else:
            print_lines(list(exchange_lines(item, begin_ns, limits)))

    return show


def line_printer() -> Callable[[list[Line]], None]:
    """A printer with colours on a terminal, and without rich elsewhere: a transcript is long, and rich is slow."""
    if not sys.stdout.isatty():
        return lambda lines: print("\n".join(map(plain, lines)))
    from rich.console import Console
    from rich.text import Text

    console = Console(file=sys.stdout)

    def print_lines(lines: list[Line]) -> None:
        console.print(Text("\n").join(Text.assemble(*line) for line in lines), soft_wrap=True)

    return print_lines


# -- JSON -----------------------------------------------------------------------------------------------------


def json_shower(*, full: bool) -> Show:
    max_records = (FULL if full else SHORT).records

    def show(item: Item, begin_ns: int) -> None:
        row = event_object(item) if isinstance(item, Event) else exchange_object(item, max_records)
        print(json_text(row))

    return show


def event_object(event: Event) -> dict[str, Any]:
    return {
        "event": event.what,
        "time_ns": event.time_ns,
        "connection": event.connection,
        "address": event.address,
        "text": event.text,
    }


def exchange_object(exchange: Exchange, max_records: int | None) -> dict[str, Any]:
    row: dict[str, Any] = {name: getattr(exchange, name) for name in OF_EXCHANGE}
    frames = {"request": exchange.request_frame, "response": exchange.response_frame}
    for side, body in (("request", request_body(exchange)), ("response", response_body(exchange))):
        frame = frames[side]
        row[side] = None if frame is None or body.problem is not None else as_object(body.fields, max_records)
        if body.problem is not None and frame is not None:
            row |= {f"{side}_problem": body.problem, f"{side}_hex": frame.kept.hex()}
    return row
