"""`minibroker explain`: print why a running minibroker answers requests as it does, while it does.

This module reads arguments and prints; the broker explains, and `story.py` makes the text.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from minibroker.cli.parameters import CONTROL_VARIABLE, ApiOption, ClientIdOption, ConnectionOption, OutputOption
from minibroker.cli.terminal import complain
from minibroker.control import Control
from minibroker.errors import EXIT_OK, BadValue, BrokerError, CallRefused, CommandFailed
from minibroker.protocol.text import counted, json_text
from minibroker.story import brief_line, steps_of, story

LEASE_MS = 5_000
POLL_SECONDS = 0.1
AT_A_TIME = 25  # as many as a broker explains in a call

EPILOG = """The broker needs a control socket: `minibroker serve --control PATH`, or Broker(control=True) in a test. \
Nothing is recorded before this command asks, nor after it has ended.

Times are milliseconds since the request arrived. A wait in the broker ends with the letter of the case in Kafka's \
DelayedFetch, A to E, and with the request that caused it.

Examples:

minibroker explain --control broker.control --api fetch --topic flights

minibroker explain --control broker.control --client-id billing-1 --slower-than 100

minibroker explain --control broker.control --parked --brief

minibroker explain --control broker.control -o json | jq '.wait.cause'"""


app = typer.Typer()


@app.command("explain", epilog=EPILOG)
def explain(
    control: Annotated[
        Path,
        typer.Option(
            "--control",
            metavar="PATH",
            envvar=CONTROL_VARIABLE,
            help="The control socket of the broker.",
            show_default=False,
        ),
    ],
    api: ApiOption = None,
    client_id: ClientIdOption = None,
    connection: ConnectionOption = None,
    topic: Annotated[
        str | None, typer.Option("--topic", "-t", metavar="NAME", help="Only requests that have to do with this topic.")
    ] = None,
    slower_than: Annotated[
        float | None, typer.Option("--slower-than", metavar="MS", min=0, help="Only requests that took longer.")
    ] = None,
    parked: Annotated[bool, typer.Option("--parked", help="Only requests that waited in the broker.")] = False,
    empty: Annotated[bool, typer.Option("--empty", help="Only fetches answered without records.")] = False,
    errors: Annotated[bool, typer.Option("--errors", help="Only requests with an error.")] = False,
    count: Annotated[
        int | None, typer.Option("--count", "-n", metavar="N", min=1, help="Stop after N requests.")
    ] = None,
    brief: Annotated[bool, typer.Option("--brief", help="Print one line per request.")] = False,
    output: OutputOption = "text",
) -> int:
    """Print why a minibroker answers requests as it does, while it does; Ctrl-C ends it."""
    chosen: dict[str, Any] = {
        "api": api or None,
        "client_id": client_id,
        "connection": connection,
        "topic": topic,
        "slower_than_ms": slower_than,
        "parked": parked,
        "empty": empty,
        "failed": errors,
    }
    show = shower(output, brief=brief)
    shown = 0
    try:
        for explained in followed(Control(control), chosen):
            show(explained)
            shown += 1
            if shown == count:
                break
    except CallRefused as error:
        raise BadValue(error.reason) from error
    except BrokerError as error:
        raise CommandFailed(
            f"{error}; name the socket of a running broker, which `minibroker serve --control PATH` makes"
        ) from error
    return EXIT_OK


def followed(control: Control, chosen: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The requests from now on, as they end. Raises BrokerError."""
    following = control.call("inside.explain", since="now", lease_ms=LEASE_MS, **chosen)["next"]
    complain("explaining requests from now on; Ctrl-C ends it")
    while True:
        answer = control.call("inside.explain", since=following, budget=AT_A_TIME, lease_ms=LEASE_MS, **chosen)
        following = answer["next"]
        if answer["left_out"]:
            complain(f"{counted(answer['left_out'], 'request')} went by too fast to be kept")
        yield from answer["explained"]
        sys.stdout.flush()
        if len(answer["explained"]) < AT_A_TIME:
            time.sleep(POLL_SECONDS)


def shower(output: str, *, brief: bool) -> Callable[[dict[str, Any]], None]:
    """The function that prints one request."""
    if output == "json":
        return lambda explained: print(
            json_text(explained | {"steps": [step._asdict() for step in steps_of(explained)]})
        )
    if brief:
        return lambda explained: print(printable(brief_line(explained)))
    return lambda explained: print(printable(story(explained)) + "\n")


def printable(text: str) -> str:
    """The text with its control characters spelled out, line breaks between its lines aside: names are clients' own."""
    return "\n".join(map(without_controls, text.split("\n")))


def without_controls(line: str) -> str:
    return "".join(each if each.isprintable() else f"\\x{ord(each):02x}" for each in line)
