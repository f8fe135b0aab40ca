"""The recipes in docs/recipes/, each run as it is printed, in an empty folder.

A fenced block that opens with ` ```python NAME ` (any language, then a file's name) is that file. One that opens with
` ```console ` is run: a line `$ COMMAND` is given to the shell and must end with status 0, and the lines after it must
come out in this order, `...` standing for anything. Other blocks are for the reader: installing, for instance, which
is done here already.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path
from typing import NamedTuple

import pytest

RECIPES = Path(__file__).parent.parent / "docs" / "recipes"
# What needs more than a shell is run by a test of its own, which reads the recipe.
RUN_ELSEWHERE = {"compose": "tests/integration/test_compose.py"}
COMMAND_SECONDS = 120
BLOCK = re.compile(r"^```(\S+)(?: +(\S+))?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
CONSOLE = "console"
PROMPT = "$ "
ANYTHING = "..."


def recipes_run_here() -> list[Path]:
    return [path for path in sorted(RECIPES.glob("*.md")) if path.stem not in RUN_ELSEWHERE]


class Command(NamedTuple):
    line: str
    output: list[str]


def files_of(text: str) -> dict[str, str]:
    """The content of each file that the recipe prints, by its name."""
    return {name: content for _, name, content in BLOCK.findall(text) if name}


def commands_of(text: str) -> list[Command]:
    commands: list[Command] = []
    for language, _, content in BLOCK.findall(text):
        for line in content.splitlines() if language == CONSOLE else ():
            if line.startswith(PROMPT):
                commands.append(Command(line.removeprefix(PROMPT), []))
            elif line.strip():
                commands[-1].output.append(line)
    return commands


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


def environment() -> dict[str, str]:
    """A shell's of this virtual environment, as its user would have it."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    variables = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "KAFKA_"))}
    if not any(each.value == "minibroker.pytest_plugin" for each in entry_points(group="pytest11")):
        variables["PYTEST_PLUGINS"] = "minibroker.pytest_plugin"  # installed before it had a plugin
    return variables | {"PATH": path, "PYTHONUNBUFFERED": "1"}


@pytest.mark.integration
@pytest.mark.slow
@pytest.mark.parametrize("recipe", recipes_run_here(), ids=lambda path: path.stem)
def test_a_recipe_does_what_it_says(recipe: Path, tmp_path: Path) -> None:
    text = recipe.read_text(encoding="utf-8")
    for name, content in files_of(text).items():
        (tmp_path / name).write_text(content, encoding="utf-8")
    commands = commands_of(text)
    assert commands, f"{recipe.name} has no block of commands: nothing of it is tried"

    for command in commands:
        done = subprocess.run(
            command.line,
            shell=True,
            cwd=tmp_path,
            env=environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=COMMAND_SECONDS,
            check=False,
        )
        assert done.returncode == 0, f"{command.line}\n{done.stdout}"
        missing = first_missing(command.output, done.stdout)
        assert missing is None, f"{command.line} does not print {missing!r}:\n{done.stdout}"


def test_a_recipe_is_read_as_it_is_written() -> None:
    text = "# Title\n```\npip install x\n```\n```python a.py\nprint(1)\n```\n```console\n$ python a.py\n1 ... 2\n```\n"

    assert files_of(text) == {"a.py": "print(1)\n"}
    assert commands_of(text) == [Command("python a.py", ["1 ... 2"])]


@pytest.mark.parametrize(
    ("output", "missing"), [("x 1 y 2\nend", None), ("end\n1 x 2", "end"), ("1 3\nend", "1 ... 2"), ("", "1 ... 2")]
)
def test_expected_lines_come_in_order(output: str, missing: str | None) -> None:
    assert first_missing(["1 ... 2", "end"], output) == missing
