"""Prepare the clients of the integration tests: `python tests/setup_clients.py`.

Each part that is there already is left alone; a part that cannot be had is reported and the others go on.

    .venvs/kafka-python-2.3     an environment of its own: 2.3 and 3.0 share a module name
    .venvs/aiokafka-0.10, ...   with --earlier: the versions of Python's clients that `make nightly` tries too
    .deps/kafka-clients-3.9.0   Kafka's Java client, the version Spark 4.0's connector brings, through Maven
    .deps/kafka-clients-0.10.2.2, .deps/kafka-clients-0.11.0.3   the same before and with record batches of magic 2
    .deps/kafka-clients-1.1.1   the same with fetch sessions
    .deps/kafka-clients-4.4.0   the newest, whose consumer protocol is no preview
    .deps/kafkajs, .deps/platformatic   the clients of node, through npm
    .deps/franz-go              the client of Go, and the driver that is built with it
    .deps/java-drivers          the drivers of the Java clients, compiled
    kcat                        the Debian package, when this runs as root
    .deps/kafka-2.0.1, .deps/kafka-4.4.0 and others, .deps/ivy   Apache Kafka itself, and Spark's connector
    archives of the classes that they load, and the Java client of 3.9.0, beside the jars: see jvm.py
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DEPS = ROOT / ".deps"
DRIVERS = ROOT / "tests" / "integration" / "drivers"
ENVIRONMENTS = ROOT / ".venvs"
CODECS = ("python-snappy", "lz4", "zstandard")
# What is installed for each of them. xxhash: lz4 as it was framed for brokers of 0.9.
OLD_KAFKA_PYTHON = "kafka-python-2.3"
EARLIER_CLIENTS = {
    "kafka-python-2.0": ("kafka-python==2.0.2", *CODECS, "crc32c"),
    "confluent-kafka-2.0": ("confluent-kafka==2.0.2",),
    "confluent-kafka-2.3": ("confluent-kafka==2.3.0",),
    "confluent-kafka-2.6": ("confluent-kafka==2.6.1",),
    "confluent-kafka-2.11": ("confluent-kafka==2.11.1",),
    "aiokafka-0.8": ("aiokafka==0.8.1", "kafka-python==2.0.2", *CODECS),
    "aiokafka-0.10": ("aiokafka==0.10.0", *CODECS, "cramjam"),
    "aiokafka-0.12": ("aiokafka==0.12.0", *CODECS, "cramjam"),
}
PACKAGES = {OLD_KAFKA_PYTHON: ("kafka-python==2.3.*", *CODECS, "crc32c", "xxhash"), **EARLIER_CLIENTS}
JAVA_CLIENT_VERSIONS = ("3.9.0", "0.10.2.2", "0.11.0.3", "1.1.1")
LAST_JAVA_CLIENT = "4.4.0"
JAVA_DRIVER_JARS = (
    "com.fasterxml.jackson.core:jackson-databind:2.16.2",
    "org.slf4j:slf4j-simple:1.7.36",
)
POM = """<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>
<groupId>minibroker</groupId><artifactId>test-clients</artifactId><version>1</version>
<dependencies>{dependencies}</dependencies></project>
"""
NEWEST_JAVA_CLIENT, *OLD_JAVA_CLIENTS = JAVA_CLIENT_VERSIONS
# The drivers that are compiled, and run, with a version of the client.
JAVA_DRIVERS = {
    NEWEST_JAVA_CLIENT: (
        "LineDriver",
        "OldJavaDriver",
        "JavaDriver",
        "JavaGroupMember",
        "JavaRecorded",
        "JavaTransformer",
    ),
    LAST_JAVA_CLIENT: (
        "LineDriver",
        "OldJavaDriver",
        "JavaDriver",
        "JavaGroupMember",
        "JavaRecorded",
        "JavaSharer",
        "JavaTransformer",
    ),
    **dict.fromkeys(OLD_JAVA_CLIENTS, ("LineDriver", "OldJavaDriver")),
}
KAFKAJS, PLATFORMATIC = DEPS / "kafkajs", DEPS / "platformatic"
# 2 and later of the second want a newer node than Debian's.
NODE_PACKAGES = {KAFKAJS: "kafkajs@2.2.4", PLATFORMATIC: "@platformatic/kafka@1.35.0"}
FRANZ_GO = DEPS / "franz-go"
FRANZ_GO_SOURCE = DRIVERS / "franz_go"
COMPILE_SECONDS = 120.0
GO_BUILD_SECONDS = 300.0
# Each has its place in the code that uses it.
FETCH_APACHE_KAFKA = """
from benchmarks.apache_kafka import kafka_jars
from minibroker.broker.config.profiles import RELEASES
from benchmarks.later_kafka import later_jars
older = [release for release in RELEASES.values() if release <= "2.0.1"]  # they run with ZooKeeper
print(*(kafka_jars(release=release).name for release in older), later_jars("4.4.0").name)
"""
FETCH_CONNECTOR = """
from minibroker.spark_jobs.session import connector_jars
print(connector_jars()[0].parent)
"""
ARCHIVE_CLASSES = """
from tests.jvm import CLASSES
print(CLASSES["{}"].prepare())
"""
HOW_TO_PREPARE = "run `python tests/setup_clients.py`"


def python_of(environment: str) -> Path:
    """The interpreter of an environment that has an earlier version of a client."""
    return ENVIRONMENTS / environment / "bin" / "python"


def prepare_environment(name: str) -> str:
    python, packages = python_of(name), PACKAGES[name]
    installed = ENVIRONMENTS / name / "installed"
    if not installed.exists() or installed.read_text() != "\n".join(packages):
        run(sys.executable, "-m", "venv", str(ENVIRONMENTS / name))
        run(str(python), "-m", "pip", "install", "--quiet", *packages)
        installed.write_text("\n".join(packages))
    return str(python)


def java_client(version: str) -> Path:
    """The folder of the jars of one version of Kafka's Java client, and of its driver."""
    return DEPS / f"kafka-clients-{version}"


