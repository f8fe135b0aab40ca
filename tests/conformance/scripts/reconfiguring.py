"""An administrator's changes of a running broker: for it alone, and for every broker."""

from __future__ import annotations

from tests.conformance.asking import batch, create, fetch, produce, settings
from tests.conformance.scripts.changing import BROKER, TOPIC, Row, alter, describe, settle
from tests.conformance.steps import Script, Step, call


def alter_broker(version: int, name: str, mark: str, *rows: Row) -> Step:
    """Change this broker's settings, or those of all, so that Apache Kafka 2.0.1 notices.

    It does not when settings are only taken back (docs/differences.md): the mark changes each time.
    """
    return alter(version, (BROKER, name, [*rows, (f"mark.of.{name or 'all'}", mark)]))


SINGLE_WISHES = settings("""
    log.retention.ms=-1 log.retention.ms=x log.retention.ms=0 log.retention.hours=5 log.roll.hours=5
    num.partitions=5 broker.id=5 max.connections.per.ip=5 log.message.format.version=0.10.0 no.such=5
    compression.type=bogus min.insync.replicas=0 message.max.bytes=-1 log.segment.bytes=13 log.roll.ms=0
    log.cleanup.policy=delete,compact log.cleaner.dedupe.buffer.size=1 log.cleaner.io.buffer.load.factor=x
    unclean.leader.election.enable=maybe background.threads=4 background.threads=21
    num.recovery.threads.per.data.dir=0 metric.reporters= metric.reporters=no.such.Class
    principal.builder.class=no.such.Class ssl.keystore.location=x ssl.key.password=x ssl.protocol=TLS
    sasl.jaas.config=x listener.name.x.ssl.keystore.location=x listener.name.x.ssl.keystore.password=x
    listener.name.x.scram.sasl.jaas.config=x advertised.listeners=PLAINTEXT://h:1
    leader.replication.throttled.rate=5 leader.replication.throttled.rate=x follower.replication.throttled.rate=-1
    replica.alter.log.dirs.io.max.bytes.per.second=5
""")
BROKER_WISHES: list[list[Row]] = [*([wish] for wish in SINGLE_WISHES), []]


def wrong_broker_changes() -> Script:
    script: Script = []
    for version in range(2):
        for wish in BROKER_WISHES:
            script += [alter(version, (BROKER, name, wish), validate_only=True) for name in ("0", "")]
        script += [alter(version, (BROKER, name, []), validate_only=True) for name in ("1", "-1", "x", "00", "0.0")]
    script += [
        alter(1, (BROKER, "0", [("sasl.jaas.config", "x")])),
        alter(1, (BROKER, "0", [("listener.name.x.ssl.keystore.password", "x")])),
        alter(1, (BROKER, "0", [("num.partitions", "7")]), (BROKER, "", [("log.roll.ms", "0")])),
        describe((BROKER, "0", ["num.partitions", "log.roll.ms", "sasl.jaas.config"]), (BROKER, "", BROKER_KEYS)),
    ]
    return script


BROKER_KEYS = """
    log.retention.ms log.retention.hours log.segment.bytes log.retention.bytes no.such other.such
    leader.replication.throttled.rate follower.replication.throttled.rate listener.name.x.ssl.keystore.location
    ssl.keystore.location min.insync.replicas log.roll.ms log.roll.hours
""".split()


def changed_broker() -> Script:
    """For all brokers, for this one, and taken back: to values that change nothing for those who come after."""
    seen: list[Step] = [
        describe((BROKER, "", ["mark.of.all", *BROKER_KEYS])),
        describe((BROKER, "", ["log.segment.bytes", "num.partitions", "log.retention.bytes"])),
        describe((BROKER, "0", BROKER_KEYS)),
        describe((TOPIC, "@a", ["retention.ms", "segment.bytes", "retention.bytes", "segment.ms"])),
        describe((TOPIC, "@a", None), version=1, include_synonyms=False),
        call("DescribeConfigs", 0, resources=[(BROKER, "0", BROKER_KEYS), (TOPIC, "@a", None)]),
    ]
    script: Script = [create("@a", retention_bytes=77), *seen]
    for_all = settings("""
        log.segment.bytes=1073741823 log.retention.ms=90000000000 no.such=q follower.replication.throttled.rate=5
        log.roll.ms=604800000
    """)
    for_one = settings("""
        log.segment.bytes=1073741822 log.retention.ms=-1 log.retention.bytes=99000000000000 other.such=z
        leader.replication.throttled.rate=7 listener.name.x.ssl.keystore.location=loc
    """)
    for number, change in enumerate(
        (
            alter_broker(1, "0", "a", *for_one),
            alter_broker(0, "", "b", *for_all),
            alter_broker(1, "0", "c", ("log.retention.ms", "-1"), ("min.insync.replicas", "1")),
            alter_broker(1, "", "d"),
            alter_broker(1, "0", "e"),
        )
    ):
        script += [change, *settle(f"broker-{number}"), *seen]
    return script


def changed_broker_at_work() -> Script:
    script: Script = [create("@a"), create("@b", max_message_bytes=100_000)]
    script += [alter_broker(1, "", "f", ("message.max.bytes", "200"), ("log.segment.bytes", "400")), *settle("small")]
    script += [produce("@a", batch(3, 300)), produce("@a", batch(1, 20)), produce("@b", batch(3, 100))]
    script += [alter_broker(1, "0", "g", ("message.max.bytes", "2000")), *settle("bigger")]
    script += [produce("@a", batch(1, 300)), produce("@a", batch(3, 900))]
    script += [alter_broker(1, "", "h", ("message.max.bytes", "1000012"), ("log.segment.bytes", "1073741824"))]
    script += [alter_broker(1, "0", "i"), alter_broker(1, "0", "j", ("message.max.bytes", "1000012"))]
    return [*script, *settle("as-before"), produce("@a", batch(3, 900)), fetch(("@a", 0, 0), ("@b", 0, 0))]
