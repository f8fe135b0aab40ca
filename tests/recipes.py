"""Recipes read and run: what docs/recipes/*.md print, in an empty folder, as a reader would do it.

A fenced block that opens with ` ```python NAME ` (any language, then a file's name) is that file. One that opens with
` ```console ` is run: a line `$ COMMAND` is given to the shell and must end with status 0, and the lines after it must
come out in this order, `...` standing for anything. `$ COMMAND &` goes on in the background until the recipe is done,
or until `$ kill %N`; the next command waits for what it is said to print. Other blocks are for the reader: installing,
for instance, which is done here already. Of the addresses 127.0.0.1:9092 and 127.0.0.1:8081 only the ports are others,
which are free.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from importlib.metadata import entry_points
from pathlib import Path
from typing import NamedTuple

from benchmarks.processes import free_port

ROOT = Path(__file__).parent.parent
RECIPES = ROOT / "docs" / "recipes"
SHELL = "/bin/bash"
COMMAND_SECONDS = 240
END_SECONDS = 30
BLOCK = re.compile(r"^```(\S+)(?: +(\S+))?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
CONSOLE = "console"
PROMPT = "$ "
ANYTHING = "..."
IN_THE_BACKGROUND = " &"
KILLING = re.compile(r"kill %(\d+)")
USUAL_ADDRESS = "127.0.0.1:9092"
USUAL_REGISTRY = "127.0.0.1:8081"
POLL_SECONDS = 0.02
KEY_OF_COMMANDS = re.compile(r"^ *(?:- )?(?P<key>run|before_script|script):(?P<command>.*)$")
LIST_MARK = "- "
INSTALLING = r"\bpipx? install\b"


class Command(NamedTuple):
    line: str
    output: list[str]


def files_of(text: str) -> dict[str, str]:
    """The content of each file that the recipe prints, by its name."""
    return {name: content for _, name, content in BLOCK.findall(text) if name}


def commands_of(text: str, language: str = CONSOLE) -> list[Command]:
    commands: list[Command] = []
    for in_language, _, content in BLOCK.findall(text):
        for line in content.splitlines() if in_language == language else ():
            if line.startswith(PROMPT):
                commands.append(Command(line.removeprefix(PROMPT), []))
            elif line.strip():
                commands[-1].output.append(line)
    return commands


def script_of(workflow: str) -> str:
    """The shell commands of a CI job's file, GitHub's or GitLab's, in their order; what installs is left out."""
    commands: list[str] = []
    indent = -1  # of the key whose commands follow; -1 outside
    for line in workflow.splitlines():
        key = KEY_OF_COMMANDS.match(line)
        if key is not None:
            indent = key.start("key")
            commands.append(key["command"].strip(" |"))
        elif len(line) - len(line.lstrip()) <= indent:
            indent = -1
        elif indent >= 0:
            commands.append(line.strip().removeprefix(LIST_MARK))
    return "\n".join(each for each in commands if each and not re.search(INSTALLING, each))


def first_missing(expected: list[str], output: str) -> str | None:
    """The first of the expected lines that does not come out after those before it."""
    position = 0
    for line in expected:
        pattern = ".*".join(map(re.escape, line.strip().split(ANYTHING)))
        found = re.compile(pattern).search(output, position)
        if found is None:
            return line
        position = found.end()
    return None


def environment(address: str = "") -> dict[str, str]:
    """A shell's of this virtual environment, as its user would have it; the commands of ours ask at that address."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    theirs = ("PYTEST_", "KAFKA_", "MINIBROKER_BOOTSTRAP")
    variables = {name: value for name, value in os.environ.items() if not name.startswith(theirs)}
    if not any(each.value == "minibroker.pytest_plugin" for each in entry_points(group="pytest11")):
        variables["PYTEST_PLUGINS"] = "minibroker.pytest_plugin"  # installed before it had a plugin
    if address:
        variables["MINIBROKER_BOOTSTRAP"] = address
    return variables | {"PATH": path, "PYTHONUNBUFFERED": "1", "COLUMNS": "120"}


class Shell:
    """Runs a recipe's commands in its folder, or in `at`; `background` is what ends with it."""

    def __init__(self, folder: Path, background: ExitStack, address: str, at: Path | None = None) -> None:
        self._folder = folder
        self._at = at or folder
        # Else a recipe's pytest removes what earlier runs of other tests have left: tens of thousands of files.
        self._environment = environment(address) | {"PYTEST_DEBUG_TEMPROOT": str(folder)}
        self._background = background
        self._jobs: dict[int, subprocess.Popen[bytes]] = {}  # by the number that the shell gives them

    def write(self, files: dict[str, str]) -> None:
        for name, content in files.items():
            path = self._folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content, encoding="utf-8")

    def run(self, command: Command) -> None:
        if command.line.endswith(IN_THE_BACKGROUND):
            self._start(command)
            return
        if killing := KILLING.fullmatch(command.line):
            end(self._jobs.pop(int(killing[1])))
            return
        done = subprocess.run(
            command.line,
            shell=True,
            executable=SHELL,
            cwd=self._at,
            env=self._environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=COMMAND_SECONDS,
            check=False,
        )
        assert done.returncode == 0, f"{command.line}\n{done.stdout}"
        missing = first_missing(command.output, done.stdout)
        assert missing is None, f"{command.line} does not print {missing!r}:\n{done.stdout}"

    def run_job(self, script: str) -> None:
        """A CI job's commands: the first that fails ends it, and what they leave running ends with the recipe."""
        printed = self._folder / ".printed"
        status = self._spawn(["-e", "-o", "pipefail", "-c", script], printed).wait(COMMAND_SECONDS)
        assert status == 0, f"{script}\nends with status {status}:\n{printed.read_text()}"

    def _start(self, command: Command) -> None:
        number = max(self._jobs, default=0) + 1
        printed = self._folder / f".job-{number}"
        job = self._spawn(["-c", f"exec {command.line.removesuffix(IN_THE_BACKGROUND)}"], printed)
        self._jobs[number] = job
        deadline = time.monotonic() + COMMAND_SECONDS
        while (missing := first_missing(command.output, printed.read_text())) is not None:
            said = f"{command.line} does not print {missing!r}:\n{printed.read_text()}"
            assert job.poll() is None, said
            assert time.monotonic() < deadline, said
            time.sleep(POLL_SECONDS)

    def _spawn(self, arguments: list[str], printed: Path) -> subprocess.Popen[bytes]:
        """A shell whose output goes into a file, in a session of its own: all that it starts ends with the recipe."""
        with printed.open("wb") as output:
            job = subprocess.Popen(
                [SHELL, *arguments],
                cwd=self._at,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        self._background.callback(end, job)
        return job


def end(job: subprocess.Popen[bytes]) -> None:
    """End a background job and what it has started."""
    for how in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(job.pid, how)
            job.wait(END_SECONDS)
        except ProcessLookupError:
            break
        except subprocess.TimeoutExpired:
            continue
    job.wait()


@contextmanager
def shell(folder: Path, address: str = "", *, at: Path | None = None) -> Iterator[Shell]:
    with ExitStack() as background:
        yield Shell(folder, background, address, at)


def recipe_text(name: str, address: str) -> str:
    text = (RECIPES / f"{name}.md").read_text(encoding="utf-8").replace(USUAL_ADDRESS, address)
    return text.replace(USUAL_REGISTRY, f"127.0.0.1:{free_port()}") if USUAL_REGISTRY in text else text
