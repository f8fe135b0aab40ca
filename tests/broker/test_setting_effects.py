"""Each setting of a broker and of topics that is not named as one without effect has one: it is changed and looked at.

A setting may be read and described, and still change nothing. The conversations of `effects.txt` are answered otherwise
with it; `EFFECTS` looks at what no client sees; `SEEN_ELSEWHERE` names the tests that need sockets, TLS or logins.
"""

from __future__ import annotations

import inspect
import pkgutil
import re
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import pytest
import trio
from trio.testing import MockClock

from minibroker.broker.app import BrokerApp
from minibroker.broker.config.settings.changeable import CHANGEABLE, PER_BROKER, SETTINGS, THREADS
from minibroker.broker.config.settings.unused import reason_unused
from minibroker.broker.upkeep.compaction import Compaction
from minibroker.broker.upkeep.upkeep import Upkeep
from minibroker.broker.wings.security.logins import logins_of
from minibroker.broker.wings.security.sasl.users import ScramUsers
from minibroker.protocol.api import ApiKey
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.record import Record
from minibroker.protocol.record_batch import build_batch
from minibroker.purgatory.delayed_operation import DelayedOperation
from minibroker.purgatory.purgatory import Purgatory
from minibroker.storage.config import TOPIC_CONFIGS
from tests.books import read_book
from tests.books.conversations import FOLDER, held
from tests.broker.asking import BROKER
from tests.broker.conftest import NOW_MS, InMemoryBroker, MakeBroker
from tests.broker.transactional import FEW, Producer
from tests.requests import produce_body

pytestmark = pytest.mark.pure

TESTS = Path(__file__).parent.parent
REPLICA = "minibroker.broker.replica"
CLEANER = "minibroker.storage.compaction.log_cleaner_manager.LogCleanerManager"
OAUTHBEARER = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
HOUR_MS = 3_600_000
WEEK_MS = 7 * 24 * HOUR_MS
Look = Callable[[InMemoryBroker], Awaitable[object]]


class Effect(NamedTuple):
    """A value of a setting, and what shows it; `beside` are settings that both brokers have."""

    value: object
    look: Look
    beside: Mapping[str, object] = MappingProxyType({})


async def write(broker: InMemoryBroker, *times_ms: int, key: bytes | None = b"k", version: int = 7) -> list[int]:
    """Append a batch for each time; return the error codes."""
    if "t" not in broker.parts.metadata_cache.topics:
        await broker.create_topic("t")
    codes = []
    for time_ms in times_ms:
        batch = build_batch([Record(0, time_ms, key, b"v" * 100)])
        codes.append((await broker.write("t", batch, acks=-1, version=version)).error_code)
    return codes


async def segments(broker: InMemoryBroker, *, after_ms: int = 0) -> object:
    await write(broker, *(NOW_MS,) * 9, NOW_MS + after_ms)
    log = broker.log_of("t")
    return list(log.segments.bases), log.segments.first.offset_index.entries


async def left_after_hours(broker: InMemoryBroker) -> object:
    await write(broker, *(NOW_MS,) * 9)
    broker.parts.replica_manager.log_manager.cleanup_logs(NOW_MS + 2 * HOUR_MS)
    return broker.log_of("t").log_start_offset


async def space_taken(broker: InMemoryBroker) -> object:
    await write(broker, NOW_MS)
    return (broker.log_of("t").directory / f"{0:020d}.log").stat().st_size


async def fsynced_to(broker: InMemoryBroker) -> object:
    await write(broker, NOW_MS)
    broker.parts.replica_manager.log_manager.flush_dirty_logs(NOW_MS + HOUR_MS)
    return broker.log_of("t").recovery_point


async def files_kept(broker: InMemoryBroker) -> object:
    await write(broker, NOW_MS)
    log = broker.log_of("t")
    log.delete_old_segments(NOW_MS + 2 * WEEK_MS)
    return bool(log.segments.take_deleted(NOW_MS + 2 * WEEK_MS + 1000))


