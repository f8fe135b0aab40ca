"""The recipes in docs/recipes/ and the README's first screen, each run as it is printed (recipes.py says how)."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from benchmarks.processes import free_port
from tests.recipes import (
    IN_THE_BACKGROUND,
    RECIPES,
    ROOT,
    USUAL_ADDRESS,
    Command,
    Shell,
    commands_of,
    files_of,
    first_missing,
    recipe_text,
    script_of,
    shell,
)

# What needs more than a shell is run by a test of its own, which reads the recipe.
RUN_ELSEWHERE = {"compose": "tests/integration/test_compose.py"}
CI = "ci"  # has jobs instead of commands
# Of these, what needs Apache Kafka is run too.
ALSO_RUN_ELSEWHERE = {
    "moving-to-apache-kafka": "tests/integration/test_moving_to_apache_kafka.py",
    "new-protocol": "tests/integration/test_any_kafka.py",
}
KNOWN = {
    "pytest", "unittest", "asyncio", "spark", "compose", "ci", "stuck-consumer", "transactions", "old-clients", "clock",
    "faults", "quotas", "moving-to-apache-kafka", "acls", "security", "grafana", "new-protocol",
    "slow-consumer", "spark-alerts", "spark-archive", "spark-lag", "spark-replay", "spark-stream-test",
    "spark-telemetry", "spark-verify",
    "checking-a-history", "fail-over", "lagging-replica", "acks", "transactions-v2",
    "chaos", "share-groups", "schema-registry", "judging-a-broker", "life-of-a-poll", "msk",
}  # fmt: skip


def skip_what_cannot_run(recipe: str) -> None:
    if recipe.startswith("spark"):
        pytest.importorskip("pyspark", reason="pip install -e '.[demo]'")
        from minibroker.spark_jobs.session import ConnectorUnavailable, connector_jars

        try:
            connector_jars()
        except ConnectorUnavailable as reason:
            pytest.skip(str(reason))


RUN_HERE = sorted(path.stem for path in RECIPES.glob("*.md") if path.stem not in (*RUN_ELSEWHERE, CI))
# Of these many commands, the tests of each command and client try what they do; their text is tried at night.
AT_NIGHT = {
    "acks", "acls", "checking-a-history", "fail-over", "grafana", "lagging-replica", "new-protocol", "old-clients",
    "quotas", "security", "slow-consumer", "stuck-consumer", "transactions-v2", "judging-a-broker", "chaos",
}  # fmt: skip
# The README's first screen has Spark, too.
WITH_SPARK = {name: [pytest.mark.spark, pytest.mark.nightly] for name in KNOWN if name.startswith("spark")}
MARKS = {name: [pytest.mark.nightly] for name in AT_NIGHT} | WITH_SPARK


@pytest.mark.integration
@pytest.mark.slow
@pytest.mark.parametrize("recipe", [pytest.param(name, marks=MARKS.get(name, [])) for name in RUN_HERE])
def test_the_commands_of_a_recipe_print_its_output(recipe: str, tmp_path: Path) -> None:
    skip_what_cannot_run(recipe)
    address = f"127.0.0.1:{free_port()}"
    text = recipe_text(recipe, address)
    commands = commands_of(text)
    assert commands, f"{recipe}.md has no block of commands: nothing of it is tried"

    with shell(tmp_path, address) as started:
        started.write(files_of(text))
        for command in commands:
            started.run(command)


@pytest.mark.integration
@pytest.mark.slow
@pytest.mark.sample(of=lambda job: job.endswith("tests.yml"))
@pytest.mark.parametrize("job", [".github/workflows/tests.yml", ".github/workflows/program.yml", ".gitlab-ci.yml"])
def test_a_ci_job_passes(job: str, tmp_path: Path) -> None:
    address = f"127.0.0.1:{free_port()}"
    files = files_of(recipe_text(CI, address))

    with shell(tmp_path, address) as started:
        started.write(files)
        started.run_job(script_of(files[job]))

    kept = {path.name for path in tmp_path.rglob("minibroker*.log")}
    assert kept in ({"minibroker-main-0.log"}, {"minibroker.log"})


@pytest.mark.integration
@pytest.mark.slow
@pytest.mark.nightly
def test_the_commands_of_the_page_on_security_print_its_output(tmp_path: Path) -> None:
    address = f"127.0.0.1:{free_port()}"
    text = (ROOT / "docs" / "security.md").read_text(encoding="utf-8").replace(USUAL_ADDRESS, address)

    with shell(tmp_path, address) as started:
        started.write(files_of(text))
        for command in commands_of(text):
            started.run(command)


def test_each_recipe_is_listed_and_run() -> None:
    assert {path.stem for path in RECIPES.glob("*.md")} == KNOWN
    for name, test in {**RUN_ELSEWHERE, **ALSO_RUN_ELSEWHERE}.items():
        assert name in (ROOT / test).read_text(encoding="utf-8")


def first_screen(address: str) -> tuple[list[str], list[str]]:
    """The commands, and the programs (pytest's, Spark's), that a stranger meets first in the README.

    Without those of tools that fetch, which test_installing.py runs.
    """
    text = (ROOT / "README.md").read_text(encoding="utf-8").partition("## Recipes")[0]
    return commands_and_programs(re.sub(r"^```\nuvx .*?^```$", "", text, flags=re.MULTILINE | re.DOTALL), address)


def commands_and_programs(text: str, address: str) -> tuple[list[str], list[str]]:
    blocks = re.findall(r"^```(\S*)\n(.*?)^```$", text.replace(USUAL_ADDRESS, address), re.MULTILINE | re.DOTALL)
    commands = [line for language, content in blocks if not language for line in content.splitlines()]
    return commands, [content for language, content in blocks if language == "python"]


def follow(started: Shell, commands: list[str]) -> None:
    *_, start, activate, first_message = commands
    assert activate == ". .venv/bin/activate"
    started.run(Command(serve_of(start), ["minibroker is ready at"]))
    started.run(Command(first_message, ["hello"]))


def serve_of(start: str) -> str:
    install, serve = start.split(" && ")
    assert install == "pip install -e ."  # test_installing.py installs
    return serve + IN_THE_BACKGROUND


@pytest.mark.integration
@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "program", "printed"),
    [
        pytest.param(0, "pytest -q", "1 passed", id="pytest"),
        pytest.param(1, "python", "hello", marks=[pytest.mark.spark, pytest.mark.nightly], id="spark"),
    ],
)
def test_the_commands_of_the_readmes_first_screen_print_its_output(
    tmp_path: Path, number: int, program: str, printed: str
) -> None:
    if program == "python":
        skip_what_cannot_run("spark")
    address = f"127.0.0.1:{free_port()}"
    commands, programs = first_screen(address)
    assert len(programs) == 2

    with shell(tmp_path, address) as started:
        follow(started, commands)
        started.write({"test_first.py": programs[number]})
        started.run(Command(f"{program} test_first.py", [printed]))


@pytest.mark.integration
@pytest.mark.slow
@pytest.mark.parametrize("number", [0, 1], ids=["kafka-python", "confluent-kafka"])
def test_the_readmes_six_lines_of_a_client_read_their_record(tmp_path: Path, number: int) -> None:
    address = f"127.0.0.1:{free_port()}"
    (_, start, *_), _ = first_screen(address)
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    _, programs = commands_and_programs(readme.partition("## From Python")[2].partition("\n## ")[0], address)

    with shell(tmp_path, address) as started:
        started.run(Command(serve_of(start), ["minibroker is ready at"]))
        started.write({"client.py": programs[number]})
        started.run(Command("python client.py", ["b'hello'"]))

    assert len(programs) == 2


def test_a_recipe_and_a_ci_job_are_read_as_they_are_written() -> None:
    text = "# Title\n```\npip install x\n```\n```python a.py\nprint(1)\n```\n```console\n$ python a.py\n1 ... 2\n```\n"
    github = "steps:\n  - uses: x\n  - run: pip install x\n  - run: a b\n  - run: |\n      c |\n        d\n    if: e\n"
    gitlab = "before_script:\n  - a\nscript:\n  - b\n  - c\nartifacts:\n  - d\n"

    assert files_of(text) == {"a.py": "print(1)\n"}
    assert commands_of(text) == [Command("python a.py", ["1 ... 2"])]
    assert (script_of(github), script_of(gitlab)) == ("a b\nc |\nd", "a\nb\nc")


@pytest.mark.parametrize(
    ("output", "missing"), [("x 1 y 2\nend", None), ("end\n1 x 2", "end"), ("1 3\nend", "1 ... 2"), ("", "1 ... 2")]
)
def test_expected_lines_come_in_order(output: str, missing: str | None) -> None:
    assert first_missing(["1 ... 2", "end"], output) == missing


@pytest.mark.slow
def test_background_commands_are_waited_for_killed_by_their_number_and_end_with_the_recipe(tmp_path: Path) -> None:
    with shell(tmp_path) as started:
        for name in ("one", "two"):
            started.run(Command(f"sh -c 'echo $$ > {name}; sleep 0.1; echo ready; sleep 60' &", ["ready"]))
            assert is_running(tmp_path / name)

        started.run(Command("kill %1", []))

        assert (is_running(tmp_path / "one"), is_running(tmp_path / "two")) == (False, True)
    assert not is_running(tmp_path / "two")


@pytest.mark.slow
@pytest.mark.parametrize(("line", "output"), [("false", []), ("echo a", ["b"]), ("sh -c 'echo a' &", ["b"])])
def test_a_command_that_fails_or_prints_something_else_fails_its_recipe(
    tmp_path: Path, line: str, output: list[str]
) -> None:
    with shell(tmp_path) as started, pytest.raises(AssertionError, match=line.partition(" ")[0]):
        started.run(Command(line, output))


def is_running(pid_file: Path) -> bool:
    try:
        os.kill(int(pid_file.read_text()), 0)
    except ProcessLookupError:
        return False
    return True
