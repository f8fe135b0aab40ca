"""`minibroker dump-log FILE...`: what is in a file of a data directory, of minibroker or of Apache Kafka."""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from minibroker.cli.failures import CommandFailed

if TYPE_CHECKING:
    from minibroker.protocol.batches import BatchView

MAX_DECOMPRESSED_BYTES = 256 * 1024 * 1024


def dump_log(
    files: Annotated[list[Path], typer.Argument(help="Segments (.log), indexes, snapshots, checkpoints.")],
    records: Annotated[bool, typer.Option("--records", "-r", help="Print every record, not only its batch.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a line.")] = False,
) -> None:
    """Print what a file of a data directory holds."""
    for path in files:
        if not path.is_file():
            raise CommandFailed(
                f"{path} is not a file; name files of a partition's directory, such as data/topic-0/*.log"
            )
        if not as_json:
            print(f"Dumping {path}")
        for row in rows_of(path, with_records=records):
            print(json.dumps(row) if as_json else "  ".join(f"{key}: {value}" for key, value in row.items()))


def rows_of(path: Path, *, with_records: bool) -> Iterator[dict[str, Any]]:
    """One dict a batch, record, index entry or line. Raises CommandFailed for a file of no known kind."""
    reader = {
        ".log": lambda: log_rows(path, with_records=with_records),
        ".index": lambda: index_rows(path, ">ii", ("offset", "position")),
        ".timeindex": lambda: index_rows(path, ">qi", ("timestamp", "offset")),
        ".txnindex": lambda: index_rows(
            path, ">hqqqq", ("version", "producerId", "firstOffset", "lastOffset", "lastStableOffset")
        ),
        ".snapshot": lambda: snapshot_rows(path),
    }.get(path.suffix)
    if reader is not None:
        return reader()
    if path.name.endswith("checkpoint") or path.name == "meta.properties":
        return ({"line": line} for line in path.read_text().splitlines())
    raise CommandFailed(
        f"{path} is none of .log, .index, .timeindex, .txnindex, .snapshot, *-checkpoint or meta.properties"
    )


def log_rows(path: Path, *, with_records: bool) -> Iterator[dict[str, Any]]:
    from minibroker.protocol.batches import batch_is_valid, iter_all_records, scan_batches
    from minibroker.protocol.errors import KafkaError

    buffer = path.read_bytes()
    end = 0
    try:
        for view in scan_batches(buffer, 0, len(buffer)):
            end = view.end_position
            yield batch_row(view, is_valid=batch_is_valid(buffer, view))
            if with_records:
                for record in iter_all_records(buffer, view, max_decompressed_bytes=MAX_DECOMPRESSED_BYTES):
                    yield record_row(record)
    except KafkaError as error:
        yield {"error": str(error), "position": end}
        return
    if end < len(buffer):
        yield {"error": f"{len(buffer) - end} bytes at the end are no whole batch", "position": end}


def batch_row(view: BatchView, *, is_valid: bool) -> dict[str, Any]:
    row: dict[str, Any] = {
        "baseOffset": view.base_offset,
        "lastOffset": view.last_offset,
        "magic": view.magic,
        "position": view.position,
        "size": view.size_bytes,
        "codec": view.codec.name,
        "maxTimestamp": view.max_timestamp_ms,
        "isValid": is_valid,
    }
    if view.magic >= 2:
        row |= {
            "count": view.records_count,
            "producerId": view.producer_id,
            "producerEpoch": view.producer_epoch,
            "baseSequence": view.base_sequence,
            "partitionLeaderEpoch": view.partition_leader_epoch,
            "isTransactional": view.is_transactional,
            "isControl": view.is_control,
        }
    return row


def record_row(record: Any) -> dict[str, Any]:
    return {
        "offset": record.offset,
        "timestamp": record.timestamp_ms,
        "key": shown(record.key),
        "value": shown(record.value),
        "headers": [[name, shown(value)] for name, value in record.headers],
    }


def shown(data: bytes | None) -> str | None:
    """Text as text, anything else as base64."""
    if data is None:
        return None
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return "base64:" + base64.b64encode(data).decode()


def index_rows(path: Path, layout: str, names: tuple[str, ...]) -> Iterator[dict[str, Any]]:
    """Entries of fixed size, up to the zeros that fill an index in use; offsets are made absolute."""
    entry = struct.Struct(layout)
    content = path.read_bytes()
    base_offset = int(path.name.split(".")[0]) if path.suffix in (".index", ".timeindex") else 0
    for number, values in enumerate(entry.iter_unpack(content[: len(content) // entry.size * entry.size])):
        if number and not any(values):
            return
        row = dict(zip(names, values, strict=True))
        if "offset" in row:
            row["offset"] += base_offset
        yield row


def snapshot_rows(path: Path) -> Iterator[dict[str, Any]]:
    from minibroker.storage.producer_snapshot import read_snapshot

    for entry in read_snapshot(path):
        yield entry._asdict()
