"""`minibroker dump-log FILE...`: print the files of a data directory, of minibroker or of Apache Kafka.

This module reads arguments and prints; `data_files` reads the files.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from minibroker.cli.data_files import rows_of
from minibroker.cli.parameters import OutputOption
from minibroker.cli.terminal import complain, print_line
from minibroker.errors import EXIT_FAILED, EXIT_OK, CommandFailed
from minibroker.protocol.facts import Row
from minibroker.protocol.text import as_utc, json_text, reason_of

GAP = "  "
# Facts that the text leaves out at these values; JSON has them always.
UNREMARKABLE = {
    "producer_id": -1,
    "producer_epoch": -1,
    "base_sequence": -1,
    "last_sequence": -1,
    "sequence": -1,
    "is_transactional": False,
    "is_control": False,
    "timestamp_type": "CREATE_TIME",
    "is_valid": True,
    "headers": [],
}
FOR_PROGRAMS = {"crc"}
RECORD_FACTS = {"key", "end_txn_marker"}
TIMES = ("max_timestamp", "timestamp")

EPILOG = """Files: segments (.log), .index, .timeindex, .txnindex, .snapshot, the checkpoints, meta.properties. \
Damage appears in its place, on a line with `error`, and makes the exit status 1. Files are never changed.

Examples:

minibroker dump-log data/flights-0/00000000000000000000.log --records

minibroker dump-log data/flights-0/*.log -o json | jq .max_timestamp"""


app = typer.Typer()


@app.command("dump-log", epilog=EPILOG)
def dump_log(
    files: Annotated[list[Path], typer.Argument(metavar="FILE", show_default=False)],
    records: Annotated[bool, typer.Option("--records", "-r", help="Print every record, not only its batch.")] = False,
    output: OutputOption = "text",
) -> int:
    """Print the files of a data directory."""
    damaged = False
    for path in files:
        try:
            damaged |= dump_file(path, with_records=records, as_json=output == "json")
        except CommandFailed as failure:
            complain(str(failure))
            damaged = True
    return EXIT_FAILED if damaged else EXIT_OK


def dump_file(path: Path, *, with_records: bool, as_json: bool) -> bool:
    """Print one file; return whether it is damaged. Raises CommandFailed."""
    try:
        path.open("rb").close()
    except OSError as error:
        advice = "name files of a partition, such as DATA_DIR/TOPIC-0/*.log"
        raise CommandFailed(f"cannot read {path}: {reason_of(error)}; {advice}") from error
    rows = rows_of(path, with_records=with_records)
    if not as_json:
        print_line(str(path), "bold")
    count = errors = 0
    for row in rows:
        count += 1
        errors += "error" in row
        if as_json:
            print(json.dumps({"file": str(path), **row}))
        elif "error" in row:
            print_line(as_line(row), "red")
        else:
            print(as_line(row))  # a segment may have millions: rich is slow
    if not count and not as_json:
        print(f"{GAP}empty")
    return errors > 0


def as_line(row: Row) -> str:
    """`name: value` after `name: value`, without unremarkable facts."""
    text = GAP.join(
        f"{name}: {as_text(name, value)}" for name, value in row.items() if not is_unremarkable(name, value)
    )
    return (GAP * 2 if row.keys() & RECORD_FACTS else GAP) + text


def is_unremarkable(name: str, value: Any) -> bool:
    return name in FOR_PROGRAMS or (name in UNREMARKABLE and value == UNREMARKABLE[name])


def as_text(name: str, value: Any) -> str:
    if name in TIMES and isinstance(value, int) and value >= 0:
        return f"{value} ({as_utc(value)})"
    if name in ("key", "value", "headers"):
        return json_text(value)
    return str(value)
