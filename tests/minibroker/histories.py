"""Histories in short words, as the JSON lines that `minibroker check` reads.

p send t-0 a = 4        an operation with its answer: the offset; `= fail`, `= info`, or nothing for ok
p send t-0 a ...        only its invocation
p send t-0 a : 4        only its completion, as `: fail` or `: ok`
c poll t-0 0=a 1=b      the records; `dirty` in place of `poll` reads uncommitted ones
p begin, commit, abort, crash; c assign t-0, subscribe t, seek t-0 5, delete_records t-0 5
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from minibroker.history.checking import check
from minibroker.history.findings import Finding
from minibroker.history.lines import read_lines


class Story(NamedTuple):
    """A history under its title, with its only finding: the class and the offsets, or nothing."""

    title: str
    finds: str
    text: str


def read_story(text: str) -> Story:
    title, _, text = text.removeprefix("== ").partition("\n")
    found = re.match("finds (.*)\n", text)
    return Story(title, found[1] if found else "", text[found.end() :] if found else text)


def lines_of(text: str) -> Iterator[dict[str, Any]]:
    """The lines of a history in short words."""
    for line in text.strip().splitlines():
        words = line.split()
        events, answer = ["invoke", "ok"], None
        if words[-1] == "...":
            events = ["invoke"]
            words.pop()
        elif len(words) > 2 and words[-2] in ("=", ":"):
            if words[-2] == ":":
                events = ["ok"]
            answer = words[-1]
            words = words[:-2]
        if answer in ("fail", "info"):
            events[-1] = answer
        process, operation, *rest = words
        for event in events:
            row = {"process": process, "event": event, **fields(operation, rest)}
            if event == "ok" and operation == "send" and answer not in (None, "ok"):
                row["offset"] = int(answer)
            yield row


def fields(operation: str, words: list[str]) -> dict[str, Any]:
    if operation in ("send", "seek", "delete_records", "assign"):
        topic, _, number = words[0].rpartition("-")
        if operation == "assign":
            return {"operation": operation, "partitions": [[topic, int(number)]]}
        last = {"value": words[1]} if operation == "send" else {"offset": int(words[1])}
        return {"operation": operation, "topic": topic, "partition": int(number), **last}
    if operation in ("poll", "dirty"):
        records: list[Any] = []
        for word in words:
            offset, is_record, value = word.partition("=")
            if is_record:
                records.append([topic, int(number), int(offset), value])
            else:
                topic, _, number = word.rpartition("-")
        isolation = {} if operation == "poll" else {"isolation": "read_uncommitted"}
        return {"operation": "poll", "records": records, **isolation}
    return {"operation": operation} | ({"topics": words} if operation == "subscribe" else {})


def write_history(path: Path, text: str) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in lines_of(text)), encoding="utf-8")
    return path


def findings_of(path: Path, text: str, **options: Any) -> list[Finding]:
    return check(read_lines(write_history(path, text)), **options)