class Recorded:
    """In place of the logs: counts the calls of periodic work."""

    is_offline = False
    delete_check_interval_ms = HOUR_MS

    def __init__(self) -> None:
        self.calls: dict[str, int] = {}

    def surviving_errors(self) -> AbstractContextManager[None]:
        return nullcontext()

    def __getattr__(self, name: str) -> Callable[..., None]:
        def call(*_: object) -> None:
            self.calls[name] = self.calls.get(name, 0) + 1

        return call


async def work_in(broker: InMemoryBroker, seconds: float = 1.05) -> object:
    logs: Any = Recorded()
    with trio.move_on_after(seconds):
        await Upkeep(broker.parts.config, logs, broker.clock).run()
    return logs.calls


class Never(DelayedOperation):
    """An operation that nothing completes."""

    def try_complete(self) -> bool:
        return False


async def purged(broker: InMemoryBroker, name: str) -> object:
    """Return what a purgatory keeps of three waits that are over."""
    purgatory: Purgatory = getattr(broker.parts.replica_manager, f"{name}_purgatory")
    for _ in range(3):
        operation = Never(1000)
        purgatory.try_complete_else_watch(operation, ["key"], 0)
        purgatory.cancel(operation)
    return purgatory.watched


async def commit(broker: InMemoryBroker, metadata: str = "m", version: int = 2) -> int:
    await broker.create_topic("t")
    await broker.call(ApiKey.FIND_COORDINATOR, 1, key="g", key_type=0)
    body: dict[str, Any] = {"group_id": "g", "generation_id": -1, "retention_time_ms": -1}
    answer = await broker.call(ApiKey.OFFSET_COMMIT, version, **body, topics=[("t", [(0, 1, -1, -1, metadata)])])
    return int(answer.topics[0].partitions[0].error_code)


