"""The sources of settings, and which wins; what each says is in tests/golden/settings (sources.txt, images.txt)."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from minibroker.broker.config.kafka_config import load_config
from minibroker.broker.wings.images import other_images
from minibroker.broker.wings.images.images import Images
from minibroker.protocol.java_properties import parse_properties
from tests.sources import ROOT


def test_an_entry_knows_the_line_it_starts_on() -> None:
    text = "# one\r\na=1\n\nb=2,\\\n  3\nc=4"

    assert [(entry.key, entry.line) for entry in parse_properties(text)] == [("a", 2), ("b", 4), ("c", 6)]


def test_a_mounted_file_has_the_settings_and_variables_win_over_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "server.properties").write_text(
        "listeners=A://:7\nlistener.security.protocol.map=A:PLAINTEXT\n"
        "inter.broker.listener.name=A\nlog.dir=/there\nnum.partitions=3\n"
    )
    of_the_dockerfile = dict(re.findall(r"(KAFKA_\w+)=(\S+)", (ROOT / "Dockerfile").read_text()))
    given = {"KAFKA_MOUNTED_CONF_DIR": str(tmp_path), "KAFKA_NUM_PARTITIONS": "5"}

    config = load_config(None, [], listen=None, data_dir=None, images=Images(of_the_dockerfile | given))

    assert config.listen_addresses == [("", 7)]
    assert (config.num_partitions, config.log_dir) == (5, Path("/there"))
    assert config.notes[0] == f"settings are read from {tmp_path}/server.properties, and variables win over it"
    assert of_the_dockerfile == {name: value for value, name in other_images.OF_THE_DOCKERFILE.values()}


def test_the_command_line_wins_over_the_environment() -> None:
    config = load_config(
        None, ["num.partitions=5"], listen=None, data_dir=None, images=Images({"KAFKA_NUM_PARTITIONS": "3"})
    )

    assert config.num_partitions == 5
