"""python -m tests.conformance.settings: properties files drawn from seeds, started by Apache Kafka 2.0.1 and read here.

`--record` keeps the files and Kafka's verdicts in tests/golden/, which a fast test compares. A verdict is `started`, or
the error with which the broker did not start. With `--encrypted` the files are about listeners with TLS.
"""

from __future__ import annotations

import argparse
import atexit
import gzip
import json
import random
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.apache_kafka import ApacheKafka, KafkaUnavailable, class_path, kafka_jars
from minibroker.broker.config.kafka_config import ConfigError, KafkaConfig
from minibroker.broker.config.settings.changeable import SETTINGS
from minibroker.broker.config.settings.table import SETTINGS_OF_AUTHORIZER
from minibroker.broker.config.settings.types import Setting
from minibroker.broker.security.tls import problems_of
from tests.certificates import PASSWORD, Certificates
from tests.conformance.kafka_versions import is_later
from tests.jvm import QUICK_JVM
from tests.setup_clients import compiled_for_kafka

RECORDED = Path(__file__).parent.parent / "golden" / "kafka-2.0.1-settings.json.gz"
RECORDED_ENCRYPTED = RECORDED.with_name("kafka-2.0.1-encrypted-settings.json.gz")
STORES = "{stores}"  # stands for the folder of the key stores
FILES = 200
STARTED = "started"
VERDICTS_SECONDS = 1800.0
HERE = "PLAINTEXT://127.0.0.1:0"
# Where nothing is drawn: ZooKeeper, of which there is none here, and what costs memory or threads.
LEFT_OUT = """
    zookeeper.connect zookeeper.connection.timeout.ms zookeeper.session.timeout.ms zookeeper.sync.time.ms
    zookeeper.max.in.flight.requests zookeeper.set.acl log.dir log.dirs port listeners advertised.listeners
""".split()

Settings = dict[str, str]


class Verdict(NamedTuple):
    """What Apache Kafka 2.0.1 makes of a file."""

    settings: Settings
    outcome: str

    @property
    def starts(self) -> bool:
        return self.outcome == STARTED


