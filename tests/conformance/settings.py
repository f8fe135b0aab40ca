"""Properties files drawn from seeds, started by Apache Kafka 2.0.1 and read here.

`python -m tests.books kafka-2.0.1 settings` compares; `--record` keeps the files and Kafka's verdicts in tests/golden/,
which a fast test compares. A verdict is `started`, or the error with which the broker did not start.
`encrypted-settings` are files about listeners with TLS.
"""

from __future__ import annotations

import atexit
import random
import re
import shutil
import subprocess
import tempfile
import tomllib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.apache_kafka import ApacheKafka, class_path, kafka_jars
from minibroker.broker.config.kafka_config import ConfigError, KafkaConfig
from minibroker.broker.config.settings.changeable import SETTINGS
from minibroker.broker.config.settings.table import SETTINGS_OF_AUTHORIZER
from minibroker.broker.config.settings.types import Setting
from minibroker.broker.wings.security.tls import problems_of
from minibroker.conformance.kafka_versions import is_later
from tests.certificates import PASSWORD, Certificates
from tests.conformance.recordings import Comparison, read
from tests.jvm import QUICK_JVM
from tests.setup_clients import compiled_for_kafka

RECORDED = "kafka-2.0.1-settings.json.gz"
RECORDED_ENCRYPTED = "kafka-2.0.1-encrypted-settings.json.gz"
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

# The texts to draw from: of types, of single settings, of listeners that encrypt, of settings with a rule between them.
VALUES: dict[str, Any] = tomllib.loads(Path(__file__).with_name("settings_values.toml").read_text(encoding="utf-8"))
TEXTS, TOGETHER, TLS_TEXTS = VALUES["texts"], VALUES["together"], VALUES["encrypted"]
NO_TEXT = "<none>"  # takes a setting away

Settings = dict[str, str]


class Verdict(NamedTuple):
    """The verdict of Apache Kafka 2.0.1 on a file."""

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
        texts = list(VALUES["types"][row.kind.name])
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
            if text == NO_TEXT:
                settings.pop(name, None)
            else:
                settings[prefix + name] = text
        return settings


TLS = {
    "ssl.keystore.location": f"{STORES}/trusted-server.p12",
    "ssl.keystore.password": PASSWORD,
    "ssl.truststore.location": f"{STORES}/authority.p12",
    "ssl.truststore.password": PASSWORD,
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


def recorded(file_name: str = RECORDED) -> list[Verdict]:
    return [Verdict(*each) for each in read(file_name)]


def draw(seed: int, *, encrypted: bool = False) -> Settings:
    return Draw(seed).encrypted() if encrypted else Draw(seed).file()


def compared(seeds: range, *, encrypted: bool = False) -> Comparison:
    verdicts = kafka_verdicts([draw(seed, encrypted=encrypted) for seed in seeds])
    found = [
        f"{each.settings}\n    Apache Kafka: {each.outcome}\n    minibroker: {our_error(each.settings) or STARTED}"
        for each in filter(differs, verdicts)
    ]
    return Comparison(verdicts, len(verdicts), found)
