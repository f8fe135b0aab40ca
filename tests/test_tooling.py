"""Tools for developers are as the documents say: hooks, the editor's settings, debugging."""

from __future__ import annotations

import configparser
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from benchmarks.apache_kafka import KafkaUnavailable, kafka_jars
from benchmarks.processes import free_port
from tests.jvm import run_for
from tests.leftovers import leftovers
from tests.recipes import ROOT, USUAL_ADDRESS, commands_of, shell
from tests.setup_clients import prepare

CONTRIBUTING = ROOT / "CONTRIBUTING.md"
SCRATCH = "out/debugging"
LONG_TESTS = "tests/integration/test_old_clients.py"
START_SECONDS = 60.0
END_SECONDS = 30.0


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


@pytest.mark.skipif(shutil.which("make") is None, reason="there is no `make` here: apt install make")
@pytest.mark.parametrize(("target", "options"), [("run", ""), ("demo", "--console 127.0.0.1:8080 --days-per-second 3")])
def test_the_demo_is_the_only_process_that_a_ctrl_c_ends(target: str, options: str) -> None:
    """A make of its own would report that as an error."""
    assert recipe_of(target) == [f".venv/bin/python -m minibroker.demo --end-with-parent {options} "]


def test_editors_break_lines_where_ruff_does() -> None:
    settings = configparser.ConfigParser()
    settings.read_string("[general]\n" + (ROOT / ".editorconfig").read_text())
    ruff = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["ruff"]

    widths = [section["max_line_length"] for section in settings.values() if "max_line_length" in section]

    assert widths == [str(ruff["line-length"])]


@pytest.mark.integration
@pytest.mark.slow
@pytest.mark.skipif(shutil.which("make") is None, reason="there is no `make` here: apt install make")
def test_make_leaves_nothing_running_when_it_is_stopped(tmp_path: Path) -> None:
    command = ["make", "-o", ".venv/.dev", "test-fast", "FAST=integration", "WORKERS=2"]
    variables = {"PYTEST_ADDOPTS": f"{LONG_TESTS} --basetemp {tmp_path / 'theirs'}"}
    with leftovers() as left, (tmp_path / "output").open("wb") as output:
        make = subprocess.Popen(
            command, cwd=ROOT, env=left.environment | variables, stdout=output, stderr=output, process_group=0
        )
        while "minibroker serve" not in " ".join(left.wait_until(4, START_SECONDS).values()):
            assert make.poll() is None, (tmp_path / "output").read_text()

        make.terminate()

        make.wait(END_SECONDS)
        left.wait_until_gone(END_SECONDS)


@pytest.mark.slow
def test_a_part_of_the_clients_that_takes_too_long_is_ended_with_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    def archive(program: str) -> str:
        _, errors = run_for(0.3, [sys.executable, "-c", program], dict(left.environment))
        return errors

    with leftovers() as left:
        prepare({"Spark's classes": lambda: archive("import subprocess; subprocess.run(['sleep', '600'])")})

        left.wait_until_gone(END_SECONDS)
    assert capsys.readouterr().out == "Spark's classes: not available, its tests will be skipped: not done in 0 s\n"


def test_a_command_that_takes_too_long_is_not_printed(capsys: pytest.CaptureFixture[str]) -> None:
    def run(seconds: float) -> str:
        return subprocess.run(["sleep", "600"], timeout=seconds, check=True, text=True).stdout

    prepare({"Spark's classes": lambda: run(0.001)})

    assert capsys.readouterr().out == "Spark's classes: not available, its tests will be skipped: not done in 0 s\n"


@pytest.mark.integration
@pytest.mark.slow
@pytest.mark.nightly
def test_the_commands_under_debugging_print_their_output(tmp_path: Path) -> None:
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
