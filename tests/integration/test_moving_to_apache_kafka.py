"""docs/recipes/moving-to-apache-kafka.md with Apache Kafka 2.0.1: its `shell-session` blocks as they are printed.

The jars come without Kafka's scripts: here are some in their place, which start the same classes. ZooKeeper's shell
wants a jar that is not among them; ours creates nodes, and no more.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from benchmarks.apache_kafka import class_path
from benchmarks.processes import ROOT, free_port
from tests.recipes import commands_of, files_of, recipe_text, shell

RECIPE = "moving-to-apache-kafka"
WITH_APACHE_KAFKA = "shell-session"
ZOOKEEPER_PORT = "2181"
SCRIPTS = {
    "zookeeper-server-start.sh": ("org.apache.zookeeper.server.quorum.QuorumPeerMain", "128m"),
    "kafka-topics.sh": ("kafka.admin.TopicCommand", "128m"),
    "kafka-server-start.sh": ("kafka.Kafka", "512m"),
}
SCRIPT = """#!/bin/sh
exec java -Xmx{heap} -Dlog4j.configuration=file:kafka/log4j.properties -Dzookeeper.admin.enableServer=false \\
    -cp '{class_path}' {main} "$@"
"""
ZOOKEEPER_SHELL = """#!{python}
import json, sys
sys.path.insert(0, "{root}")
from tests.integration.foreign_directory import ZooKeeper
address, create, path, data = sys.argv[1:]
assert create == "create"
with ZooKeeper(int(address.rpartition(":")[2])) as zookeeper:
    zookeeper.create(path, json.loads(data))
"""
LOG4J = """log4j.rootLogger=INFO, stdout
log4j.appender.stdout=org.apache.log4j.ConsoleAppender
log4j.appender.stdout.layout=org.apache.log4j.PatternLayout
log4j.appender.stdout.layout.ConversionPattern=[%d] %p %m (%c)%n
"""


def unpack(jars: Path, folder: Path) -> None:
    """Unpack the part of Kafka's distribution that the recipe uses."""
    scripts = folder / "bin"
    scripts.mkdir(parents=True)
    (folder / "log4j.properties").write_text(LOG4J)
    for name, (main, heap) in SCRIPTS.items():
        (scripts / name).write_text(SCRIPT.format(main=main, heap=heap, class_path=class_path(jars)))
    (scripts / "zookeeper-shell.sh").write_text(ZOOKEEPER_SHELL.format(python=sys.executable, root=ROOT))
    for script in scripts.iterdir():
        script.chmod(0o755)


@pytest.mark.nightly
def test_a_data_directory_goes_to_apache_kafka_and_back_by_the_recipe(jars: Path, tmp_path: Path) -> None:
    address = f"127.0.0.1:{free_port()}"
    text = recipe_text(RECIPE, address).replace(ZOOKEEPER_PORT, str(free_port()))
    commands = commands_of(text, WITH_APACHE_KAFKA)
    assert commands

    with shell(tmp_path, address) as started:
        started.write(files_of(text))
        unpack(jars, tmp_path / "kafka")
        for command in commands:
            started.run(command)