def prepare_java_client(version: str) -> str:
    folder = java_client(version)
    if not folder.is_dir():
        need("mvn", "install a JDK and Maven (Debian: default-jdk-headless, maven)")
        work = folder.with_name(folder.name + ".partial")
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir(parents=True)
        jars = (f"org.apache.kafka:kafka-clients:{version}", *JAVA_DRIVER_JARS)
        (work / "pom.xml").write_text(POM.format(dependencies="".join(map(dependency, jars))))
        copying = ("dependency:copy-dependencies", f"-DoutputDirectory={work}")
        run("mvn", "-q", "-B", "-f", str(work / "pom.xml"), *copying)
        work.rename(folder)
    need("java", "install a JDK (Debian: default-jdk-headless)")
    return str(folder)


def prepare_java_drivers() -> str:
    for version in JAVA_DRIVERS:
        compiled_java_drivers(version)
    return str(DEPS / "java-drivers")


def java_drivers(version: str) -> Path:
    """The folder of the drivers of one version of the client, or where it would be."""
    return compiled_folder(f"java-drivers/{version}", java_sources(version))


def java_sources(version: str) -> list[Path]:
    return [DRIVERS / f"{name}.java" for name in JAVA_DRIVERS[version]]


def compiled_java_drivers(version: str) -> Path:
    """The jar of the drivers of one version of the client. Raises RuntimeError."""

    def compile_into(folder: Path) -> None:
        need("javac", "install a JDK (Debian: default-jdk-headless)")
        with tempfile.TemporaryDirectory() as classes:
            sources = map(str, java_sources(version))
            compile_by(["javac", "-cp", f"{java_client(version)}/*", "-d", classes, *sources], seconds=COMPILE_SECONDS)
            shutil.make_archive(str(folder / "drivers"), "zip", classes)
        (folder / "drivers.zip").rename(folder / "drivers.jar")  # of a folder, classes could not be archived

    return compiled_once(f"java-drivers/{version}", java_sources(version), compile_into) / "drivers.jar"


def compiled_for_kafka(name: str, jars: str) -> Path:
    """The folder of the classes of a driver that runs in Apache Kafka's class path. Raises RuntimeError."""
    source = DRIVERS / f"{name}.java"

    def compile_into(folder: Path) -> None:
        need("javac", "install a JDK (Debian: default-jdk-headless)")
        compile_by(["javac", "-nowarn", "-cp", jars, "-d", str(folder), str(source)], seconds=COMPILE_SECONDS)

    return compiled_once(f"java-drivers/{name}", [source], compile_into)


def compiled_folder(name: str, sources: list[Path]) -> Path:
    content = b"".join(path.name.encode() + path.read_bytes() for path in sources)
    return DEPS / f"{name}-{hashlib.sha256(content).hexdigest()[:12]}"


def compiled_once(name: str, sources: list[Path], compile_into: Callable[[Path], None]) -> Path:
    """A folder of .deps for what these sources are compiled to; made once, by the first of all processes that ask."""
    folder = compiled_folder(name, sources)
    if not folder.is_dir():
        with locked(folder):
            if not folder.is_dir():
                arriving = folder.with_name(folder.name + ".partial")
                shutil.rmtree(arriving, ignore_errors=True)
                arriving.mkdir()
                compile_into(arriving)
                arriving.rename(folder)
    return folder


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Keep other processes from making the same folder, or file."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_name(folder.name + ".lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield


