"""`minibroker` itself: what its help says, how a mistake is told, what a start of it imports."""

from __future__ import annotations

import builtins
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import typer

import minibroker as package
import minibroker.__main__ as entry_point
from minibroker.cli import dump_log
from minibroker.cli.app import PROGRAMS, app_of, main
from minibroker.cli.habits import HABITS
from minibroker.cli.shown import table
from minibroker.errors import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_OK, EXIT_USAGE
from minibroker.protocol.form import form
from tests.minibroker.commands import minibroker

ROOT = Path(__file__).parent.parent.parent


def test_alone_it_shows_help_with_every_command_and_the_exit_statuses(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0

    text = capsys.readouterr().out
    commands = "serve produce consume offsets health apis dump-log transcript topics groups configs config".split()
    for word in (*commands, "Exit status", "minibroker serve --data-dir"):
        assert word in text


@pytest.mark.parametrize(
    ("noun", "commands"),
    [
        ("topics", ["list", "create", "grow", "describe", "delete"]),
        ("groups", ["list", "describe", "reset", "delete"]),
        ("configs", ["describe", "set", "unset"]),
        ("acls", ["list", "add", "remove"]),
        ("quotas", ["list", "set", "remove"]),
        ("config", ["lint"]),
    ],
)
def test_a_noun_alone_shows_its_commands(noun: str, commands: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([noun]) == 0

    text = capsys.readouterr().out
    for word in commands:
        assert word in text


def test_every_command_has_json_and_an_example() -> None:
    for command in every_command(typer.main.get_command(app_of())):
        options = {option for parameter in command.params for option in parameter.opts}
        assert {"--output", "-o"} <= options, command.name
        assert "minibroker " in (command.epilog or ""), command.name


def every_command(command: Any) -> Iterator[Any]:
    """List the commands that do something, but the programs, which read their own arguments."""
    inner = getattr(command, "commands", None)
    if inner is None:
        yield command
    else:
        yield from (each for name, child in inner.items() if name not in PROGRAMS for each in every_command(child))


def test_every_command_and_every_exit_status_is_in_the_document() -> None:
    text = (ROOT / "docs" / "cli.md").read_text()

    for command in every_command(typer.main.get_command(app_of())):
        assert f"`{command.name}" in text, command.name
    for status in (EXIT_OK, EXIT_FAILED, EXIT_USAGE, EXIT_INTERRUPTED):
        assert f"| {status} |" in text


def test_an_option_that_stands_for_another_is_one_that_the_command_does_not_have() -> None:
    for command in (typer.main.get_command(app_of()), *every_command(typer.main.get_command(app_of()))):
        options = {option for parameter in command.params for option in parameter.opts}
        assert not options & HABITS.get(command.name or "minibroker", {}).keys()


@pytest.mark.parametrize(
    ("typed", "usage"),
    [
        (["help"], "minibroker [OPTIONS]"),
        (["help", "topics", "create"], "minibroker topics create"),
        (["topics", "help"], "minibroker topics [OPTIONS]"),
        (["topics", "help", "create"], "minibroker topics create"),
    ],
)
def test_help_is_a_command_too(typed: list[str], usage: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(typed) == 0
    assert f"Usage: {usage}" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.parametrize("command", ["serve", "console"])
def test_help_shows_the_options_of_programs_that_read_their_own(command: str) -> None:
    assert f"usage: minibroker {command} [-h]" in minibroker("help", command).out


@pytest.mark.parametrize("typed", ["--version", "version"])
def test_the_version_is_the_packages(typed: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([typed]) == 0
    assert capsys.readouterr().out == f"minibroker {package.__version__} ({form()})\n"


@pytest.mark.parametrize("command", [[], ["topics", "create"], ["dump-log"], ["configs", "set"], ["produce"]])
def test_the_help_names_no_types_of_python(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*command, "-h"]) == 0

    text = capsys.readouterr().out
    assert "--help" in text
    for name in ("<bool>", "list[", "<str>", "<path>"):
        assert name not in text


@pytest.mark.slow
def test_serve_shows_the_options_of_the_broker() -> None:
    shown = minibroker("serve", "--help")

    assert shown.status == 0
    for word in ("--listen", "--data-dir", "--ready-file", "--config", "--set", "exit status"):
        assert word in shown.out


@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments",
    [["serve", "--nonsense"], ["serve", "--listen", "9092"], ["serve", "--set", "x"], ["serve", "--chec"]],
)
def test_a_wrong_option_of_serve_is_an_error_in_one_line(arguments: list[str]) -> None:
    done = minibroker(*arguments)

    assert done.status == 2
    assert arguments[-1] in done.complaint


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "status"),
    [
        ("topics create --help", 0),
        ("serve --help", 0),
        ("help console", 0),
        ("jobs run archive --help", 0),
        ("--version", 0),
        ("jobs list", 1),
    ],
)
def test_output_that_nobody_reads_is_no_traceback_and_help_is_no_failure(command: str, status: int) -> None:
    end, begin = os.pipe()
    os.close(end)
    done = subprocess.run(
        [sys.executable, "-m", "minibroker", *command.split()],
        stdin=subprocess.DEVNULL,
        stdout=begin,
        stderr=subprocess.PIPE,
        check=False,
    )
    os.close(begin)

    assert (done.returncode, done.stderr) == (status, b"")


