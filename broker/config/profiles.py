"""The settings and errors of earlier releases of Apache Kafka, for tests against the release used in production.

A `Profile` is one release: its settings and their defaults, its error codes, and the habits that distinguish it from
2.0.1 for a client; the table of APIs has its versions of each. The tables come from the releases themselves, from their
jars and from their answers; docs/profiles.md has them with their sources, and a test compares. Without `--act-as` the
broker is `EVERYTHING`: all versions and settings that it has.

Imports nothing of minibroker: it is imported before the broker listens.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import Enum
from typing import NamedTuple

# The release of each name, oldest first: the columns of the tables below.
RELEASES = {"0.10": "0.10.2.2", "0.11": "0.11.0.3", "1.1": "1.1.1", "2.0": "2.0.1"}
LATER = "later"
ABSENT = "-"
UNKNOWN_SERVER_ERROR = -1
VERSION_NUMBERS = re.compile(r"\d+(?:\.\d+)*")

# Defaults that differ in some release, from those of another one or from the broker's own.
DEFAULTS = """
    delete.topic.enable                     false        false        true      true
    group.initial.rebalance.delay.ms        0            3000         3000      3000
    inter.broker.protocol.version           0.10.2-IV0   0.11.0-IV2   1.1-IV0   2.0-IV1
    log.message.format.version              0.10.2-IV0   0.11.0-IV2   1.1-IV0   2.0-IV1
    offsets.retention.minutes               1440         1440         1440      10080
    ssl.endpoint.identification.algorithm   -            -            -         https
    transaction.abort.timed.out.transaction.cleanup.interval.ms  60000 60000 60000 60000
    unclean.leader.election.enable          true         false        false     false
