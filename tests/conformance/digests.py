"""python -m tests.conformance.digests NAME: record the digests of what Apache Kafka answers, for `minibroker conform`.

NAME is one of 0.10 to 4.4. A conversation is recorded if Apache Kafka answers it alike twice, and in time. What a
minibroker answers otherwise is recorded with it, unless that is much. `--books` records those of the books anew
(`portable.py`), and leaves the generated ones; `--differing` those that were answered otherwise.
"""

from __future__ import annotations

import argparse
import gzip
import itertools
import json
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.apache_kafka import ApacheKafka, kafka_jars
from benchmarks.kafka_jars import COORDINATES
from benchmarks.later_kafka import LaterKafka
from minibroker import Broker
from minibroker.broker.config.profiles import RELEASES
from minibroker.conformance.answers import Plain
from minibroker.conformance.conversation import NO_ANSWER
from minibroker.conformance.holding import SETTINGS, cleaning
from minibroker.conformance.patient_peer import PatientPeer
from minibroker.conformance.recordings import (
    BOOKS,
    FOLDER,
    NAMES,
    Delta,
    Name,
    Recording,
    digest_of,
    read_recording,
    script_of,
)
from minibroker.conformance.steps import Script
from minibroker.protocol.api import ApiKey
from minibroker.protocol.api_table import RELEASES_UNTIL_2_0
from tests.conformance.comparing import deltas_between, first_difference, wait_for_coordinator
from tests.conformance.pair import KAFKA_SETTINGS, PREFIX
from tests.conformance.portable import can_be_asked, portable

OF_A_HASH_SET = "groups and client metrics are described in every version"  # names its first resource
# Conversations that a release answers alike twice, and otherwise after another start, by how their titles begin.
UNSTABLE: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("0.11", "1.1", "2.0"), (OF_A_HASH_SET,)),
    "2.8": ("members that fall silent", "controllers are not described here", "a reassignment may be kept from"),
    "4.0": ("deleted groups",),  # whose state hangs on what others store behind them
    "4.4": ("commits of members",),  # with ILLEGAL_GENERATION or UNKNOWN_MEMBER_ID
}
COORDINATES_OF_2_8 = (*COORDINATES[:2], "org.apache.kafka:kafka_2.13:{release}")
MOST_DELTAS = 2000  # characters of a conversation
ANSWER_SECONDS = 30.0
SETTINGS_SECONDS = 0.2  # until altered configs are in effect


@contextmanager
def apache_kafka(name: str, directory: Path) -> Iterator[tuple[str, int]]:
    """The address of that release. Raises KafkaUnavailable."""
    settings = SETTINGS | KAFKA_SETTINGS
    if name in (*RELEASES_UNTIL_2_0, "2.8"):
        coordinates = COORDINATES if name in RELEASES_UNTIL_2_0 else COORDINATES_OF_2_8
        jars = kafka_jars(release=NAMES[name], coordinates=coordinates)
        kafka: Any = ApacheKafka(jars, directory, settings=settings, heap="512m")
    else:
        kafka = LaterKafka(directory, {key: str(each) for key, each in settings.items()}, release=NAMES[name])
    try:
        kafka.start()
        yield kafka.host, kafka.port
    finally:
        kafka.kill()


def patient(host: str, port: int) -> PatientPeer:
    peer = PatientPeer(host, port, answer_seconds=ANSWER_SECONDS)
    wait_for_coordinator(peer)
    return peer


def held(peer: PatientPeer, script: Script, number: int) -> list[Plain]:
    answers = peer.hold(script, PREFIX.format(number))
    peer.hold([cleaning(script)], PREFIX.format(number))
    return answers


def is_unstable(release: str, name: Name) -> bool:
    return isinstance(name, str) and name.startswith(UNSTABLE.get(release, ()))