@pytest.mark.slow
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="/dev/full is a device of Linux")
@pytest.mark.parametrize("command", ["topics create --help", "serve --help", "jobs list"])
def test_output_for_which_the_disk_is_full_is_one_line(command: str) -> None:
    with open("/dev/full", "w", encoding="ascii") as full:
        done = subprocess.run(
            [sys.executable, "-m", "minibroker", *command.split()], stdout=full, stderr=subprocess.PIPE, check=False
        )

    assert (done.returncode, done.stderr) == (
        1,
        b"minibroker: cannot write the output: No space left on device; make room, or write it elsewhere\n",
    )


@pytest.mark.slow
def test_output_that_is_not_read_to_its_end_is_no_error(tmp_path: Path) -> None:
    path = tmp_path / "replication-offset-checkpoint"
    path.write_text("0\n9999\n" + "".join(f"a-topic-with-a-long-name {number} 0\n" for number in range(9999)))
    with subprocess.Popen(
        [sys.executable, "-m", "minibroker", "dump-log", path],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.readline()
        process.stdout.close()

        assert process.stderr.read() == ""


def test_only_the_noun_that_is_named_is_made() -> None:
    made = [command.name for command in every_command(typer.main.get_command(app_of(["topics", "list"])))]

    assert "list" in made
    assert "produce" not in made


def test_a_command_imports_neither_other_nouns_nor_tables() -> None:
    program = "import sys, minibroker.__main__, minibroker.cli.app as app; app.app_of(['topics']); print(*sys.modules)"

    loaded = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)

    modules = set(loaded.stdout.split())
    assert "minibroker.cli.topics" in modules
    assert not {f"minibroker.cli.{noun}" for noun in ("groups", "produce", "cluster", "jobs")} & modules
    assert not {"trio", "kafka", "confluent_kafka", "rich", "asyncio", "minibroker.schemas"} & modules


@pytest.mark.slow
def test_an_interrupt_that_python_drops_comes_again() -> None:
    program = """
import signal, sys, time
import minibroker.__main__ as entry_point

class Lock:
    def __del__(self):
        signal.raise_signal(signal.SIGINT)

def command():
    Lock()
    time.sleep(60)

entry_point.client_main = command
sys.argv[1:] = ["topics"]
sys.exit(entry_point.main())
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=30)

    assert (done.returncode, done.stderr) == (130, "")


def test_an_interrupted_command_ends_with_status_130_in_silence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupt(*arguments: object, **options: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(dump_log, "dump_file", interrupt)
    monkeypatch.setattr(entry_point, "gc", Mock())  # this process goes on
    monkeypatch.setattr(entry_point, "atexit", Mock())
    monkeypatch.setattr(sys, "argv", ["minibroker", "dump-log", "any.log"])

    assert entry_point.main() == 130
    monkeypatch.delitem(sys.modules, "minibroker.cli.app")
    monkeypatch.setattr(builtins, "__import__", interrupt)  # as a Ctrl-C while modules are imported
    assert entry_point.main() == 130
    monkeypatch.undo()
    assert capsys.readouterr() == ("", "")


def test_results_are_documents_or_rows_and_without_any_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    table([{"name": "a"}], ("NAME",), [("a",)]).print("json")
    table([{"name": "b"}], ("NAME",), [("b",)], without="none yet").print("text")
    table([], ("NAME",), without="none yet").print("text")

    printed = capsys.readouterr()
    assert printed.out.split() == ['[{"name":', '"a"}]', "NAME", "b"]
    assert printed.err == "minibroker: none yet\n"
