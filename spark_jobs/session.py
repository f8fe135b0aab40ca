"""Makes the SparkSession of every job here, with the Kafka connector.

The rule: the Kafka connector is pinned to the pyspark release and fetched once, by the Ivy that pyspark
ships, with a settings file of one resolver; afterwards Spark gets plain jar files and starts offline.
They live in `$MINIBROKER_DEPS`, else in `.deps` of the repository, else in `~/.cache/minibroker`.

Under `spark-submit` the master, the jars and the logging are those of the submission.
`python -m minibroker.spark_jobs.session` fetches the jars and prints them for `--jars`.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

import pyspark
from pyspark.sql import SparkSession


class Artifact(NamedTuple):
    organisation: str
    name: str
    version: str

    @property
    def jar_name(self) -> str:
        return f"{self.name}-{self.version}.jar"


# What org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0 needs beyond the jars that pyspark brings, and `from_avro`.
CONNECTOR = (
    Artifact("org.apache.spark", "spark-sql-kafka-0-10_2.13", "4.2.0"),
    Artifact("org.apache.spark", "spark-token-provider-kafka-0-10_2.13", "4.2.0"),
    Artifact("org.apache.kafka", "kafka-clients", "3.9.2"),
    Artifact("org.apache.commons", "commons-pool2", "2.13.1"),
    Artifact("org.apache.spark", "spark-avro_2.13", "4.2.0"),
)
CONNECTOR_CLASS = "org.apache.spark.sql.kafka010.KafkaSourceProvider"
FETCH_TIMEOUT_SECONDS = 180
LOOPBACK = "127.0.0.1"

# Without a host name: Ivy knows "central", or the machine configures it.
IVY_SETTINGS = """\
<ivysettings>
  <settings defaultResolver="central"/>
  <resolvers><ibiblio name="central" m2compatible="true"/></resolvers>
</ivysettings>
"""
OLDEST_JAVA = 17
QUIET_LOGGING = """\
rootLogger.level = error
rootLogger.appenderRef.stderr.ref = stderr
# As the root's: otherwise Spark sets a level of its own, and prints so.
logger.repl.name = org.apache.spark.api.python.PythonGatewayServer
logger.repl.level = error
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %d{HH:mm:ss} %p %c{1}: %m%n%ex
"""
# Spark searches the error of a batch that a stopped query has interrupted, by a regular expression that takes as much
# stack. With the usual one the query ends with a StackOverflowError.
STACK = "-Xss16m"
# Good for a job of megabytes on one machine, and harmless on a cluster.
JOB_DEFAULTS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "2",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # A job asks for them twice a second, and gets all of them each time.
    "spark.sql.streaming.numRecentProgressUpdates": "20",
}


class ConnectorUnavailable(RuntimeError):
    """Spark's Kafka connector is missing and could not be fetched; the message is one line."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"no Kafka connector for Spark: {reason}")


class JavaUnavailable(ConnectorUnavailable):
    """There is no JDK that Spark can run on, or fetch its connector with; the message is one line."""

    def __init__(self, reason: str) -> None:
        RuntimeError.__init__(self, f"Spark needs a JDK {OLDEST_JAVA} or later, and {reason}")


def dependency_folder() -> Path:
    """Return the folder for fetched files; it may not exist yet."""
    chosen = os.environ.get("MINIBROKER_DEPS")
    if chosen:
        return Path(chosen).absolute()
    repository = Path(__file__).resolve().parents[1]
    if (repository / "pyproject.toml").is_file():
        return repository / ".deps"
    return Path.home() / ".cache" / "minibroker"


def connector_is_missing() -> bool:
    """Whether `spark_session` will fetch the connector first; under `spark-submit` it never does."""
    return not _started_by_spark_submit() and not all(jar.is_file() for jar in _jars(dependency_folder()))


def connector_jars(folder: Path | None = None) -> list[Path]:
    """Return the connector's jar files, fetching them if one is missing. Raises ConnectorUnavailable."""
    ivy_folder = (folder or dependency_folder()) / "ivy"
    jars = _jars(folder or dependency_folder())
    if all(jar.is_file() for jar in jars):
        return jars
    try:
        ivy_folder.mkdir(parents=True, exist_ok=True)
        with _one_process_at_a_time(ivy_folder / "lock"):
            if not all(jar.is_file() for jar in jars):
                _fetch(ivy_folder)
    except OSError as error:
        raise ConnectorUnavailable(f"cannot write to {ivy_folder}: {error}") from error
    return jars


def spark_session(app_name: str, *, master: str = "local[*]", config: Mapping[str, str] | None = None) -> SparkSession:
    """Return the session a job runs in; the caller stops it. Raises ConnectorUnavailable.

    `spark-submit --master ...` takes precedence over `master`.
    """
    builder = SparkSession.builder.appName(app_name)
    for key, value in {**JOB_DEFAULTS, **(config or {})}.items():
        builder = builder.config(key, value)
    if not _started_by_spark_submit():
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        require_java()
        settings = _connector_settings()
        if is_on_this_machine(master):
            os.environ.setdefault("SPARK_LOCAL_IP", LOOPBACK)
            settings["spark.driver.host"] = LOOPBACK
        builder = builder.master(master)
        for key, value in settings.items():
            builder = builder.config(key, value)
    session = builder.getOrCreate()
    _require_connector(session)
    return session


