"""Drivers in other languages that tests start many of: compiled once, then started as programs.

Each function returns the command to which a driver's arguments are added, or raises UnavailableError.
"""

from __future__ import annotations

import functools
import os
import shutil
import subprocess

from tests.integration.clients import DRIVERS, UnavailableError, python_driver
from tests.setup_clients import FRANZ_GO, HOW_TO_PREPARE, KAFKAJS, ROOT, build_franz_go, java_client

JAVA_CLIENT = "3.9.0"  # of Spark's connector
SOURCES = ROOT.joinpath(*DRIVERS.split("."))
JAVA_CLASSES = ROOT / "build" / "java-drivers"
JAVA_OPTIONS = ("-Xmx256m", "-Xshare:auto", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
JAVA_LOG_LEVEL = "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"


def python_program(module: str, library: str) -> list[str]:
    return [*python_driver(module), library]


@functools.cache
def java_program(name: str) -> list[str]:
    """A driver of the Java client, compiled where its source is newer than its class."""
    jars = java_client(JAVA_CLIENT)
    if shutil.which("javac") is None:
        raise UnavailableError("no javac: install a JDK (Debian: default-jdk-headless)")
    if not jars.is_dir():
        raise UnavailableError(f"no {jars}: {HOW_TO_PREPARE}")
    source, compiled = SOURCES / f"{name}.java", JAVA_CLASSES / f"{name}.class"
    if not compiled.exists() or compiled.stat().st_mtime < source.stat().st_mtime:
        JAVA_CLASSES.mkdir(parents=True, exist_ok=True)
        subprocess.run(["javac", "-cp", f"{jars}/*", "-d", str(JAVA_CLASSES), str(source)], check=True)
    return ["java", *JAVA_OPTIONS, JAVA_LOG_LEVEL, "-cp", f"{JAVA_CLASSES}:{jars}/*", name]


def node_program(name: str) -> list[str]:
    """A driver of kafkajs."""
    modules = KAFKAJS / "node_modules"
    if shutil.which("node") is None:
        raise UnavailableError("no node: install Node.js (Debian: nodejs)")
    if not modules.is_dir():
        raise UnavailableError(f"no {modules}: {HOW_TO_PREPARE}")
    return ["env", f"NODE_PATH={modules}", "node", str(SOURCES / f"{name}.js")]


@functools.cache
def go_program(command: str) -> list[str]:
    """The driver of franz-go, built without the network where its source has changed."""
    if not FRANZ_GO.is_dir():
        raise UnavailableError(f"no {FRANZ_GO}: {HOW_TO_PREPARE}")
    try:
        return [os.fspath(build_franz_go(is_online=False)), command]
    except (RuntimeError, subprocess.TimeoutExpired) as error:
        raise UnavailableError(f"{error}: {HOW_TO_PREPARE}") from None
