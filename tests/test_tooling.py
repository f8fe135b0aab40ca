"""What people use to help themselves is as the documents say: hooks, the editor's settings, debugging."""

from __future__ import annotations

import configparser
import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

from benchmarks.apache_kafka import KafkaUnavailable, kafka_jars
from benchmarks.processes import free_port
from tests.recipes import ROOT, USUAL_ADDRESS, commands_of, shell

CONTRIBUTING = ROOT / "CONTRIBUTING.md"
SCRATCH = "out/debugging"


def recipe_of(target: str) -> list[str]:
    """The commands `make` would run for a target, its environment being made."""
    made = [option for file in (".venv/.dev", ".venv/.demo", ".venv/.serve") for option in ("-o", file)]
    done = subprocess.run(
        ["make", "--no-print-directory", "-n", *made, target], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return done.stdout.splitlines()


@pytest.mark.skipif(shutil.which("make") is None, reason="there is no `make` here: apt install make")
def test_the_hooks_before_a_commit_are_what_make_lint_runs() -> None:
    hooks = re.findall(r"^ +entry: (.+)$", (ROOT / ".pre-commit-config.yaml").read_text(), re.MULTILINE)

    assert hooks == recipe_of("lint")


@pytest.mark.skipif(shutil.which("make") is None, reason="there is no `make` here: apt install make")
def test_make_profile_runs_the_profiler() -> None:
    assert recipe_of("profile") == [".venv/bin/python -m benchmarks.profile "]


def test_editors_break_lines_where_ruff_does() -> None:
    settings = configparser.ConfigParser()
    settings.read_string("[general]\n" + (ROOT / ".editorconfig").read_text())
    ruff = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["ruff"]

    widths = [section["max_line_length"] for section in settings.values() if "max_line_length" in section]

    assert widths == [str(ruff["line-length"])]


@pytest.mark.integration
@pytest.mark.slow
@pytest.mark.nightly
def test_what_is_said_of_debugging_works(tmp_path: Path) -> None:
    """Every command of the section, in the clone; the broker's files are in a folder of the test."""
    address = f"127.0.0.1:{free_port()}"
    section = CONTRIBUTING.read_text(encoding="utf-8").partition("## Debugging")[2].partition("\n## ")[0]
    text = section.replace(USUAL_ADDRESS, address).replace(SCRATCH, str(tmp_path / "debugging"))
    commands = commands_of(text)
    try:
        kafka_jars()
    except KafkaUnavailable:
        commands = [command for command in commands if "tests.conformance" not in command.line]
    assert len(commands) > 8

    with shell(tmp_path, address, at=ROOT) as started:
        for command in commands:
            started.run(command)
