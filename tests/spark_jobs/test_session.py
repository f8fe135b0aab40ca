"""The session: the connector is fetched once, and its absence is said in one line."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from minibroker.spark_jobs import session
from minibroker.spark_jobs.session import CONNECTOR, ConnectorUnavailable, connector_jars


def put_java(folder: Path, script: str, monkeypatch: pytest.MonkeyPatch, version: str = "17.0.15") -> None:
    """Make `java` this Python script for the test."""
    folder.mkdir()
    java = folder / "java"
    told = f'import sys\nif sys.argv[1:] == ["-version"]: sys.exit(\'openjdk version "{version}" 2026\')'
    java.write_text(f"#!{sys.executable}\n{told}\n{script}")
    java.chmod(0o755)
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")


def test_jars_that_are_there_are_not_fetched_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put_java(tmp_path / "bin", "raise SystemExit('java was started')", monkeypatch)
    (tmp_path / "ivy" / "jars").mkdir(parents=True)
    for artifact in CONNECTOR:
        (tmp_path / "ivy" / "jars" / artifact.jar_name).touch()

    jars = connector_jars(tmp_path)

    assert [artifact.jar_name for artifact in CONNECTOR] == [jar.name for jar in jars]


def test_jars_are_fetched_through_the_one_resolver_called_central(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = """
import pathlib, re, sys
settings, module, pattern = (sys.argv[sys.argv.index(o) + 1] for o in ("-settings", "-ivy", "-retrieve"))
assert pathlib.Path(settings).read_text().count('<ibiblio name="central" m2compatible="true"/>') == 1
for name, revision in re.findall('name="([^"]+)" rev="([^"]+)"', pathlib.Path(module).read_text()):
    jar = pattern.replace("[artifact]", name).replace("[revision]", revision).replace("[ext]", "jar")
    pathlib.Path(jar).write_text("a jar")
"""
    put_java(tmp_path / "bin", script, monkeypatch)

    jars = connector_jars(tmp_path / "deps")

    assert ["a jar"] * len(CONNECTOR) == [jar.read_text() for jar in jars]


def test_a_failed_fetch_gives_the_reason_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said = "module not found: x\njava.net.ConnectException: Connection refused"
    script = f"print({said!r})\nraise SystemExit(1)"
    put_java(tmp_path / "bin", script, monkeypatch)

    with pytest.raises(ConnectorUnavailable) as failure:
        connector_jars(tmp_path / "deps")

    assert str(failure.value) == "no Kafka connector for Spark: java.net.ConnectException: Connection refused"


def test_a_machine_without_java_gets_the_next_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))

    with pytest.raises(ConnectorUnavailable, match="JDK 17 or later, and there is no java on this machine"):
        connector_jars(tmp_path / "deps")
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    with pytest.raises(ConnectorUnavailable, match="there is no java in /nowhere/bin; install"):
        session.require_java()


@pytest.mark.parametrize(
    ("version", "reason"),
    [("1.8.0_402", "is of version 8"), ("11.0.2", "is of version 11"), ("?", "-version` does not answer")],
)
def test_a_java_that_is_too_old_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str, reason: str
) -> None:
    put_java(tmp_path / "bin", "", monkeypatch, version)

    with pytest.raises(ConnectorUnavailable, match=rf"{tmp_path}/bin/java.*{reason}|{reason}"):
        session.require_java()


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "deps").write_text("a file where the folder should be")

    with pytest.raises(ConnectorUnavailable, match=r"cannot write to .*deps/ivy"):
        connector_jars(tmp_path / "deps")


@pytest.mark.pure  # the compiled form is not in the repository
def test_the_folder_is_the_environments_or_the_repositorys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MINIBROKER_DEPS", "/somewhere/else")
    chosen = session.dependency_folder()
    monkeypatch.delenv("MINIBROKER_DEPS")

    assert Path("/somewhere/else") == chosen
    assert Path(__file__).parents[2] / ".deps" == session.dependency_folder()


@pytest.mark.parametrize(
    ("master", "here"),
    [
        ("local[*]", True),
        ("local-cluster[2,1,1024]", True),
        ("spark://127.0.0.1:7077", True),
        ("spark://localhost:7077", True),
        ("spark://10.0.0.7:7077", False),
        ("yarn", False),
        ("k8s://https://cluster:6443", False),
    ],
)
def test_a_driver_whose_executors_are_elsewhere_has_an_address_that_they_reach(master: str, here: bool) -> None:
    assert session.is_on_this_machine(master) is here
