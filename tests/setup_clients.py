"""Prepare the clients of the integration tests: `python tests/setup_clients.py`.

Each part that is there already is left alone; a part that cannot be had is reported and the others go on.

    .venvs/kafka-python-2.3     an environment of its own: 2.3 and 3.0 share a module name
    .deps/kafka-clients-3.9.0   Kafka's Java client, the version Spark 4.0's connector brings, through Maven
    kcat                        the Debian package, when this runs as root
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
OLD_KAFKA_PYTHON = ROOT / ".venvs" / "kafka-python-2.3"
JAVA_CLIENT = ROOT / ".deps" / "kafka-clients-3.9.0"
JAVA_CLIENT_JARS = (
    "org.apache.kafka:kafka-clients:3.9.0",
    "com.fasterxml.jackson.core:jackson-databind:2.16.2",
    "org.slf4j:slf4j-simple:1.7.36",
)
POM = """<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>
<groupId>minibroker</groupId><artifactId>test-clients</artifactId><version>1</version>
<dependencies>{dependencies}</dependencies></project>
"""
HOW_TO_PREPARE = "run `python tests/setup_clients.py`"


def prepare_old_kafka_python() -> str:
    python = OLD_KAFKA_PYTHON / "bin" / "python"
    if not python.exists():
        run(sys.executable, "-m", "venv", str(OLD_KAFKA_PYTHON))
        run(
            str(python),
            "-m",
            "pip",
            "install",
            "--quiet",
            "kafka-python==2.3.*",
            "python-snappy",
            "lz4",
            "crc32c",
        )
    return str(python)


def prepare_java_client() -> str:
    if not JAVA_CLIENT.is_dir():
        need("mvn", "install a JDK and Maven (Debian: default-jdk-headless, maven)")
        work = JAVA_CLIENT.with_name(JAVA_CLIENT.name + ".partial")
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir(parents=True)
        (work / "pom.xml").write_text(POM.format(dependencies="".join(map(dependency, JAVA_CLIENT_JARS))))
        run(
            "mvn",
            "-q",
            "-B",
            "-f",
            str(work / "pom.xml"),
            "dependency:copy-dependencies",
            f"-DoutputDirectory={work}",
        )
        work.rename(JAVA_CLIENT)
    need("java", "install a JDK (Debian: default-jdk-headless)")
    return str(JAVA_CLIENT)


def prepare_kcat() -> str:
    if shutil.which("kcat") is None:
        if os.geteuid() != 0 or shutil.which("apt-get") is None:
            raise RuntimeError("install the package kcat as root")
        run("apt-get", "update", "-qq")
        run("apt-get", "install", "-y", "-qq", "kcat")
    return str(shutil.which("kcat"))


def dependency(coordinates: str) -> str:
    group, artifact, version = coordinates.split(":")
    return (
        f"<dependency><groupId>{group}</groupId><artifactId>{artifact}</artifactId>"
        f"<version>{version}</version></dependency>"
    )


def need(command: str, remedy: str) -> None:
    if shutil.which(command) is None:
        raise RuntimeError(f"no `{command}`: {remedy}")


def run(*command: str) -> None:
    subprocess.run(command, check=True, stdout=sys.stderr)


def main() -> int:
    parts: dict[str, Callable[[], str]] = {
        "kafka-python 2.3": prepare_old_kafka_python,
        "Java client 3.9.0": prepare_java_client,
        "kcat": prepare_kcat,
    }
    for name, prepare in parts.items():
        try:
            print(f"{name}: {prepare()}")
        except (OSError, RuntimeError, subprocess.CalledProcessError) as error:
            print(f"{name}: not available, its tests will be skipped: {error}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
