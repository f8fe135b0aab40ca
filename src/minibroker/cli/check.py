"""`minibroker check FILE...`: judge a history of sends and polls, or the transcripts of a cluster.

This module reads arguments and prints; `minibroker.history` reads and judges.
"""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from minibroker.cli.parameters import showing
from minibroker.cli.progress import progress_bar
from minibroker.cli.shown import Shown
from minibroker.cli.terminal import complain, print_line
from minibroker.errors import EXIT_USAGE, BadValue
from minibroker.history.checking import check as findings_of
from minibroker.history.findings import CLASSES, WRITE_CYCLE, Finding
from minibroker.history.lines import read_lines
from minibroker.history.model import History, HistoryError
from minibroker.history.transcripts import is_transcript, read_transcripts
from minibroker.protocol.text import counted, reason_of

SHOWN_OF_A_CLASS = 10

EPILOG = """FILE is a history of JSON lines, or a transcript of `minibroker serve --transcript`; name the transcripts \
of all brokers of a cluster.

Exit status: 0 without findings, 1 with some, 2 if a file cannot be read or has no operation.

Examples:

minibroker check history.jsonl

minibroker check broker.transcript --allow unseen -o json | jq '.findings[].class'"""


def finding_classes() -> list[str]:
    return list(CLASSES)


app = typer.Typer()


@app.command("check", epilog=EPILOG)
@showing
def check(
    files: Annotated[list[Path], typer.Argument(metavar="FILE", show_default=False)],
    allow: Annotated[
        list[str] | None,
        typer.Option(
            "--allow",
            metavar="CLASS",
            help="Leave out findings of this class; may be repeated.",
            autocompletion=finding_classes,
        ),
    ] = None,
    write_cycles: Annotated[
        bool, typer.Option("--write-cycles", help="Also find transactions whose writes interleave, as Kafka's do.")
    ] = False,
) -> Shown | int:
    """Find lost, repeated, reordered and uncommitted records in what clients sent and polled."""
    for name in allow or ():
        if name not in CLASSES:
            raise BadValue(f"{name!r} is not a class of findings; it is one of {', '.join(CLASSES)}")
    with nothing_collected():
        try:
            history = read(files)
        except HistoryError as error:
            return cannot_read(str(error))
        except OSError as error:
            return cannot_read(f"cannot read {error.filename or files[0]}: {reason_of(error)}; name a history")
        if not history.operations:
            question = "did clients send or poll?" if is_transcript(files[0]) else "is it a history?"
            return cannot_read(f"no operation in {', '.join(map(str, files))}: {question}")
        findings = findings_of(history, allowed=allow or (), also=[WRITE_CYCLE] if write_cycles else ())
    name = ", ".join(map(str, files))
    return Shown(document(history, findings), lambda: print_report(name, history, findings), is_failed=bool(findings))


def read(files: list[Path]) -> History:
    """Raises OSError, HistoryError and BadValue."""
    recorded = [path for path in files if is_transcript(path)]
    others = [str(path) for path in files if path not in recorded]
    if len(files) > 1 and others:
        raise BadValue(
            f"{', '.join(others)}: no transcript; several files must be the transcripts of a cluster, and a history is"
            " named alone"
        )
    with progress_bar("reading", sum(path.stat().st_size for path in files), unit="bytes") as advance:
        return read_transcripts(recorded, advance) if recorded else read_lines(files[0], advance)


@contextmanager
def nothing_collected() -> Iterator[None]:
    """Pause the collection of garbage: all that is read is kept, and to look at it took a third of the time."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def cannot_read(message: str) -> int:
    complain(message)
    return EXIT_USAGE


def print_report(name: str, history: History, findings: list[Finding]) -> None:
    counts: Counter[str] = Counter()
    for finding in findings:
        counts[finding.kind] += 1
        if counts[finding.kind] <= SHOWN_OF_A_CLASS:
            # JSON may have halves of surrogate pairs, which UTF-8 has not.
            print_line(f"{finding.kind}: {finding.text.encode(errors='backslashreplace').decode()}", "red")
    for kind, count in counts.items():
        if count > SHOWN_OF_A_CLASS:
            print_line(f"{kind}: {count - SHOWN_OF_A_CLASS} more; -o json has all", "red")
    for note in history.notes:
        complain(note)
    what = counted(len(findings), "finding") if findings else "no findings"
    processes = len(history.processes)
    whose = f"{counted(history.operations, 'operation')} of {processes} process{'' if processes == 1 else 'es'}"
    print_line(f"{name}: {what} in {whose} on {counted(len(history.partitions), 'partition')}")


def document(history: History, findings: list[Finding]) -> dict[str, Any]:
    return {
        "operations": history.operations,
        "processes": list(history.processes),
        "partitions": [{"topic": each.topic, "partition": each.number} for each in history.partitions.values()],
        "notes": history.notes,
        "findings": [
            {
                "class": each.kind,
                "topic": each.topic,
                "partition": each.partition,
                "offsets": each.offsets,
                "values": each.values,
                "processes": each.processes,
                "places": [history.place(at) for at in each.places],
                "text": each.text,
            }
            for each in findings
        ],
    }
