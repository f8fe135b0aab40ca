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
RELEASES = {
    "0.10": "0.10.2.2", "0.11": "0.11.0.3", "1.1": "1.1.1", "2.0": "2.0.1",
    "2.8": "2.8.2", "3.9": "3.9.1", "4.0": "4.0.1", "4.4": "4.4.0",
}  # fmt: skip
FIRST_WITH_FEATURES = "4.0"
ABSENT = "-"
REMOVED = "removed"  # a setting that the release no longer has
FIRST_WITH_ZSTD = (2, 1)
FIRST_WITH_LARGE_SEGMENTS, LEAST_SEGMENT_BYTES = (4, 0), 1024 * 1024
UNKNOWN_SERVER_ERROR = -1
VERSION_NUMBERS = re.compile(r"\d+(?:\.\d+)*")

# Defaults that differ in some release, from those of another one or from the broker's own.
DEFAULTS = """
    delete.topic.enable                    false false true true true true true true
    group.initial.rebalance.delay.ms       0 3000 3000 3000 3000 3000 3000 3000
    group.max.session.timeout.ms           300000 300000 300000 300000 1800000 1800000 1800000 1800000
    inter.broker.protocol.version          0.10.2-IV0 0.11.0-IV2 1.1-IV0 2.0-IV1 2.8-IV1 3.9-IV0 removed removed
    log.message.format.version             0.10.2-IV0 0.11.0-IV2 1.1-IV0 2.0-IV1 2.8-IV1 3.0-IV1 removed removed
    message.max.bytes                      1000012 1000012 1000012 1000012 1048588 1048588 1048588 1048588
    num.recovery.threads.per.data.dir      1 1 1 1 1 1 2 2
    offsets.retention.minutes              1440 1440 1440 10080 10080 10080 10080 10080
    replica.lag.time.max.ms                10000 10000 10000 10000 30000 30000 30000 30000
    ssl.endpoint.identification.algorithm  - - - https https https https https
    transaction.abort.timed.out.transaction.cleanup.interval.ms 60000 60000 60000 60000 10000 10000 10000 10000
    unclean.leader.election.enable         true false false false false false false false
    zookeeper.session.timeout.ms           6000 6000 6000 6000 18000 18000 removed removed
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
    "2.8": """
        connection.failed.authentication.delay.ms connections.max.reauth.ms log.cleaner.max.compaction.lag.ms
        replica.selector.class ssl.principal.mapping.rules ssl.keystore.key ssl.keystore.certificate.chain
        ssl.truststore.certificates
    """,
    "3.9": """
        group.consumer. sasl.oauthbearer. sasl.server.max.receive.size
    """,
    "4.4": """
        errors.deadletterqueue. group.share. share.
    """,
}
# Settings, and prefixes, that a release removed; those of topics.
SETTINGS_UNTIL = {
    "3.9": """
        advertised.host.name advertised.port host.name port quota.consumer.default quota.producer.default
        zookeeper.sync.time.ms
    """,
    "4.0": """
        broker.id.generation.enable controlled.shutdown.max.retries controlled.shutdown.retry.backoff.ms
        delegation.token.master.key inter.broker.protocol.version leader.imbalance.per.broker.percentage
        log.message.downconversion.enable log.message.format.version log.message.timestamp.difference.max.ms
        offsets.commit.required.acks password.encoder. reserved.broker.max.id zookeeper.
    """,
}
TOPIC_CONFIGS_UNTIL = {
    "4.0": "message.downconversion.enable message.format.version message.timestamp.difference.max.ms"
}
TOPIC_CONFIGS_SINCE = {
    "2.0": "message.downconversion.enable",
    "2.8": "max.compaction.lag.ms",
    "4.4": "errors.deadletterqueue.group.enable",
}

# The types of resources that have configs, besides topics and brokers, by the release that brought them: loggers of a
# broker, client metrics, groups.
RESOURCE_TYPES_SINCE = {8: "2.8", 16: "3.9", 32: "4.0"}

# The greatest error code of each release. ERRORS_INSTEAD replaces some of the later codes, UNKNOWN_SERVER_ERROR the
# others.
LAST_ERRORS = {"0.10": 44, "0.11": 55, "1.1": 71, "2.0": 72, "2.8": 104, "3.9": 127, "4.0": 129, "4.4": 136}
ERRORS_INSTEAD = {59: 45}  # UNKNOWN_PRODUCER_ID, OUT_OF_ORDER_SEQUENCE_NUMBER


class Habit(Enum):
    """Other differences of a release that clients can notice, in the words of docs/profiles.md."""

    KNOWS_NO_BATCHES = "Produce of a record batch of magic 2 is CORRUPT_MESSAGE"
    CALLS_SYNCING_AWAITING = "DescribeGroups calls the state CompletingRebalance AwaitingSync"
    CHANGES_NO_BROKERS = "AlterConfigs of a broker is INVALID_REQUEST, and DescribeConfigs calls its settings read-only"
    LOOKS_AT_TOPICS_ONLY = "DescribeConfigs calls a topic's config a default unless that topic sets it"
    HIDES_TOPICS = "a topic that a client may not describe is UNKNOWN_TOPIC_OR_PARTITION to it"
    HOLDS_ANSWERS_BACK = "an answer beyond a quota is held back for its throttle time, a Fetch's with its records"
    REFUSES_STRANGERS = "a Fetch of a broker that is not a replica is UNKNOWN_SERVER_ERROR, for all its partitions"
    COMMITS_TO_MISSING_PARTITIONS = "OffsetCommit accepts partitions that an existing topic does not have"
    DESCRIBES_MISSING_TOPICS = "DescribeConfigs of a missing topic answers with the defaults"
    ADDS_MISSING_PARTITIONS = "AddPartitionsToTxn adds partitions that an existing topic does not have"
    READS_MISSING_PARTITIONS = "Fetch answers a partition that an existing topic does not have in its place, not last"
    CONVERTS_AT_ONCE = "records for an old consumer end with a whole one, and may be more than it asked for"
    DEBUGS_REPLICAS = "ListOffsets of a debugger (replica -2) for a missing partition is REPLICA_NOT_AVAILABLE"
    CLOSES_FOR_NEGATIVE_TYPES = (
        "DescribeConfigs and AlterConfigs close the connection for a negative resource type, and repeat those up to 4"
    )
    DELETION_TIMES_OUT = "DeleteTopics is REQUEST_TIMED_OUT where delete.topic.enable is false"
    HIDES_UNKNOWN_TYPES = "DescribeConfigs and AlterConfigs call a resource type that they do not know UNKNOWN"
    FAILS_FOR_MISSING_TOPICS = "AlterConfigs of a missing topic is UNKNOWN_SERVER_ERROR"
    SHOWS_LAST_STABLE_OFFSET = (
        "Fetch has the last stable offset for read_uncommitted too, and no aborted transaction without records to read"
    )
    WAITS_FOR_MAX_BYTES = "a Fetch waits for no more than its `max_bytes`, if its `min_bytes` is more"
    KEEPS_WHILE_SYNCING = "Heartbeat while the leader assigns is NONE in every version, and keeps its member"
    REMEMBERS_PRODUCERS = "a producer whose records are deleted, or unknown, may begin anywhere, in every version"
    NAMES_TRANSACTIONS = (
        "Produce of a transaction without its id is TRANSACTIONAL_ID_AUTHORIZATION_FAILED in every version"
    )
    DESCRIBES_WITH_MESSAGE = "DescribeConfigs has an empty message in place of none"
    HAS_COMMON_MESSAGES = "DescribeConfigs and FindCoordinator of an unknown type have the message of all bad requests"
    REFUSES_KEY_TYPES = "FindCoordinator of an unknown type of key is INVALID_REQUEST in every version"
    TAKES_NEGATIVE_TIMES = "ListOffsets takes a timestamp below -2 for a time"
    ANSWERS_ALIKE = "a version that 2.0 has is answered as later ones; message.format.version has no effect"
    CALLS_RECORDS_INVALID = "Produce of a record that is not valid is INVALID_RECORD, in every version"
    FINDS_WITH_MESSAGE = "FindCoordinator v1 to v3 has the message NONE beside the coordinator"
    NAMES_NO_GENERATION = "a refused JoinGroup has the generation -1"
    ASKS_FOR_MEMBER_FIRST = "OffsetCommit while the leader assigns is UNKNOWN_MEMBER_ID from a client that is no member"
    KNOWS_BROKERS = "CreateTopics with replicas on a broker that is not there is INVALID_REPLICA_ASSIGNMENT"
    HAS_NO_ZOOKEEPER = "OffsetCommit v0 and OffsetFetch v0 are UNSUPPORTED_VERSION"
    CREATES_BEHIND = "Metadata that has a topic created is UNKNOWN_TOPIC_OR_PARTITION for it"
    LISTS_EACH_ROW = "ListOffsets answers a partition as often as it is named"
    KEEPS_EMPTY_TOPICS = "OffsetForLeaderEpoch answers a topic without partitions"
    KNOWS_UNNAMED_GROUPS = (
        "the empty name is that of a group in SyncGroup, Heartbeat, LeaveGroup and TxnOffsetCommit, not in DeleteGroups"
    )
    SHOWS_STORED_GROUPS = "administrators see the group of a refused commit once anything is stored behind it"
    KEEPS_EMPTY_GROUPS = "a group stays when the topics of its last offsets are deleted"
    VERIFIES_ONCE = "a partition with an open transaction of a producer takes part in the next ones without being asked"
    ADDS_GROUPS_FIRST = "TxnOffsetCommit leaves an empty group behind if its transaction does not allow it"
    SHOWS_ASSIGNMENTS = "DescribeGroups has the assignments of a group that is not stable"
    CHECKS_NAMES = (
        "an invalid name is INVALID_TOPIC_EXCEPTION in Metadata, and in CreateTopics before all else but a taken one"
    )
    DELETES_ONCE = "DeleteTopics of a topic that is named twice is INVALID_REQUEST"
    BEGINS_NOTHING_LATE = "changes of topics, partitions and leaders without time are not begun: REQUEST_TIMED_OUT"
    FAILS_WITHOUT_NAME = "Metadata of a topic with neither a name nor an id is UNKNOWN_SERVER_ERROR"
    REFUSES_OLD_PRODUCE = "Produce before v3 closes the connection, though ApiVersions lists it from v0 on"
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
    Habit.REFUSES_STRANGERS: "1.1",
    Habit.COMMITS_TO_MISSING_PARTITIONS: "2.0",
    Habit.DESCRIBES_MISSING_TOPICS: "2.0",
    Habit.ADDS_MISSING_PARTITIONS: "2.0",
    Habit.READS_MISSING_PARTITIONS: "2.0",
    Habit.CONVERTS_AT_ONCE: "2.0",
    Habit.KNOWS_UNNAMED_GROUPS: "2.0",
    Habit.DEBUGS_REPLICAS: "2.0",
    Habit.CLOSES_FOR_NEGATIVE_TYPES: "2.0",
    Habit.DELETION_TIMES_OUT: "2.8",
    Habit.HIDES_UNKNOWN_TYPES: "2.8",
    Habit.FAILS_FOR_MISSING_TOPICS: "2.8",
    Habit.HAS_NO_DEFAULT_COUNTS: "2.8",
    Habit.TAKES_NEGATIVE_TIMES: "3.9",
    Habit.VERIFIES_ONCE: "4.0",
    Habit.LISTS_EACH_ROW: "4.0",
    Habit.ADDS_GROUPS_FIRST: "4.0",
}


# The first release with the habit.
HABITS_SINCE = {
    Habit.ADDS_MISSING_PARTITIONS: "1.1",
    Habit.CALLS_RECORDS_INVALID: "2.8",
    Habit.SHOWS_LAST_STABLE_OFFSET: "2.8",
    Habit.WAITS_FOR_MAX_BYTES: "2.8",
    Habit.KEEPS_WHILE_SYNCING: "2.8",
    Habit.REMEMBERS_PRODUCERS: "2.8",
    Habit.NAMES_TRANSACTIONS: "2.8",
    Habit.DESCRIBES_WITH_MESSAGE: "2.8",
    Habit.HAS_COMMON_MESSAGES: "2.8",
    Habit.REFUSES_KEY_TYPES: "2.8",
    Habit.ANSWERS_ALIKE: "3.9",
    Habit.FINDS_WITH_MESSAGE: "2.8",
    Habit.NAMES_NO_GENERATION: "2.8",
    Habit.ASKS_FOR_MEMBER_FIRST: "2.8",
    Habit.KNOWS_BROKERS: "3.9",
    Habit.HAS_NO_ZOOKEEPER: "3.9",
    Habit.CREATES_BEHIND: "3.9",
    Habit.LISTS_EACH_ROW: "2.8",
    Habit.KEEPS_EMPTY_TOPICS: "2.8",
    Habit.SHOWS_STORED_GROUPS: "4.0",
    Habit.KEEPS_EMPTY_GROUPS: "4.0",
    Habit.SHOWS_ASSIGNMENTS: "4.0",
    Habit.CHECKS_NAMES: "3.9",
    Habit.DELETES_ONCE: "3.9",
    Habit.BEGINS_NOTHING_LATE: "3.9",
    Habit.FAILS_WITHOUT_NAME: "3.9",
    Habit.VERIFIES_ONCE: "3.9",
    Habit.ADDS_GROUPS_FIRST: "3.9",
    Habit.REFUSES_OLD_PRODUCE: "4.0",
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
    has_features: bool  # whether it answers ApiVersions with features that transactions and groups have

    @property
    def resource_types(self) -> tuple[int, ...]:
        """The types of resources that have configs, besides topics and brokers."""
        return tuple(kind for kind, since in RESOURCE_TYPES_SINCE.items() if self.is_since(since))

    def is_since(self, release: str) -> bool:
        """Whether it has what a release of Kafka brought."""
        return self.release is None or message_format(release) <= message_format(self.release)

    def first_of(self, version: int, habit: Habit = Habit.ANSWERS_ALIKE) -> int:
        """The first version of an API that has what came with `version`: all have it with the habit."""
        return 0 if habit in self.habits else version

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
        has_large_segments = message_format(self.release) >= FIRST_WITH_LARGE_SEGMENTS
        if name == "segment.bytes" and has_large_segments and int(text) < LEAST_SEGMENT_BYTES:
            return f"Invalid value {text} for configuration {name}: Value must be at least {LEAST_SEGMENT_BYTES}"
        knows_zstd = message_format(self.release) >= FIRST_WITH_ZSTD
        if name == "compression.type" and text.strip() == "zstd" and not knows_zstd:
            allowed = "uncompressed, snappy, lz4, gzip, producer"
            return f"Invalid value zstd for configuration {name}: String must be one of: {allowed}"
        if name == "message.format.version" and message_format(text) > message_format(self.release):
            return f"Version `{text}` is not a valid version"
        return None


EVERYTHING = Profile("", None, None, {}, (), frozenset(), frozenset(), has_features=True)


def profile_of(name: str) -> Profile:
    """The release that `--act-as` names. Raises KeyError."""
    release, column = RELEASES[name], list(RELEASES).index(name)
    return Profile(
        name,
        release,
        last_error=LAST_ERRORS[name],
        defaults={
            setting: None if values[column] == ABSENT else values[column]
            for setting, *values in rows_of(DEFAULTS)
            if values[column] != REMOVED
        },
        unknown_settings=tuple(since_or_until(name, SETTINGS_SINCE, SETTINGS_UNTIL)),
        unknown_topic_configs=frozenset(since_or_until(name, TOPIC_CONFIGS_SINCE, TOPIC_CONFIGS_UNTIL)),
        habits=frozenset(habit for habit in Habit if has_habit(name, habit)),
        has_features=FIRST_WITH_FEATURES not in after(name),
    )


def has_habit(name: str, habit: Habit) -> bool:
    later = after(name)
    return HABITS_SINCE.get(habit) not in later and (habit not in HABITS_UNTIL or HABITS_UNTIL[habit] in later)


def since_or_until(name: str, since: Mapping[str, str], until: Mapping[str, str]) -> list[str]:
    """Return the names that a release lacks: later ones brought them, or earlier ones removed them."""
    later = after(name)
    brought = [each for release, names in since.items() if release in later for each in names.split()]
    return brought + [each for release, names in until.items() if release not in later for each in names.split()]


def rows_of(table: str) -> list[list[str]]:
    return [line.split() for line in table.strip().splitlines()]


def after(name: str) -> set[str]:
    """The releases after one."""
    return {*list(RELEASES)[list(RELEASES).index(name) + 1 :]}


def message_format(version: str) -> tuple[int, ...]:
    """The part of a release's number that names its message format: 0.10.2 for 0.10.2.2, 1.1 for 1.1.1."""
    found = VERSION_NUMBERS.match(version.strip())
    numbers = tuple(map(int, found[0].split("."))) if found else ()
    return numbers[: 3 if numbers[:1] == (0,) else 2]