def record(
    name: str, asked: Iterable[Name], most: int, directory: Path, before: Mapping[Name, tuple[str, list[Delta]]]
) -> None:
    """Record conversations until so many are kept, beside those of `before`."""
    act_as = name if name in RELEASES else None
    ours = Broker(settings=Recording(name, {}, {}, {}).settings | {"broker.id": 0}, act_as=act_as)
    digests: dict[Name, str] = {}
    deltas: dict[Name, list[Delta]] = {}

    def keep() -> None:
        kept = digests | {each: digest for each, (digest, _) in before.items()}
        fields = deltas | {each: rows for each, (_, rows) in before.items() if rows}
        write_recording(Recording(name, versions, kept, fields))
        print(f"{len(digests)} recorded, {len(deltas)} of them with fields", flush=True)

    with apache_kafka(name, directory) as kafka, ours, ThreadPoolExecutor(1) as other:
        host, port = ours.bootstrap_servers.split(":")
        reference, truth = patient(host, int(port)), patient(*kafka)
        truth.wait_for_settings(SETTINGS_SECONDS)
        rows = truth.asked(ApiKey.API_VERSIONS, 0).api_keys
        versions = {row.api_key: (row.min_version, row.max_version) for row in rows}
        for number, seed in enumerate(asked, 1):
            if is_unstable(name, seed):
                continue
            script = script_of(seed, versions)
            if not (all(step.key in versions for step in script) and can_be_asked(script)):
                continue
            answered = other.submit(held, reference, script, 2 * number)
            first = held(truth, script, 2 * number)
            again = held(truth, script, 2 * number + 1)
            mine = answered.result()
            if NO_ANSWER in first or NO_ANSWER in again:  # a broker that is judged would be waited for as long
                continue
            if truth.time_outs or reference.time_outs:
                print(f"{seed}: not done in {ANSWER_SECONDS:.0f} s", flush=True)
                truth.time_outs = reference.time_outs = 0
                continue
            if digest_of(script, first) != digest_of(script, again):
                print(f"{seed}: twice, {first_difference(script, first, again)}", flush=True)
                continue
            if NO_ANSWER in mine:
                print(f"{seed}: minibroker does not answer", flush=True)
                continue
            found = deltas_between(first, mine) if digest_of(script, first) != digest_of(script, mine) else []
            if found:
                print(f"{seed}: {first_difference(script, first, mine)}", flush=True)
            if len(json.dumps(found)) <= MOST_DELTAS:
                digests[seed] = digest_of(script, first)
                deltas |= {seed: found} if found else {}
            if number % 100 == 0:
                keep()
            if len(digests) == most:
                break
        keep()


def write_recording(recording: Recording) -> None:
    kept = recording._asdict()
    del kept["name"]
    write(f"{recording.name}.json.gz", kept)


def write(file_name: str, kept: Any) -> None:
    """Write what holds no time: the same answers are the same bytes."""
    text = json.dumps(kept, separators=(",", ":"))
    (FOLDER / file_name).write_bytes(gzip.compress(text.encode(), 9, mtime=0))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m tests.conformance.digests", description=__doc__)
    parser.add_argument("name", choices=NAMES)
    parser.add_argument("--seeds", type=int, default=2000)
    parser.add_argument("--books", action="store_true", help="the conversations of books")
    parser.add_argument("--differing", action="store_true", help="those that minibroker has answered otherwise")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as made:
        if options.books or options.differing:
            recorded = read_recording(options.name)
            asked: list[Name] = list(recorded.deltas)
            if options.books:
                write(BOOKS, books := portable())
                asked = [title for book in books.values() for title in book]
            others: dict[Name, tuple[str, list[Delta]]] = {
                each: (digest, list(recorded.deltas.get(each, ())))
                for each, digest in recorded.digests.items()
                if (isinstance(each, int) if options.books else each not in recorded.deltas)
            }
            record(options.name, asked, len(asked), Path(made), others)
        else:
            record(options.name, itertools.count(1), options.seeds, Path(made), {})