def is_on_this_machine(master: str) -> bool:
    """Whether all of Spark runs here, so that its driver needs no address that other machines reach."""
    return master.startswith("local") or urlsplit(master).hostname in (LOOPBACK, "localhost")


def _jars(folder: Path) -> list[Path]:
    return [folder / "ivy" / "jars" / artifact.jar_name for artifact in CONNECTOR]


def _started_by_spark_submit() -> bool:
    return "PYSPARK_GATEWAY_PORT" in os.environ


def _connector_settings() -> dict[str, str]:
    jars = connector_jars()
    logging = jars[0].parents[1] / "log4j2.properties"
    if not logging.is_file() or logging.read_text() != QUIET_LOGGING:
        logging.write_text(QUIET_LOGGING)
    return {
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={logging.as_uri()} {STACK}",
        "spark.jars.ivy": str(jars[0].parents[1]),
        "spark.jars": ",".join(str(jar) for jar in jars),
    }


def _require_connector(session: SparkSession) -> None:
    jvm = session.sparkContext._jvm
    assert jvm is not None
    loader = jvm.org.apache.spark.util.Utils.getContextOrSparkClassLoader()
    if loader.getResource(CONNECTOR_CLASS.replace(".", "/") + ".class") is None:
        session.stop()
        raise ConnectorUnavailable("add --jars $(python -m minibroker.spark_jobs.session) to spark-submit")


@contextmanager
def _one_process_at_a_time(lock_file: Path) -> Iterator[None]:
    with lock_file.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield


def require_java() -> str:
    """Return the java that Spark runs on. Raises JavaUnavailable if there is none, or it is too old."""
    home = os.environ.get("JAVA_HOME")
    step = "install one, or have JAVA_HOME name it"
    java = shutil.which("java", path=f"{home}/bin" if home else None)
    if java is None:
        raise JavaUnavailable(f"there is no java {f'in {home}/bin' if home else 'on this machine'}; {step}")
    told = subprocess.run([java, "-version"], capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    found = re.search(r'version "(?:1\.)?(\d+)', told.stderr + told.stdout)
    if found is None:
        raise JavaUnavailable(f"`{java} -version` does not answer with its version; {step}")
    if int(found[1]) < OLDEST_JAVA:
        raise JavaUnavailable(f"{java} is of version {found[1]}; {step}")
    return java


def _fetch(ivy_folder: Path) -> None:
    java = require_java()
    (settings := ivy_folder / "ivysettings.xml").write_text(IVY_SETTINGS)
    (module := ivy_folder / "ivy.xml").write_text(_ivy_module())
    ivy = _ivy_jar()
    with tempfile.TemporaryDirectory(dir=ivy_folder) as arriving:
        command = [java, "-jar", str(ivy), "-settings", str(settings), "-ivy", str(module), "-warn"]
        command += ["-cache", str(ivy_folder / "cache")]
        command += ["-retrieve", f"{arriving}/[artifact]-[revision].[ext]"]
        _run_ivy(command)
        (ivy_folder / "jars").mkdir(exist_ok=True)
        for artifact in CONNECTOR:
            os.replace(Path(arriving) / artifact.jar_name, ivy_folder / "jars" / artifact.jar_name)


def _ivy_jar() -> Path:
    found = sorted((Path(pyspark.__file__).parent / "jars").glob("ivy-*.jar"))
    if not found:
        raise ConnectorUnavailable("this pyspark has no ivy jar to fetch it with")
    return found[-1]


def _run_ivy(command: list[str]) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=FETCH_TIMEOUT_SECONDS, check=False)
    except subprocess.TimeoutExpired as error:
        raise ConnectorUnavailable(f"not fetched in {FETCH_TIMEOUT_SECONDS} s") from error
    if done.returncode:
        raise ConnectorUnavailable(_reason(done.stdout + done.stderr))


def _reason(ivy_output: str) -> str:
    lines = [line.strip() for line in ivy_output.splitlines() if line.strip()]
    for sign in ("Exception", "not found"):
        for line in lines:
            if sign in line:
                return line
    return lines[-1] if lines else "Ivy failed without a message"


def _ivy_module() -> str:
    dependencies = "\n".join(
        f'    <dependency org="{artifact.organisation}" name="{artifact.name}" rev="{artifact.version}"'
        ' transitive="false" conf="*->default"/>'
        for artifact in CONNECTOR
    )
    return (
        '<ivy-module version="2.0">\n'
        '  <info organisation="minibroker" module="spark-connector"/>\n'
        f"  <dependencies>\n{dependencies}\n  </dependencies>\n"
        "</ivy-module>\n"
    )


if __name__ == "__main__":
    try:
        print(",".join(str(jar) for jar in connector_jars()))
    except ConnectorUnavailable as unavailable:
        sys.exit(str(unavailable))