"""

# Settings, and prefixes of settings, by the release that brought them.
SETTINGS_SINCE = {
    "0.11": """
        alter.config.policy.class.name delete.records.purgatory.purge.interval.requests
        group.initial.rebalance.delay.ms log.flush.start.offset.checkpoint.interval.ms transaction. transactional.
    """,
    "1.1": """
        alter.log.dirs. delegation.token. max.incremental.fetch.session.cache.slots num.replica.alter.log.dirs.threads
        password.encoder. queued.max.request.bytes sasl.jaas.config zookeeper.max.in.flight.requests
    """,
    "2.0": """
        client.quota.callback.class log.message.downconversion.enable sasl.client.callback.handler.class
        sasl.login.callback.handler.class sasl.login.class sasl.login.refresh. sasl.server.callback.handler.class
    """,
    LATER: """
        connection.failed.authentication.delay.ms connections.max.reauth.ms group.consumer. group.share.
        log.cleaner.max.compaction.lag.ms replica.selector.class share. sasl.oauthbearer. sasl.server.max.receive.size
        ssl.principal.mapping.rules
        ssl.keystore.key ssl.keystore.certificate.chain ssl.truststore.certificates
    """,
}
TOPIC_CONFIGS_SINCE = {"2.0": "message.downconversion.enable", LATER: "max.compaction.lag.ms"}

# The greatest error code of each release. ERRORS_INSTEAD replaces some of the later codes, UNKNOWN_SERVER_ERROR the
# others.
LAST_ERRORS = {"0.10": 44, "0.11": 55, "1.1": 71, "2.0": 72}
ERRORS_INSTEAD = {59: 45}  # UNKNOWN_PRODUCER_ID, OUT_OF_ORDER_SEQUENCE_NUMBER


class Habit(Enum):
    """Other differences of a release that clients can notice, in the words of docs/profiles.md."""

    KNOWS_NO_BATCHES = "Produce of a record batch of magic 2 is CORRUPT_MESSAGE"
    CALLS_SYNCING_AWAITING = "DescribeGroups calls the state CompletingRebalance AwaitingSync"
    CHANGES_NO_BROKERS = "AlterConfigs of a broker is INVALID_REQUEST, and DescribeConfigs calls its settings read-only"
    LOOKS_AT_TOPICS_ONLY = "DescribeConfigs calls a topic's config a default unless that topic sets it"
    HIDES_TOPICS = "a topic that a client may not describe is UNKNOWN_TOPIC_OR_PARTITION to it"
    HOLDS_ANSWERS_BACK = "an answer beyond a quota is held back for its throttle time, a Fetch's with its records"
    COMMITS_TO_MISSING_PARTITIONS = "OffsetCommit accepts partitions that an existing topic does not have"
    DESCRIBES_MISSING_TOPICS = "DescribeConfigs of a missing topic answers with the defaults"
    DELETION_TIMES_OUT = "DeleteTopics is REQUEST_TIMED_OUT where delete.topic.enable is false"
    HIDES_UNKNOWN_TYPES = "DescribeConfigs and AlterConfigs call a resource type that they do not know UNKNOWN"
    FAILS_FOR_MISSING_TOPICS = "AlterConfigs of a missing topic is UNKNOWN_SERVER_ERROR"
    HAS_NO_DEFAULT_COUNTS = (
        "CreateTopics of -1 partitions or replicas is INVALID_PARTITIONS or INVALID_REPLICATION_FACTOR"
    )


# The first release without the habit.
HABITS_UNTIL = {
    Habit.KNOWS_NO_BATCHES: "0.11",
    Habit.CALLS_SYNCING_AWAITING: "1.1",
    Habit.CHANGES_NO_BROKERS: "1.1",
    Habit.LOOKS_AT_TOPICS_ONLY: "1.1",
    Habit.HIDES_TOPICS: "1.1",
    Habit.HOLDS_ANSWERS_BACK: "2.0",
    Habit.COMMITS_TO_MISSING_PARTITIONS: "2.0",
    Habit.DESCRIBES_MISSING_TOPICS: "2.0",
    Habit.DELETION_TIMES_OUT: LATER,
    Habit.HIDES_UNKNOWN_TYPES: LATER,
    Habit.FAILS_FOR_MISSING_TOPICS: LATER,
    Habit.HAS_NO_DEFAULT_COUNTS: LATER,
}


class Profile(NamedTuple):
    """A release of Apache Kafka. `last_error` and `release` are None for the broker without `--act-as`."""

    name: str
    release: str | None
    last_error: int | None
    defaults: Mapping[str, str | None]
    unknown_settings: tuple[str, ...]
    unknown_topic_configs: frozenset[str]
    habits: frozenset[Habit]

    def error_code_for(self, code: int) -> int:
        """The error code that this release answers in place of `code`."""
        if self.last_error is None or code <= self.last_error:
            return code
        return ERRORS_INSTEAD.get(code, UNKNOWN_SERVER_ERROR)

    def has_setting(self, name: str) -> bool:
        return not any(name.startswith(each) if each.endswith(".") else name == each for each in self.unknown_settings)

    def problem_with_topic_config(self, name: str, text: str) -> str | None:
        """Why this release refuses a topic config that this broker accepts, in Kafka's words; None if it accepts it."""
        if name in self.unknown_topic_configs:
            return f"Unknown topic config name: {name}"
        if self.release is None:
            return None
        if name == "compression.type" and text.strip() == "zstd":
            allowed = "uncompressed, snappy, lz4, gzip, producer"
            return f"Invalid value zstd for configuration {name}: String must be one of: {allowed}"
        if name == "message.format.version" and message_format(text) > message_format(self.release):
            return f"Version `{text}` is not a valid version"
        return None


EVERYTHING = Profile("", None, None, {}, (), frozenset(), frozenset())


def profile_of(name: str) -> Profile:
    """The release that `--act-as` names. Raises KeyError."""
    release, column = RELEASES[name], list(RELEASES).index(name)
    return Profile(
        name,
        release,
        last_error=LAST_ERRORS[name],
        defaults={
            setting: None if values[column] == ABSENT else values[column] for setting, *values in rows_of(DEFAULTS)
        },
        unknown_settings=tuple(each for since in after(name) for each in SETTINGS_SINCE.get(since, "").split()),
        unknown_topic_configs=frozenset(
            TOPIC_CONFIGS_SINCE[since] for since in after(name) & TOPIC_CONFIGS_SINCE.keys()
        ),
        habits=frozenset(habit for habit, until in HABITS_UNTIL.items() if until in after(name)),
    )


def rows_of(table: str) -> list[list[str]]:
    return [line.split() for line in table.strip().splitlines()]


def after(name: str) -> set[str]:
    """The releases after one, and LATER."""
    return {*list(RELEASES)[list(RELEASES).index(name) + 1 :], LATER}


def message_format(version: str) -> tuple[int, ...]:
    """The part of a release's number that names its message format: 0.10.2 for 0.10.2.2, 1.1 for 1.1.1."""
    found = VERSION_NUMBERS.match(version.strip())
    numbers = tuple(map(int, found[0].split("."))) if found else ()
    return numbers[: 3 if numbers[:1] == (0,) else 2]
