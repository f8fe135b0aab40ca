"""Kafka's own tools of 2.0.1, as the scripts in its bin folder start them."""

from __future__ import annotations

import subprocess
from pathlib import Path

from benchmarks.apache_kafka import class_path, jvm_options
from tests.jvm import QUICK_JVM

TOOL_SECONDS = 120.0


def kafka_tool(jars: Path, main: str, *arguments: object, text: str = "", shows_errors: bool = False) -> str:
    """Run one of Kafka's main classes to its end, which must be a good one; what it prints."""
    done = subprocess.run(
        ["java", *jvm_options(QUICK_JVM), "-Xmx256m", "-cp", class_path(jars), main, *map(str, arguments)],
        input=text,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT if shows_errors else subprocess.PIPE,
        text=True,
        timeout=TOOL_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-2000:] + (done.stderr or "")
    return done.stdout


def dump_log_segments(jars: Path, files: list[Path], *options: str) -> str:
    """All that kafka.tools.DumpLogSegments says of log segments and indexes."""
    named = ",".join(map(str, files))
    return kafka_tool(jars, "kafka.tools.DumpLogSegments", *options, "--files", named, shows_errors=True)
