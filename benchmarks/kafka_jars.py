"""The jars of Apache Kafka 2.0.1: Maven downloads them once, into `.deps/kafka-2.0.1`.

ZooKeeper 3.5.10 goes in front of the class path: the 3.4.13 that Kafka 2.0.1 brings cannot resolve addresses on JDK 14
and later. Earlier releases run likewise, with the jaxb-api that the JDK had when they came out. `python kafka_jars.py
DIRECTORY` fetches them for an image (docker/kafka.Dockerfile), so this module imports nothing of ours.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
RELEASE = "2.0.1"
COORDINATES = (
    "org.apache.zookeeper:zookeeper:3.5.10",
    "org.apache.zookeeper:zookeeper-jute:3.5.10",
    "org.apache.kafka:kafka_2.11:{release}",
    "org.apache.kafka:kafka-tools:{release}",
    "javax.xml.bind:jaxb-api:2.3.0",
)
FIRST_ON_THE_CLASS_PATH = ("zookeeper-3.5.10.jar", "zookeeper-jute-3.5.10.jar")
DEPENDENCIES_VARIABLE = "MINIBROKER_DEPS"
FETCH_SECONDS = 300.0
POM = """<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>
<groupId>minibroker</groupId><artifactId>apache-kafka</artifactId><version>1</version>
<dependencies>
{dependencies}
</dependencies></project>
"""
DEPENDENCY = "<dependency><groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version></dependency>"


class KafkaUnavailable(RuntimeError):
    """Apache Kafka is not available on this machine; the message is the reason, in one line."""


def kafka_folder(release: str = RELEASE) -> Path:
    """The folder of a release's jars; it may not exist yet."""
    return Path(os.environ.get(DEPENDENCIES_VARIABLE) or ROOT / ".deps") / f"kafka-{release}"


def kafka_jars(folder: Path | None = None, *, release: str = RELEASE, coordinates: Sequence[str] = COORDINATES) -> Path:
    """Return the folder of Apache Kafka's jars, fetching them if it is missing. Raises KafkaUnavailable."""
    if shutil.which("java") is None:
        raise KafkaUnavailable("no `java` here (Debian: apt install default-jre-headless)")
    jars = folder or kafka_folder(release)
    if not jars.is_dir():
        jars.parent.mkdir(parents=True, exist_ok=True)
        with (jars.parent / f"kafka-{release}.lock").open("w") as held:
            fcntl.flock(held, fcntl.LOCK_EX)
            if not jars.is_dir():
                _fetch(jars, [coordinate.format(release=release) for coordinate in coordinates])
    return jars


def _fetch(jars: Path, coordinates: Sequence[str]) -> None:
    if shutil.which("mvn") is None:
        raise KafkaUnavailable("no `mvn` here to fetch it with (Debian: apt install maven)")
    arriving = jars.with_name(jars.name + ".partial")
    shutil.rmtree(arriving, ignore_errors=True)
    arriving.mkdir()
    dependencies = "\n".join(DEPENDENCY.format(*coordinate.split(":")) for coordinate in coordinates)
    (arriving / "pom.xml").write_text(POM.format(dependencies=dependencies))
    command = ["mvn", "-q", "-B", "-f", str(arriving / "pom.xml"), "dependency:copy-dependencies"]
    command.append(f"-DoutputDirectory={arriving}")
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=FETCH_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        raise KafkaUnavailable(f"Maven did not fetch it in {FETCH_SECONDS:.0f} s") from None
    if done.returncode:
        errors = [line for line in (done.stdout + done.stderr).splitlines() if "ERROR" in line]
        raise KafkaUnavailable(f"Maven could not fetch it: {errors[0] if errors else done.returncode}")
    arriving.rename(jars)


def class_path(jars: Path) -> str:
    """The class path of Kafka's main classes."""
    return ":".join([*(str(jars / jar) for jar in FIRST_ON_THE_CLASS_PATH), f"{jars}/*"])


if __name__ == "__main__":
    kafka_jars(Path(sys.argv[1]))