async def arguments_of(target: str, act: Callable[[], Awaitable[object]], *names: str) -> object:
    """Values that a part is given which no client sees: the arguments of the calls of `target` while `act` runs."""
    calls: list[tuple[Any, ...]] = []
    module, _, name = target.rpartition(".")
    original = getattr(pkgutil.resolve_name(module), name)

    def noting(*args: Any, **options: Any) -> Any:
        bound = inspect.signature(original).bind(*args, **options).arguments
        calls.append(tuple(bound[each] for each in names))
        return original(*args, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(target, noting)
        await act()
    return calls


async def loaded_at_a_time(broker: InMemoryBroker) -> object:
    """How much a coordinator reads at a time when the broker starts."""
    await commit(broker)
    await broker.call(ApiKey.FIND_COORDINATOR, 1, key="t", key_type=1)
    broker.close()

    async def restart() -> None:
        again = BrokerApp(broker.parts.config, broker.clock)
        again.load()
        again.close(again.build())

    return await arguments_of(f"{REPLICA}.coordinator_log.CoordinatorLog.read_batches", restart, "load_bytes")


async def appended_commit(broker: InMemoryBroker) -> object:
    append = f"{REPLICA}.replica_manager.ReplicaManager.append"
    return await arguments_of(append, partial(commit, broker), "required_acks", "timeout_ms")


async def compaction(broker: InMemoryBroker) -> object:
    """How a dirty log is compacted."""
    await broker.create_topic("t", cleanup_policy="compact")
    await write(broker, *(NOW_MS,) * 3)
    broker.log_of("t").roll(NOW_MS)
    made = Compaction(broker.parts.config, broker.parts.replica_manager.log_manager, broker.clock)

    async def run() -> None:
        with trio.move_on_after(1.05):
            await made.run()

    configs = await arguments_of("minibroker.broker.upkeep.compaction.LogCleaning", run, "config")
    return configs, made._pace._max_bytes_per_second


async def looks_for_dirty_logs(broker: InMemoryBroker) -> object:
    logs = broker.parts.replica_manager.log_manager

    async def run() -> None:
        with trio.move_on_after(1.05):
            await Compaction(broker.parts.config, logs, broker.clock).run()

    return await arguments_of(f"{CLEANER}.grab_filthiest_log", run)


async def work_of_coordinators(broker: InMemoryBroker) -> object:
    """The intervals of the periodic work that is not on logs alone."""
    config = broker.parts.config
    logs = broker.parts.replica_manager.log_manager

    async def start() -> None:
        async with trio.open_nursery() as nursery:
            broker.app._start_upkeep(broker.parts, nursery, Compaction(config, logs, broker.clock))
            nursery.cancel_scope.cancel()

    return await arguments_of("minibroker.broker.upkeep.upkeep.Upkeep.every", start, "interval_ms")


async def checks_of_tokens(broker: InMemoryBroker) -> object:
    config = broker.parts.config

    async def listen() -> None:
        logins_of(config, ScramUsers(broker.state), broker.parts.timers)

    of_tokens = ("audiences", "issuer", "skew_ms", "user_claim")
    tokens = await arguments_of("minibroker.broker.wings.security.sasl.mechanisms.SignedTokens", listen, *of_tokens)
    network = await arguments_of(
        "minibroker.broker.wings.security.logins.Logins", listen, "failure_delay_ms", "max_token_bytes"
    )
    return tokens, network


async def forgotten_producer(broker: InMemoryBroker) -> object:
    """Whether a log knows a producer after two hours."""
    await broker.create_topic("t")
    producer = Producer(broker)
    producer.producer_id, producer.epoch = 7, 0
    assert await producer.write("t", b"1", is_transactional=False) is ErrorCode.NONE
    broker.parts.replica_manager.log_manager.remove_expired_producers(NOW_MS + 2 * HOUR_MS)
    return await producer.write("t", b"2", is_transactional=False)


async def forgotten_id(broker: InMemoryBroker) -> object:
    """Whether the coordinator knows an id after two hours, and a minute."""
    broker.parts.topic_admin.ensure_internal_topic("__transaction_state")
    assert await Producer(broker).initialize() is ErrorCode.NONE
    broker.clock.wall_now_ms += 2 * WEEK_MS
    await trio.sleep(61)
    return list(broker.parts.transactions.transactions)


async def aborted_in_a_second(broker: InMemoryBroker) -> object:
    broker.parts.topic_admin.ensure_internal_topic("__transaction_state")
    await broker.create_topic("t")
    await trio.sleep(1.5)  # beyond the look soon after the start
    producer = Producer(broker, timeout_ms=1000)
    await producer.initialize()
    await producer.send("t", b"1")
    broker.clock.wall_now_ms += 1001
    await trio.sleep(1.1)
    return broker.parts.transactions.transactions["t"].state


async def throttled(broker: InMemoryBroker) -> object:
    await broker.create_topic("t")
    times = []
    for _ in range(3):
        batch = build_batch([Record(0, NOW_MS, None, b"v" * 10_000)])
        answer = await broker.call(ApiKey.PRODUCE, 6, **produce_body("t", batch, acks=1))
        times.append(answer.throttle_time_ms > 0)
        times.append((await broker.fetch(("t", 0, 0))).throttle_time_ms > 0)
    return times


OF_TOKENS: dict[str, object] = {
    "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
    "security.inter.broker.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism.inter.broker.protocol": "OAUTHBEARER",
    "sasl.enabled.mechanisms": "OAUTHBEARER",
    "sasl.oauthbearer.jwks.endpoint.url": Path(__file__).as_uri(),  # a file that is there
    "listener.name.sasl_plaintext.oauthbearer.sasl.jaas.config": f"{OAUTHBEARER} required;",
}
EFFECTS: dict[str, Effect] = {
    "log.retention.check.interval.ms": Effect(1000, work_in),
    "log.flush.scheduler.interval.ms": Effect(100, partial(work_in, seconds=0.5)),
    "log.flush.offset.checkpoint.interval.ms": Effect(1000, work_in),
    "log.flush.start.offset.checkpoint.interval.ms": Effect(1000, work_in),
    "replica.high.watermark.checkpoint.interval.ms": Effect(1000, work_of_coordinators),
    "offsets.retention.check.interval.ms": Effect(1000, work_of_coordinators),
    "log.cleaner.enable": Effect(False, compaction),
    "log.cleaner.backoff.ms": Effect(100, looks_for_dirty_logs),
    "log.cleaner.dedupe.buffer.size": Effect(10_000_000, compaction),
    "log.cleaner.io.buffer.size": Effect(1000, compaction),
    "log.cleaner.io.buffer.load.factor": Effect(0.5, compaction),
    "log.cleaner.io.max.bytes.per.second": Effect(1e9, compaction),
    "fetch.purgatory.purge.interval.requests": Effect(0, partial(purged, name="fetch")),
    "producer.purgatory.purge.interval.requests": Effect(0, partial(purged, name="produce")),
    "delete.records.purgatory.purge.interval.requests": Effect(1000, partial(purged, name="delete_records")),
    "offsets.commit.required.acks": Effect(1, appended_commit),
    "offsets.commit.timeout.ms": Effect(1, appended_commit),
    "offsets.load.buffer.size": Effect(1, loaded_at_a_time),
    "transaction.state.log.load.buffer.size": Effect(1, loaded_at_a_time),
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": Effect(1000, aborted_in_a_second),
    "transaction.remove.expired.transaction.cleanup.interval.ms": Effect(60_000, forgotten_id),
    "transactional.id.expiration.ms": Effect(HOUR_MS, forgotten_producer),
    "connection.failed.authentication.delay.ms": Effect(1, checks_of_tokens, OF_TOKENS),
    "sasl.server.max.receive.size": Effect(1000, checks_of_tokens, OF_TOKENS),
    "sasl.oauthbearer.expected.audience": Effect("us", checks_of_tokens, OF_TOKENS),
    "sasl.oauthbearer.expected.issuer": Effect("them", checks_of_tokens, OF_TOKENS),
    "sasl.oauthbearer.clock.skew.seconds": Effect(1, checks_of_tokens, OF_TOKENS),
    "sasl.oauthbearer.sub.claim.name": Effect("user", checks_of_tokens, OF_TOKENS),
}
# By the file of tests that changes it, below tests/.
SEEN_ELSEWHERE = {
    "broker/test_kafka_config.py": "log.dir log.dirs",
    "golden/settings/values.txt": "broker.id.generation.enable reserved.broker.max.id",
    "golden/settings/listeners.txt": "listeners listener.security.protocol.map host.name port",
    "broker/test_several_brokers.py": "offsets.topic.replication.factor transaction.state.log.replication.factor"
    " transaction.state.log.min.isr auto.leader.rebalance.enable leader.imbalance.check.interval.seconds"
    " leader.imbalance.per.broker.percentage",
    "golden/conversations/beside.txt": "replica.selector.class",
    "broker/test_member.py": "zookeeper.session.timeout.ms",
    "broker/test_main.py": "zookeeper.connect zookeeper.connection.timeout.ms zookeeper.set.acl",
    "broker/test_peer.py": "controller.socket.timeout.ms",
    "broker/test_peer_login.py": "sasl.mechanism.inter.broker.protocol ssl.endpoint.identification.algorithm",
    "broker/test_tls.py": "ssl.client.auth ssl.enabled.protocols ssl.cipher.suites ssl.principal.mapping.rules"
    " ssl.keystore.location ssl.keystore.type",
    "golden/settings/key_stores.txt": "ssl.keystore.password ssl.key.password ssl.keystore.key"
    " ssl.keystore.certificate.chain ssl.truststore.location ssl.truststore.type ssl.truststore.password"
    " ssl.truststore.certificates",
    "conformance/acl_matrix.py": "authorizer.class.name allow.everyone.if.no.acl.found",
    "fetch_path/test_rows_84_to_91_connections.py": "socket.request.max.bytes connections.max.idle.ms"
    " max.connections.per.ip max.connections.per.ip.overrides",
    "integration/test_many_connections.py": "queued.max.request.bytes",
    "integration/test_serve.py": "socket.send.buffer.bytes socket.receive.buffer.bytes",
    "broker/test_sasl_settings.py": "sasl.enabled.mechanisms sasl.oauthbearer.jwks.endpoint.url"
    " connections.max.reauth.ms",
    "golden/conversations/authorization.txt": "super.users",
    "golden/conversations/kafka-2.0.1/followers.txt": "replica.lag.time.max.ms",
    "broker/test_fetcher.py": "num.replica.fetchers replica.fetch.wait.max.ms replica.fetch.min.bytes"
    " replica.fetch.max.bytes replica.fetch.response.max.bytes replica.fetch.backoff.ms replica.socket.timeout.ms"
    " inter.broker.listener.name security.inter.broker.protocol"
    " replication.quota.window.num replication.quota.window.size.seconds"
    " leader.replication.throttled.replicas follower.replication.throttled.replicas",
    "integration/test_mixed_controllers.py": "inter.broker.protocol.version",
    "broker/test_offset_store.py": "offsets.topic.compression.codec",
    "golden/conversations/consumer_groups.txt": "group.consumer.migration.policy",
    "golden/conversations/share_groups.txt": "group.share.max.size group.share.max.share.sessions"
    " errors.deadletterqueue.group.enable errors.deadletterqueue.topic.name.prefix"
    " errors.deadletterqueue.auto.create.topics.enable"
    " group.share.heartbeat.interval.ms group.share.min.heartbeat.interval.ms group.share.max.heartbeat.interval.ms"
    " group.share.session.timeout.ms group.share.min.session.timeout.ms group.share.max.session.timeout.ms"
    " group.share.record.lock.duration.ms group.share.min.record.lock.duration.ms"
    " group.share.max.record.lock.duration.ms group.share.delivery.count.limit"
    " group.share.min.delivery.count.limit group.share.max.delivery.count.limit"
    " group.share.partition.max.record.locks group.share.min.partition.max.record.locks"
    " group.share.max.partition.max.record.locks share.coordinator.state.topic.num.partitions"
    " share.coordinator.state.topic.replication.factor share.coordinator.state.topic.min.isr"
    " share.coordinator.state.topic.segment.bytes share.coordinator.snapshot.update.records.per.snapshot",
    "broker/test_consumer_groups.py": "group.consumer.regex.refresh.interval.ms"
    " group.consumer.min.session.timeout.ms group.consumer.max.session.timeout.ms"
    " group.consumer.min.heartbeat.interval.ms group.consumer.max.heartbeat.interval.ms"
    " group.consumer.min.assignment.interval.ms group.consumer.max.assignment.interval.ms",
    "storage/test_log_cleaner_manager.py": "min.compaction.lag.ms max.compaction.lag.ms min.cleanable.dirty.ratio",
    "golden/histories/compaction.txt": "delete.retention.ms",
}
OF_TOPICS: dict[str, Effect] = {
    "segment.bytes": Effect(300, segments),
    "segment.ms": Effect(1000, partial(segments, after_ms=HOUR_MS)),
    "segment.jitter.ms": Effect(WEEK_MS, partial(segments, after_ms=WEEK_MS - 1)),
    "segment.index.bytes": Effect(16, segments, {"log.index.interval.bytes": 0}),
    "index.interval.bytes": Effect(0, segments),
    "flush.messages": Effect(1, fsynced_to),
    "flush.ms": Effect(1000, fsynced_to),
    "retention.bytes": Effect(0, left_after_hours),
    "retention.ms": Effect(HOUR_MS, left_after_hours),
    "file.delete.delay.ms": Effect(500, files_kept),
    "preallocate": Effect(True, space_taken, {"log.segment.bytes": 100_000}),
}
WITHOUT_EFFECT = {
    "unclean.leader.election.enable",
}
CONVERSATIONS = read_book(FOLDER / "effects.txt")
CHANGES = [(title, name) for title, script in CONVERSATIONS.scripts.items() for name in script.changes]
DEFAULTS_OF_TOPICS = {name: row for row in TOPIC_CONFIGS.values() for name in row.server_names}


def test_each_setting_has_an_effect_or_is_named_as_one_without() -> None:
    elsewhere = {name for names in SEEN_ELSEWHERE.values() for name in names.split()} | {name for _, name in CHANGES}
    used = {name for name in SETTINGS if reason_unused(name) is None}

    assert used - EFFECTS.keys() - elsewhere - DEFAULTS_OF_TOPICS.keys() == set()
    assert TOPIC_CONFIGS.keys() - OF_TOPICS.keys() - elsewhere == WITHOUT_EFFECT
    for path, names in SEEN_ELSEWHERE.items():
        text = (TESTS / path).read_text(encoding="utf-8")
        unseen = [name for name in names.split() if not re.search(rf"\b{name.replace('.', '[._]')}\b", text)]
        assert unseen == [], path


@pytest.mark.time_jumps
@pytest.mark.parametrize(("title", "name"), CHANGES)
async def test_a_conversation_is_answered_otherwise_with_another_setting(
    make_broker: MakeBroker, title: str, name: str
) -> None:
    script = CONVERSATIONS.scripts[title]

    assert await held(make_broker, CONVERSATIONS, script.changed(name)) != script.text.rstrip("\n")


@pytest.mark.parametrize("name", EFFECTS)
async def test_a_setting_of_the_broker_has_an_effect(
    make_broker: MakeBroker, autojump_clock: MockClock, name: str
) -> None:
    value, look, beside = EFFECTS[name]

    seen = [await look(make_broker(**FEW, **beside, **more)) for more in ({}, {name: value})]

    assert seen[0] != seen[1]


@pytest.mark.parametrize("name", OF_TOPICS)
async def test_a_config_of_a_topic_has_an_effect(make_broker: MakeBroker, name: str) -> None:
    value, look, beside = OF_TOPICS[name]
    plain, changed = make_broker(**beside), make_broker(**beside)
    config: dict[str, Any] = {name: str(value).lower() if isinstance(value, bool) else value}
    await changed.create_topic("t", **config)

    assert await look(plain) != await look(changed)


# Values other than the defaults, for settings that do not take "5".
VALUES = {
    "compression.type": "gzip", "log.cleanup.policy": "compact", "log.message.format.version": "1.1",
    "log.message.timestamp.type": "LogAppendTime", "log.cleaner.min.cleanable.ratio": "0.25",
    "unclean.leader.election.enable": "true", "log.preallocate": "true", "log.message.downconversion.enable": "false",
    "log.segment.bytes": "100000",
}  # fmt: skip
# The cleaner's own, which compaction reads off the broker's configuration for each log; and reporters: refused.
NOT_OF_LOGS = {
    *(f"log.cleaner.{name}" for name in ("backoff.ms", "dedupe.buffer.size", "io.buffer.load.factor", "threads")),
    *(f"log.cleaner.io.{name}" for name in ("buffer.size", "max.bytes.per.second")),
    "metric.reporters",
}


@pytest.mark.parametrize("name", DEFAULTS_OF_TOPICS)
async def test_a_setting_of_the_broker_is_the_default_of_topics(make_broker: MakeBroker, name: str) -> None:
    attribute, value = DEFAULTS_OF_TOPICS[name].attribute, VALUES.get(name, "5")
    beside = {"log.segment.bytes": 100_000} if name == "log.preallocate" else {}
    configs = []
    for broker in (make_broker(**beside), make_broker(**beside, **{name: value})):
        await broker.create_topic("t")
        configs.append(getattr(broker.log_of("t").config, attribute))

    assert configs[0] != configs[1]


@pytest.mark.parametrize("whose", ["0", ""], ids=["of this broker", "of all brokers"])
@pytest.mark.parametrize("name", sorted(CHANGEABLE & DEFAULTS_OF_TOPICS.keys()))
async def test_an_open_log_has_a_changed_default_at_once(make_broker: MakeBroker, name: str, whose: str) -> None:
    broker, attribute = make_broker(**{"log.segment.bytes": 200_000}), DEFAULTS_OF_TOPICS[name].attribute
    await broker.create_topic("t")
    log = broker.log_of("t")
    before = getattr(log.config, attribute)

    resources = [(BROKER, whose, [(name, 0, VALUES.get(name, "5"))])]
    answer = await broker.call(ApiKey.INCREMENTAL_ALTER_CONFIGS, 0, resources=resources, validate_only=False)

    assert answer.responses[0].error_code == ErrorCode.NONE
    assert getattr(log.config, attribute) != before


def test_no_setting_that_may_be_changed_is_left_out() -> None:
    assert (CHANGEABLE & DEFAULTS_OF_TOPICS.keys()) | NOT_OF_LOGS == CHANGEABLE - PER_BROKER - THREADS
