"""Histories of quotas: what clients use, at which times, and the throttle times of Apache Kafka 2.0.1's own classes.

A history is drawn from a seed: a kind of quota with its window, then steps on a clock that stands still between them.
`QuotaHistories.java` plays histories on Kafka's quota managers. To record anew: python -m
tests.books kafka-2.0.1 throttle-times --record
"""

from __future__ import annotations

import subprocess
from random import Random
from typing import NamedTuple

from benchmarks.apache_kafka import class_path, kafka_jars
from minibroker.broker.config.settings.types import LONG_MAX
from minibroker.broker.time.sampled_rate import MS_PER_SECOND, SampleWindow
from minibroker.broker.wings.quotas.client_quota import ClientQuota
from minibroker.broker.wings.quotas.entities import DEFAULT, Entity, Name
from tests.conformance.recordings import Comparison, read
from tests.jvm import QUICK_JVM
from tests.setup_clients import compiled_for_kafka

RECORDED = "kafka-2.0.1-quota-histories.json.gz"
HISTORIES = 300
STEPS = 40
PLAY_SECONDS = 120.0
REQUEST = "Request"

NONE, EVERY = "-", "*"
USERS = ("=ann", "=b%20b", "=ANONYMOUS")
CLIENT_IDS = ("=one", "=two", "=c/d", "=", NONE)
# Steps of the clock: within a sample, about one, over several, over the whole window.
PAUSES_MS = (0, 0, 1, 7, 400, 999, 1000, 1001, 2500, 9999, 30_000)
LIMITS = {True: (0.0001, 0.5, 1, 99.9, 400), False: (200, 500, 1000, 20_000, 1_000_000)}
VALUES = {True: (0.000_017, 0.01, 0.9, 30.0, 700.0), False: (0, 1, 122, 5000, 150_122, 1_048_576)}
WINDOWS = ((11, 1), (11, 1), (4, 2), (2, 1), (1, 1), (1, 3), (30, 1))


class History(NamedTuple):
    """Lines as `QuotaHistories.java` reads them; the first makes the quota."""

    lines: list[str]

    @property
    def is_of_requests(self) -> bool:
        return self.lines[0].split("\t")[1] == REQUEST


def all_levels() -> History:
    """Quotas on all eight levels for one client, each set, used and removed, the one that counts first."""
    levels = [(user, client_id) for user in (USERS[0], EVERY, NONE) for client_id in (CLIENT_IDS[0], EVERY, NONE)]
    levels = [(user, client_id) for user, client_id in levels if (user, client_id) != (NONE, NONE)]
    lines = [f"new\tProduce\t{LONG_MAX}\t11\t1", "at\t5"]
    lines += [f"set\t{user}\t{client_id}\t{100 + place}" for place, (user, client_id) in enumerate(levels)]
    use = f"use\t{USERS[0]}\t{CLIENT_IDS[0]}\t50000"
    for user, client_id in levels[:-1]:  # the last one removed would stay (docs/differences.md)
        lines += [use, f"set\t{user}\t{client_id}\t{NONE}"]
    return History([*lines, use])


def drawn(seed: int) -> History:
    """The history of a seed. No quota is removed: Kafka forgets that only in windows that begin later."""
    if seed == 0:
        return all_levels()
    random = Random(seed)
    kind = random.choice(("Produce", "Fetch", REQUEST))
    is_requests = kind == REQUEST
    everybody = LONG_MAX if is_requests or random.random() < 0.8 else random.choice((800, 50_000))
    samples, seconds = random.choice(WINDOWS)
    lines = [f"new\t{kind}\t{everybody}\t{samples}\t{seconds}"]
    now_ms = random.choice((0, 1_500_000_000_000))
    # One client and one quota most often; all eight levels sometimes.
    users, client_ids = random.choice((((USERS[0],), CLIENT_IDS[:1]), (USERS, CLIENT_IDS)))
    last_use = ""
    for _ in range(STEPS):
        now_ms += random.choice(PAUSES_MS) * random.choice((1, 1, seconds))
        lines.append(f"at\t{now_ms}")
        move = random.random()
        if len(lines) == 2 or move < 0.15:
            user, client_id = random.choice((NONE, EVERY, *users)), random.choice((NONE, EVERY, *client_ids[:3]))
            if (user, client_id) == (NONE, NONE):
                client_id = client_ids[0]
            lines.append(f"set\t{user}\t{client_id}\t{random.choice(LIMITS[is_requests])}")
        elif move < 0.25 and last_use:
            lines.append(last_use.replace("use", "back"))
            last_use = ""
        else:
            last_use = f"use\t{random.choice(users)}\t{random.choice(client_ids)}\t{random.choice(VALUES[is_requests])}"
            lines.append(last_use)
    return History(lines)


# -- minibroker -----------------------------------------------------------------------------------------------


def throttle_times(history: History) -> list[int]:
    """Play a history on this broker; return the throttle time of each use."""
    quota, now_ms, times = made(history.lines[0]), 0, []
    for line in history.lines[1:]:
        step, *fields = line.split("\t")
        if step == "at":
            now_ms = int(fields[0])
            continue
        user, client_id, value = fields
        if step == "set":
            quota.set(Entity(name_of(user), name_of(client_id)), None if value == NONE else float(value))
        elif step == "back":
            quota.take_back(user[1:], text_of(client_id), float(value), now_ms)
        else:
            is_counted = quota.is_used
            times.append(quota.record(user[1:], text_of(client_id), float(value), now_ms) if is_counted else 0)
    return times


def made(line: str) -> ClientQuota:
    _, kind, everybody, samples, seconds = line.split("\t")
    sample_ms = int(seconds) * MS_PER_SECOND
    return ClientQuota(
        SampleWindow(int(samples), sample_ms),
        everybody=None if int(everybody) == LONG_MAX else float(everybody),
        throttle_ms_max=sample_ms if kind == REQUEST else None,
    )


def name_of(field: str) -> Name:
    return DEFAULT if field == EVERY else text_of(field)


def text_of(field: str) -> str | None:
    return None if field == NONE else field[1:]


# -- Apache Kafka ---------------------------------------------------------------------------------------------


def kafkas_throttle_times(histories: list[History]) -> list[list[int]]:
    """The same by Kafka's classes, all in one JVM. Raises KafkaUnavailable."""
    jars = kafka_jars()
    classes = compiled_for_kafka("QuotaHistories", class_path(jars))
    text = "".join(f"{line}\n" for history in histories for line in history.lines)
    done = subprocess.run(
        ["java", *QUICK_JVM, "-Xmx256m", "-cp", f"{classes}:{class_path(jars)}", "QuotaHistories"],
        input=text,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        timeout=PLAY_SECONDS,
        check=True,
    )
    times = map(int, done.stdout.split())
    return [[next(times) for line in history.lines if line.startswith("use")] for history in histories]


def recorded() -> list[list[int]]:
    """The throttle times of the histories of the seeds from 0 on."""
    found: list[list[int]] = read(RECORDED)
    return found


def compared(seeds: range) -> Comparison:
    histories = [drawn(seed) for seed in seeds]
    kafkas = kafkas_throttle_times(histories)
    ours = map(throttle_times, histories)
    rows = zip(seeds, kafkas, ours, strict=True)
    found = [f"-- seed {seed}\nKafka      {theirs}\nminibroker {mine}" for seed, theirs, mine in rows if theirs != mine]
    return Comparison(kafkas, len(histories), found)