def compile_by(
    command: list[str], *, seconds: float, folder: Path | None = None, environment: Mapping[str, str] | None = None
) -> None:
    """Raises RuntimeError."""
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=seconds, check=False
    )
    if done.returncode:
        raise RuntimeError(f"`{' '.join(command[:2])}` failed: {done.stderr.strip()}")


def prepare_node_package(folder: Path) -> str:
    need("node", "install Node.js (Debian: nodejs)")
    package = NODE_PACKAGES[folder]
    if not (folder / "node_modules" / package.rpartition("@")[0]).is_dir():
        need("npm", "install npm (Debian: npm)")
        folder.mkdir(parents=True, exist_ok=True)
        run("npm", "install", "--silent", "--no-audit", "--no-fund", "--prefix", str(folder), package)
    return str(folder)


def go_command() -> str | None:
    """The Go compiler: where the shell finds it, or where its own installer puts it."""
    return shutil.which("go") or shutil.which("go", path="/usr/local/go/bin")


def prepare_franz_go() -> str:
    return str(franz_go_driver(is_online=True).parent)


def franz_go_driver(*, is_online: bool) -> Path:
    """The driver, built from its source. Raises RuntimeError."""
    environment = os.environ | {"GOPATH": str(FRANZ_GO), "GOFLAGS": "-modcacherw -buildvcs=false"}
    if not is_online:
        environment["GOPROXY"] = "off"

    def build_into(folder: Path) -> None:
        go = go_command()
        if go is None:
            raise RuntimeError("no `go`: install Go (Debian: golang-go)")
        command = [go, "build", "-o", str(folder / "driver"), "."]
        compile_by(command, seconds=GO_BUILD_SECONDS, folder=FRANZ_GO_SOURCE, environment=environment)

    sources = sorted(path for path in FRANZ_GO_SOURCE.iterdir() if path.is_file())
    return compiled_once("franz-go/driver", sources, build_into) / "driver"


def prepare_by(program: str) -> str:
    """Fetch what a program of this project needs. Raises RuntimeError with its last line, which says why it did not."""
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr.strip().rpartition("\n")[2].removeprefix("RuntimeError: "))
    return done.stdout.strip()


def archive_classes(of: str) -> str:
    try:
        return prepare_by(ARCHIVE_CLASSES.format(of))
    except RuntimeError as error:
        return f"not archived, tests will take longer: {error}"


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


Parts = dict[str, Callable[[], str]]


def prepare(parts: Parts) -> None:
    for name, part in parts.items():
        try:
            print(f"{name}: {part()}", flush=True)
        except (OSError, RuntimeError, subprocess.SubprocessError) as error:
            print(f"{name}: not available, its tests will be skipped: {in_a_line(error)}", flush=True)


def in_a_line(error: Exception) -> str:
    """Why a part is not available, without the command that it was prepared by."""
    if isinstance(error, subprocess.TimeoutExpired):
        return f"not done in {error.timeout:.0f} s"
    if isinstance(error, subprocess.CalledProcessError):
        return f"`{' '.join(error.cmd[:2])}` ended with status {error.returncode}"
    return " ".join(str(error).split())


def main() -> int:
    print("Preparing the clients of the tests: seconds when they are there, minutes the first time ...", flush=True)
    through_maven: Parts = {  # one after the other: they share its repository
        **{f"Java client {version}": partial(prepare_java_client, version) for version in JAVA_DRIVERS},
        "Java drivers": prepare_java_drivers,
        "Java client's classes": partial(archive_classes, "Java client"),
        "Apache Kafka": partial(prepare_by, FETCH_APACHE_KAFKA),
        "Apache Kafka's classes": partial(archive_classes, "Apache Kafka"),
    }
    lines: list[Parts] = [
        through_maven,
        {"kafka-python 2.3": partial(prepare_environment, OLD_KAFKA_PYTHON)},
        {
            "Spark's connector": partial(prepare_by, FETCH_CONNECTOR),
            "Spark's classes": partial(archive_classes, "Spark"),
        },
        {"kafkajs": partial(prepare_node_package, KAFKAJS)},
        {"@platformatic/kafka": partial(prepare_node_package, PLATFORMATIC)},
        {"franz-go": prepare_franz_go},
        {"kcat": prepare_kcat},
    ]
    if "--earlier" in sys.argv[1:]:
        lines.append({each: partial(prepare_environment, each) for each in EARLIER_CLIENTS})
    with ThreadPoolExecutor(len(lines)) as pool:
        list(pool.map(prepare, lines))
    return 0


if __name__ == "__main__":
    sys.exit(main())