class Draw:
    """Draws one file."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def file(self) -> Settings:
        kinds: list[Callable[[], Settings]] = [self._one, self._one, self._one, self._several, self._listeners]
        drawn = self._random.choice([*kinds, self._together])()
        if "host.name" in drawn:
            return {"port": "0"} | drawn
        return drawn if "listeners" in drawn else {"listeners": HERE} | drawn

    def _of(self, values: Any) -> Any:
        return self._random.choice(values)

    def _one(self) -> Settings:
        named = SETTINGS.keys() - set(LEFT_OUT) - SETTINGS_OF_AUTHORIZER
        name = self._of(sorted(name for name in named if not is_later(name)))
        return {name: self._value(SETTINGS[name])}

    def _several(self) -> Settings:
        return self._one() | self._one() | self._one()

    def _value(self, row: Setting[Any]) -> str:
        if row.name in TEXTS:
            return str(self._of(TEXTS[row.name]))
        texts = list(OF_TYPE[row.kind.name])
        if row.kind.name in ("INT", "LONG", "SHORT") and row.check.allowed:
            least = int(row.check.allowed.split()[0])
            texts += [str(least), str(least - 1), str(least + 1)] * 2
        if row.default is not None:
            texts += [str(row.write(row.default))]
        return str(self._of(texts))

    def _together(self) -> Settings:
        """Settings with a rule between them."""
        names = self._of(TOGETHER)
        chosen = self._random.sample(sorted(names), self._random.randint(1, len(names)))
        return {name: self._of(names[name]) for name in chosen}

    def _listeners(self) -> Settings:
        names = self._random.sample(("PLAINTEXT", "IN", "OUT", "out"), self._random.randint(1, 3))
        settings = {"listeners": ",".join(f"{name}://127.0.0.1:0" for name in names)}
        if self._random.random() < 0.9:
            protocols = dict.fromkeys(("PLAINTEXT", "IN", "OUT"), "PLAINTEXT")
            settings["listener.security.protocol.map"] = ",".join(map(":".join, protocols.items()))
        if self._random.random() < 0.6:
            told = self._random.sample(("PLAINTEXT", "IN", "OUT", "OTHER"), self._random.randint(1, 2))
            told = names if self._random.random() < 0.5 else told
            hosts = ("there:1", "there:1", "there:2", "0.0.0.0:3", ":4", "there:70000", "[::1]:5", "[::]:6", "there:-1")
            settings["advertised.listeners"] = ",".join(f"{name}://{self._of(hosts)}" for name in told)
        elif self._random.random() < 0.2:
            settings |= {"advertised.host.name": "there", "advertised.port": self._of(("5", "0", "70000"))}
        if self._random.random() < 0.6:
            settings["inter.broker.listener.name"] = self._of((*names, "IN", "", "in", "SSL"))
        if self._random.random() < 0.2:
            settings["security.inter.broker.protocol"] = self._of(("PLAINTEXT", "plaintext", "SSL", "IN", ""))
        return settings

    def encrypted(self) -> Settings:
        """A file with listeners that encrypt, right but for some of its settings."""
        names = self._of((("SSL",), ("PLAINTEXT", "SSL"), ("PLAINTEXT", "IN", "OUT")))
        settings = {"listeners": ",".join(f"{name}://127.0.0.1:0" for name in names)} | TLS
        if "IN" in names:
            settings["listener.security.protocol.map"] = "PLAINTEXT:PLAINTEXT,IN:SSL,OUT:ssl"
        if self._random.random() < 0.9 and names == ("SSL",):
            settings["security.inter.broker.protocol"] = "SSL"
        elif self._random.random() < 0.3:
            settings["inter.broker.listener.name"] = self._of(names)
        for name in self._random.sample(sorted(TLS_TEXTS), self._random.randint(0, 3)):
            text = self._of(TLS_TEXTS[name])
            prefix = self._of(("", "", f"listener.name.{names[-1].lower()}.", f"listener.name.{names[-1]}."))
            if text is None:
                settings.pop(name, None)
            else:
                settings[prefix + name] = text
        return settings


NUMBERS = ("-2", "-1", "0", "1", "5", "x", "", " 7 ", "+5", "1.5", "1_0", "٣")
OF_TYPE: dict[str, tuple[str, ...]] = {
    "INT": (*NUMBERS, "2147483648"),
    "LONG": (*NUMBERS, "9223372036854775808"),
    "SHORT": (*NUMBERS, "32768"),
    "DOUBLE": ("0", "0.5", "-1", "1.1", "x", "", "NaN", "Infinity", "1e3", "1d", "0x1p3", " .5 ", "2f", "1e999"),
    "BOOLEAN": ("true", "FALSE", " True ", "yes", "", "1"),
    "LIST": ("", "a", "a,b", " , ", "*"),
    "STRING": ("", "x", " y "),
    "CLASS": ("", "no.such.Class", "java.lang.Object"),
    "PASSWORD": ("", "secret"),
}
VERSIONS = (
    *("0.7", "0.8.0", "0.8.2", "0.9", "0.9.0.1", "0.10", "0.10.0-IV0", "0.10.2", "0.11.0", "0.11.0.2"),
    *("1.0", "1.1-IV0", "2", "2.0", "2.0.1", "2.0-IV1", "2.1", "x", ""),
)
TEXTS: dict[str, tuple[str, ...]] = {
    "log.message.format.version": VERSIONS,
    "inter.broker.protocol.version": VERSIONS,
    "compression.type": ("gzip", "GZIP", "none", "uncompressed", "producer", "lz4", "", "Snappy"),
    "log.cleanup.policy": ("compact", "delete", "delete,compact", "", "both", "Delete", "delete,", " compact "),
    "log.message.timestamp.type": ("CreateTime", "LogAppendTime", "createtime", ""),
    "max.connections.per.ip.overrides": ("127.0.0.1:5", "127.0.0.1:x", "127.0.0.1", "", ":", "127.0.0.1:-1", "::1:2"),
    "listener.security.protocol.map": (
        "PLAINTEXT:PLAINTEXT",
        "A:PLAINTEXT",
        "PLAINTEXT",
        "",
        "PLAINTEXT:X",
        "plaintext:PLAINTEXT",
    ),
    "security.inter.broker.protocol": ("PLAINTEXT", "plaintext", "SSL", "SASL_SSL", "", "x"),
    "inter.broker.listener.name": ("PLAINTEXT", "plaintext", "SSL", "", "x"),
    "host.name": ("127.0.0.1", ""),
    "advertised.host.name": ("there", "", "0.0.0.0"),
    "metrics.recording.level": ("INFO", "DEBUG", "info", "", "x"),
    "ssl.client.auth": ("none", "required", "requested", "", "None"),
    "sasl.mechanism.inter.broker.protocol": ("GSSAPI", "PLAIN", ""),
    "offsets.topic.compression.codec": ("0", "1", "3", "4", "-1", "5", "x"),
    "background.threads": ("0", "1", "2", "-1"),
    "num.io.threads": ("0", "1", "2", "-1"),
    "num.network.threads": ("0", "1", "2", "-1"),
    "num.recovery.threads.per.data.dir": ("0", "1", "2", "-1"),
    "num.replica.fetchers": ("0", "1", "2", "-1"),
    "num.replica.alter.log.dirs.threads": ("0", "1", "2", "-1"),
    "log.cleaner.threads": ("0", "1", "2", "-1", "200"),
    "log.cleaner.dedupe.buffer.size": ("1048576", "1048577", "2097153", "-1", "0", "134217728"),
    "broker.id": ("-2", "-1", "0", "5", "1000", "1001", "x"),
    "reserved.broker.max.id": ("-1", "0", "4", "1000", "5000"),
}
TOGETHER: list[dict[str, tuple[str, ...]]] = [
    {"log.message.format.version": VERSIONS, "inter.broker.protocol.version": VERSIONS},
    {
        "queued.max.request.bytes": ("-1", "0", "1", "100", "104857599", "104857600", "104857601"),
        "socket.request.max.bytes": ("1", "99", "100", "101", "104857600"),
    },
    {
        "broker.id": TEXTS["broker.id"],
        "reserved.broker.max.id": TEXTS["reserved.broker.max.id"],
        "broker.id.generation.enable": ("true", "false"),
    },
    {
        "replica.fetch.wait.max.ms": ("0", "500", "10000", "10001", "30001"),
        "replica.socket.timeout.ms": ("0", "499", "500", "10001"),
        "replica.lag.time.max.ms": ("0", "499", "500", "10001"),
    },
    {
        "offsets.commit.required.acks": ("-2", "-1", "0", "1", "3", "4"),
        "offsets.topic.replication.factor": ("0", "1", "3", "-1"),
    },
    {
        "log.retention.ms": ("-1", "0", "1", "-2", "-100"),
        "log.retention.minutes": ("-1", "0", "1", "-2"),
        "log.retention.hours": ("-1", "0", "1", "-2", "596524"),
    },
    {
        "log.roll.ms": ("-1", "0", "1"),
        "log.roll.hours": ("0", "1"),
        "log.roll.jitter.ms": ("-1", "0", "1"),
        "log.roll.jitter.hours": ("-1", "0", "1"),
    },
    {
        "log.cleaner.threads": ("0", "1", "2", "128"),
        "log.cleaner.dedupe.buffer.size": ("1048577", "2097153", "1048576"),
    },
    {"max.connections.per.ip": ("0", "1", "-1"), "max.connections.per.ip.overrides": ("", "127.0.0.1:1")},
    {"group.min.session.timeout.ms": ("-1", "0", "5"), "group.max.session.timeout.ms": ("-1", "0", "4")},
    {
        "transaction.state.log.min.isr": ("0", "1", "4"),
        "transaction.state.log.replication.factor": ("0", "1", "-1"),
    },
    {
        "sasl.enabled.mechanisms": ("PLAIN", "", "GSSAPI"),
        "security.inter.broker.protocol": ("SASL_PLAINTEXT", "PLAINTEXT"),
        "sasl.mechanism.inter.broker.protocol": ("PLAIN", "GSSAPI"),
    },
    {"log.segment.bytes": ("13", "14", "1048576"), "log.index.size.max.bytes": ("3", "4", "8")},
]


TLS = {
    "ssl.keystore.location": f"{STORES}/trusted-server.p12",
    "ssl.keystore.password": PASSWORD,
    "ssl.truststore.location": f"{STORES}/authority.p12",
    "ssl.truststore.password": PASSWORD,
}
STORE_FILES = tuple(f"{STORES}/{name}" for name in ("trusted-server.p12", "none", "empty", "garbage", "authority.p12"))
PASSWORDS = (PASSWORD, "wrong", "", None)
STORE_TYPES = ("PKCS12", "pkcs12", "JKS", "x", "", "PEM")
# Of each setting, texts that are in order and texts that are not; None takes it away.
TLS_TEXTS: dict[str, tuple[str | None, ...]] = {
    "ssl.keystore.location": (*STORE_FILES, f"{STORES}/trusted-server.pem", None),
    "ssl.keystore.password": PASSWORDS,
    "ssl.keystore.type": STORE_TYPES,
    "ssl.key.password": PASSWORDS,
    "ssl.truststore.location": (*STORE_FILES, f"{STORES}/authority.pem", None),
    "ssl.truststore.password": PASSWORDS,
    "ssl.truststore.type": STORE_TYPES,
    "ssl.client.auth": ("none", "required", "requested", "Required", ""),
    "ssl.protocol": ("TLS", "TLSv1.1", "TLSv1.2", "TLSv1.3", "SSL", "SSLv2", "SSLv3", "tls", "x", "", "DTLS"),
    "ssl.enabled.protocols": ("TLSv1.2", "TLSv1.1", "TLSv1.2,TLSv1.3", "x", "", "TLSv1.2,x", "SSLv2Hello,TLSv1.2"),
    "ssl.cipher.suites": ("TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", "x", "", "TLS_AES_128_GCM_SHA256"),
    "ssl.keymanager.algorithm": ("SunX509", "NewSunX509", "PKIX", "pkix", "x", ""),
    "ssl.trustmanager.algorithm": ("PKIX", "SunX509", "X509", "X.509", "x", ""),
    "ssl.provider": ("SunJSSE", "x", ""),
    "ssl.secure.random.implementation": ("SHA1PRNG", "DRBG", "NativePRNG", "x", ""),
    "ssl.endpoint.identification.algorithm": ("", "https", "x"),
    "security.inter.broker.protocol": ("SSL", "ssl", "PLAINTEXT", "x"),
    "connections.max.idle.ms": ("1000", "x"),
}


# Settings that are judged otherwise on purpose (docs/differences.md), by what the side that refuses them answers.
REFUSED_BY_KAFKA_ALONE = re.compile("could not be found|is not an instance of|ClassNotFoundException")
REFUSED_HERE_ALONE = re.compile(
    r"cannot use the nonroutable|^Unable to parse .* \(advertised\.listeners="
    r"|set ssl\.keystore\.location|it has no private key|is unknown; use TLS|leave no protocol|has no suite"
    r"|set ssl\.truststore\.password",
    re.MULTILINE,
)


def differs(verdict: Verdict) -> bool:
    """Whether this broker judges a file otherwise than Apache Kafka 2.0.1, and not on purpose."""
    ours = our_error(verdict.settings)
    if (ours is None) == verdict.starts:
        return False
    told, on_purpose = (verdict.outcome, REFUSED_BY_KAFKA_ALONE) if ours is None else (ours, REFUSED_HERE_ALONE)
    return on_purpose.search(told) is None


def our_error(settings: Settings) -> str | None:
    """Why this broker does not start with the settings; None if it does."""
    try:
        problems = problems_of(KafkaConfig({"log.dirs": "data", **in_folder(settings, stores())}))
    except ConfigError as error:
        return str(error)
    return "\n".join(problems) or None


@cache
def stores() -> Path:
    """The folder of the key stores that the files name, for as long as this process runs."""
    folder = Path(tempfile.mkdtemp(prefix="stores-"))
    atexit.register(shutil.rmtree, folder)
    certificates = Certificates(folder, rsa=True)
    certificates.key_store, certificates.trust_store, certificates.authority  # noqa: B018
    (folder / "empty").touch()
    (folder / "garbage").write_bytes(b"garbage" * 20)
    return folder


def in_folder(settings: Settings, folder: Path) -> Settings:
    return {name: value.replace(STORES, str(folder)) for name, value in settings.items()}


def kafka_verdicts(files: list[Settings]) -> list[Verdict]:
    """Start Apache Kafka 2.0.1 with each file, in one JVM. Raises KafkaUnavailable."""
    jars = kafka_jars()
    classes = compiled_for_kafka("KafkaVerdicts", class_path(jars))
    with tempfile.TemporaryDirectory() as name:
        directory, folder = Path(name), Path(name, "files")
        folder.mkdir()
        kafka = ApacheKafka(jars, directory)
        try:
            kafka.start_zookeeper()
            for number, settings in enumerate(files):
                of_its_own = {
                    "zookeeper.connect": f"127.0.0.1:{kafka.zookeeper_port}/{number}",
                    "log.dirs": str(directory / f"data{number}"),
                }
                path = folder / f"{number:05d}.properties"
                path.write_text(properties_text(of_its_own | in_folder(settings, stores())), encoding="ascii")
            command = ["java", *QUICK_JVM, "-Xmx1g", f"-Dlog4j.configuration=file:{directory}/log4j.properties"]
            command += ["-cp", f"{classes}:{class_path(jars)}", "KafkaVerdicts", str(folder)]
            done = subprocess.run(
                command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=VERDICTS_SECONDS, check=True
            )
        finally:
            kafka.kill()
    outcomes = [
        line.partition("\t")[2].strip() for line in done.stdout.decode().splitlines() if ".properties\t" in line
    ]
    return [Verdict(*each) for each in zip(files, outcomes, strict=True)]


def properties_text(settings: Settings) -> str:
    """The text of a properties file, in ASCII."""

    def escaped(text: str) -> str:
        shown = text.replace("\\", "\\\\")
        shown = f"\\{shown}" if shown.startswith(" ") else shown
        return "".join(each if each.isascii() else f"\\u{ord(each):04x}" for each in shown)

    return "".join(f"{name}={escaped(value)}\n" for name, value in settings.items())


def recorded(path: Path = RECORDED) -> list[Verdict]:
    return [Verdict(*each) for each in json.loads(gzip.decompress(path.read_bytes()))]


def draw(seed: int, *, encrypted: bool = False) -> Settings:
    return Draw(seed).encrypted() if encrypted else Draw(seed).file()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.conformance.settings", description=__doc__)
    parser.add_argument("--files", type=int, default=FILES, help="how many files")
    parser.add_argument("--seed", type=int, default=1, help="the seed of the first")
    parser.add_argument("--encrypted", action="store_true", help="files with listeners that encrypt")
    parser.add_argument("--record", action="store_true", help="keep the verdicts in tests/golden/")
    options = parser.parse_args()
    seeds = range(options.seed, options.seed + options.files)
    files = [draw(seed, encrypted=options.encrypted) for seed in seeds]
    try:
        verdicts = kafka_verdicts(files)
    except KafkaUnavailable as reason:
        print(f"Apache Kafka 2.0.1 cannot be had: {reason}", file=sys.stderr)
        return 2
    differing = 0
    for verdict in filter(differs, verdicts):
        differing += 1
        ours = our_error(verdict.settings)
        print(f"{verdict.settings}\n    Apache Kafka: {verdict.outcome}\n    minibroker: {ours or STARTED}", flush=True)
    print(f"{len(files)} files, {differing} differences")
    if options.record:
        path = RECORDED_ENCRYPTED if options.encrypted else RECORDED
        path.write_bytes(gzip.compress(json.dumps(verdicts, separators=(",", ":")).encode(), 9, mtime=0))
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main())
