"""python -m tests.conformance.digests NAME: record the digests of what Apache Kafka answers, for `minibroker conform`.

NAME is 2.0, 3.9 or 4.4. A seed is recorded if Apache Kafka answers it alike twice. What a minibroker answers otherwise
is recorded with it, unless that is much.
"""

from __future__ import annotations

import argparse
import itertools
import json
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.apache_kafka import ApacheKafka, kafka_jars
from benchmarks.later_kafka import LaterKafka
from minibroker import Broker
from minibroker.broker.config.profiles import RELEASES
from minibroker.conformance.answers import Plain
from minibroker.conformance.conversation import NO_ANSWER
from minibroker.conformance.holding import SETTINGS, cleaning, first_difference, wait_for_coordinator
from minibroker.conformance.patient_peer import PatientPeer
from minibroker.conformance.recordings import (
    NAMES,
    Delta,
    Recording,
    deltas_between,
    digest_of,
    script_of,
    write_recording,
)
from minibroker.conformance.steps import Script
from minibroker.protocol.api import ApiKey
from tests.conformance.pair import KAFKA_SETTINGS, PREFIX

MOST_DELTAS = 2000  # characters of a conversation
ANSWER_SECONDS = 3.0
SETTINGS_SECONDS = 0.2  # until altered configs are in effect


@contextmanager
def apache_kafka(name: str, directory: Path) -> Iterator[tuple[str, int]]:
    """The address of that release. Raises KafkaUnavailable."""
    settings = SETTINGS | KAFKA_SETTINGS
    if name == "2.0":
        kafka: Any = ApacheKafka(kafka_jars(), directory, settings=settings, heap="512m")
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
    return peer.hold([*script, cleaning(script)], PREFIX.format(number))[:-1]


def record(name: str, most: int, directory: Path) -> None:
    act_as = name if name in RELEASES else None
    ours = Broker(settings=SETTINGS | {"broker.id": 0}, act_as=act_as)
    digests: dict[int, str] = {}
    deltas: dict[int, list[Delta]] = {}
    with apache_kafka(name, directory) as kafka, ours, ThreadPoolExecutor(1) as other:
        host, port = ours.bootstrap_servers.split(":")
        reference, truth = patient(host, int(port)), patient(*kafka)
        truth.wait_for_settings(SETTINGS_SECONDS)
        rows = truth.asked(ApiKey.API_VERSIONS, 0).api_keys
        versions = {row.api_key: (row.min_version, row.max_version) for row in rows}
        for seed in itertools.count(1):
            script = script_of(seed, versions)
            answered = other.submit(held, reference, script, 2 * seed)
            first = held(truth, script, 2 * seed)
            again = held(truth, script, 2 * seed + 1)
            mine = answered.result()
            if NO_ANSWER in first:  # it would cost whoever is judged so long
                continue
            if digest_of(script, first) != digest_of(script, again):
                print(f"{seed}: twice, {first_difference(script, first, again)}", flush=True)
                continue
            found = deltas_between(first, mine) if digest_of(script, first) != digest_of(script, mine) else []
            if found:
                print(f"{seed}: {first_difference(script, first, mine)}", flush=True)
            if len(json.dumps(found)) <= MOST_DELTAS:
                digests[seed] = digest_of(script, first)
                deltas |= {seed: found} if found else {}
            if seed % 100 == 0 or len(digests) == most:
                write_recording(Recording(name, versions, digests, deltas))
                print(f"{seed}: {len(digests)} recorded, {len(deltas)} of them with fields", flush=True)
            if len(digests) == most:
                break


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m tests.conformance.digests", description=__doc__)
    parser.add_argument("name", choices=NAMES)
    parser.add_argument("--seeds", type=int, default=2000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as made:
        record(options.name, options.seeds, Path(made))
