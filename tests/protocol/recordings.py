"""Requests to Apache Kafka 2.0.1 and its responses, as recorded."""

from __future__ import annotations

import gzip
import json
from collections import defaultdict
from functools import cache
from pathlib import Path
from typing import Any

from minibroker.protocol.api import API_TABLE

GOLDEN = Path(__file__).parent.parent / "golden"
FILES = ("kafka-2.0.1-frames.jsonl.gz", "kafka-2.0.1-acl-frames.jsonl.gz")  # the second of a broker with ACLs

Recording = dict[str, Any]


@cache
def recordings() -> dict[tuple[str, int], list[Recording]]:
    """By API and version, in the order of sending."""
    by_version = defaultdict(list)
    for file in FILES:
        with gzip.open(GOLDEN / file, "rt") as lines:
            for line in lines:
                recording = json.loads(line)
                by_version[recording["api"], recording["version"]].append(recording)
    return by_version


def key_of(api: str) -> int:
    (key,) = (key for key, row in API_TABLE.items() if row.name == api)
    return key
