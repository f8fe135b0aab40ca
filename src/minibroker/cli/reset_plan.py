"""Reads the file of `groups reset --from-file`: the new offset of each partition.

A line is TOPIC,PARTITION,OFFSET as `groups export` and Kafka's tool print it, GROUP,TOPIC,PARTITION,OFFSET as Kafka's
tool prints it for several groups, or either with spaces as in rpk's. No line is skipped without a word.
"""

from __future__ import annotations

import codecs
import csv
from pathlib import Path
from typing import NamedTuple

from minibroker.client.topic_partition import TopicPartition
from minibroker.errors import CommandFailed

TOPIC_PARTITION_OFFSET = 3
WITH_GROUP = 4
DIGITS_MAX = 19  # of an offset


class Line(NamedTuple):
    """`group` is None if the line names none."""

    number: int
    group: str | None
    at: TopicPartition
    offset: int


class Plan(NamedTuple):
    """The offsets of one group, and how many lines of the file are of other groups."""

    offsets: dict[TopicPartition, int]
    of_other_groups: int


def plan_in(file: Path, group: str) -> Plan:
    """The plan of that group in a file. Raises CommandFailed."""
    lines = [line_of(file, number, text) for number, text in enumerate(text_of(file).splitlines(), 1) if text.strip()]
    own = [line for line in lines if line.group in (None, group)]
    if lines and not own:
        groups = ", ".join(sorted({str(line.group) for line in lines}))
        raise CommandFailed(f"{file} has no offsets of group {group}; it has those of {groups}")
    first: dict[TopicPartition, int] = {}
    for line in own:
        earlier = first.setdefault(line.at, line.number)
        if earlier != line.number:
            at = f"{line.at.topic} {line.at.partition}"
            raise CommandFailed(f"{file} line {line.number}: {at} is in line {earlier} too; leave one of them out")
    return Plan({line.at: line.offset for line in own}, len(lines) - len(own))


def text_of(file: Path) -> str:
    """The text in UTF-8, or in UTF-16 as PowerShell redirects it, without its byte order mark. Raises CommandFailed."""
    try:
        data = file.read_bytes()
        is_utf16 = data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
        return data.decode("utf-16" if is_utf16 else "utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not text"
        raise CommandFailed(f"cannot read {file}: {reason}; name a file of `minibroker groups export`") from error


def line_of(file: Path, number: int, text: str) -> Line:
    """Raises CommandFailed."""
    try:
        parts = next(
            csv.reader([text.strip()], delimiter="," if "," in text else " ", skipinitialspace=True, strict=True)
        )
    except csv.Error:
        parts = []
    *names, partition, offset = ["", "", *(part.strip() for part in parts)]
    names = names[2:]
    if len(parts) not in (TOPIC_PARTITION_OFFSET, WITH_GROUP) or not (is_number(partition) and is_number(offset)):
        raise CommandFailed(
            f"{file} line {number}: not TOPIC,PARTITION,OFFSET or GROUP,TOPIC,PARTITION,OFFSET; correct the line"
        )
    group = names[0] if len(parts) == WITH_GROUP else None
    return Line(number, group, TopicPartition(names[-1], int(partition)), int(offset))


def is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= DIGITS_MAX
