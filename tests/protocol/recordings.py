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
BETWEEN_BROKERS = "kafka-2.0.1-cluster-frames.jsonl.gz"  # also with a broker 3 that a test played
# The second is of a broker with ACLs, the last of one with logins.
SASL = "kafka-2.0.1-sasl-frames.jsonl.gz"
FILES = ("kafka-2.0.1-frames.jsonl.gz", "kafka-2.0.1-acl-frames.jsonl.gz", BETWEEN_BROKERS, SASL)

Recording = dict[str, Any]


@cache
def recordings() -> dict[tuple[str, int], list[Recording]]:
    """By API and version, in the order of sending."""
    by_version = defaultdict(list)
    for file in FILES:
        for recording in recordings_of(file):
            if recording["api"] != "token":  # of a login without headers
                by_version[recording["api"], recording["version"]].append(recording)
    return by_version


def recordings_of(file: str) -> list[Recording]:
    """In the order of sending."""
    with gzip.open(GOLDEN / file, "rt") as lines:
        return [json.loads(line) for line in lines]


def key_of(api: str) -> int:
    (key,) = (key for key, row in API_TABLE.items() if row.name == api)
    return key
