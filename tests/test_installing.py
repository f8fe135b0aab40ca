"""The commands that the documents print about installing work, as they are printed."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

import minibroker
from tests.recipes import RECIPES, ROOT, Command, commands_of, files_of, shell
from tests.sources import PACKAGES, PARTS, source_files

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
VIRTUAL_ENVIRONMENT = "python3 -m venv .venv && . .venv/bin/activate"
BESIDE = "../minibroker"  # the clone beside the reader's project
WITHOUT_INSTALLING = {
    "compose",
    "stuck-consumer",
    "moving-to-apache-kafka",
    "new-protocol",
}  # containers, and minibroker installed before
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
SOURCES = [*source_files(*PACKAGES), *(ROOT / "docker").rglob("*.py")]
# Ours by its name alone, as an index would be asked for it.
FROM_AN_INDEX = re.compile(
    r"\bpipx? (?:install|wheel)\b[^\n`&|;#]*?[ '\"]minibroker(?:\[[a-z,]+\])?['\"]?(?=[ `'\")]|$)", re.M
)


@pytest.mark.parametrize(
    ("line", "is_wrong"),
    [
        ("pip install 'minibroker[cli]' pytest", True),
        ("pipx install minibroker", True),
        ("pip install x minibroker", True),
        ("pip install . && minibroker serve", False),
        ("pip install ../minibroker pytest", False),
        ("pip install -e '.[demo]'", False),
    ],
)
def test_a_line_that_asks_an_index_for_minibroker_is_recognised(line: str, is_wrong: bool) -> None:
    assert bool(FROM_AN_INDEX.search(line)) == is_wrong


def test_no_line_asks_an_index_for_minibroker() -> None:
    wrong = [
        f"{path.relative_to(ROOT)}: {found[0]}"
        for path in (*DOCUMENTS, *SOURCES)
        for found in FROM_AN_INDEX.finditer(path.read_text(encoding="utf-8"))
    ]

    assert wrong == []


def installing(text: str) -> list[list[str]]:
    """The lines of each unnamed block of a document that calls pip."""
    blocks = [content.splitlines() for content in re.findall(r"^```\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)]
    return [lines for lines in blocks if any(line.startswith("pip ") for line in lines)]


@pytest.mark.parametrize("document", [ROOT / "README.md", *sorted(RECIPES.glob("*.md"))], ids=lambda path: path.stem)
def test_a_virtual_environment_comes_before_pip_install(document: Path) -> None:
    blocks = installing(document.read_text(encoding="utf-8"))

    assert blocks or document.stem in WITHOUT_INSTALLING
    assert [lines[0] for lines in blocks] == [VIRTUAL_ENVIRONMENT] * len(blocks)
    if document.parent == RECIPES:
        assert all(BESIDE in lines[1] for lines in blocks)


def test_ci_installs_the_wheel_that_a_clone_builds() -> None:
    wheels = re.findall(r"\bwheels/\S+", (RECIPES / "ci.md").read_text(encoding="utf-8"))

    assert set(wheels) == {f"wheels/minibroker-{minibroker.__version__}-py3-none-any.whl"}


def test_the_commands_packages_come_with_a_plain_installation() -> None:
    plain = {re.split(r"[>=]", requirement)[0] for requirement in PROJECT["dependencies"]}

    assert {"kafka-python", "typer", "rich", "hypercorn", "starlette", "prometheus-client"} <= plain
    assert [PROJECT["optional-dependencies"][extra] for extra in ("cli", "console", "metrics")] == [[], [], []]


@pytest.mark.slow
@pytest.mark.integration
@pytest.mark.nightly
@pytest.mark.parametrize("tool", ["uvx", "pipx"])
def test_a_tool_that_fetches_runs_the_command_as_the_readme_has_it(tool: str, tmp_path: Path) -> None:
    if shutil.which(tool) is None:
        pytest.skip(f"no {tool} here: pip install uv pipx")
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    (line,) = re.findall(rf"^{tool} .* \. minibroker serve$", readme, re.MULTILINE)
    environment = os.environ | {name: str(tmp_path / name) for name in ("PIPX_HOME", "UV_CACHE_DIR")}
    words = [*line.split()[:-1], "--version"]

    done = subprocess.run(words, cwd=ROOT, env=environment, capture_output=True, text=True, check=True)

    assert done.stdout == f"minibroker {minibroker.__version__} (pure Python)\n"


@pytest.mark.slow
@pytest.mark.integration
@pytest.mark.nightly  # minibroker/test_packaging.py installs the wheel
@pytest.mark.timeout(600)
def test_the_pytest_recipe_works_in_a_new_virtual_environment_as_printed(tmp_path: Path) -> None:
    """The clone lies beside the project; nothing of this environment is used."""
    project = tmp_path / "project"
    project.mkdir()
    clone = tmp_path / "minibroker"
    ignored = shutil.ignore_patterns("__pycache__", "*.egg-info")
    for top in ("src", *PARTS):
        shutil.copytree(ROOT / top, clone / top, symlinks=True, ignore=ignored)
    for name in ("pyproject.toml", "README.md"):
        shutil.copy(ROOT / name, clone / name)
    text = (RECIPES / "pytest.md").read_text(encoding="utf-8")
    (install,) = installing(text)
    first, *_ = commands_of(text)

    with shell(project) as started:
        started.write(files_of(text))
        started.run(
            Command("\n".join([*install, "command -v pytest minibroker", first.line]), [str(project), *first.output])
        )
