"""A shop with eight mistakes that teams make (shop/mistakes.toml): its own tests pass, and chaos finds all eight.

With one client or another: confluent-kafka, kafka-python and aiokafka. What chaos prints of each, pasted into the test,
fails the test.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from shutil import copytree
from typing import NamedTuple

import pytest

from tests.minibroker.commands import run_pytest

pytest_plugins = ["pytester"]

SHOP = Path(__file__).parent / "shop"
PLANS = 20
RUNS = 3  # of a test with the printed lines; a plan meets what the client's timing lets it meet
FINDING = re.compile(
    r"^it fails under plan 1\.\d+, in \d of \d runs, with\n\n(?P<lines>(?:    .*\n)+)\n"
    r"again: pytest test_shop.py::(?P<test>\w+)",
    re.MULTILINE,
)
TEST = r"^def {}\(.*?\) -> None:\n"


class Mistake(NamedTuple):
    name: str
    test: str
    file: str
    text: str
    becomes: str


MISTAKES = [Mistake(**row) for row in tomllib.loads((SHOP / "mistakes.toml").read_text())["mistake"]]


def open_shop(folder: Path, *mistakes: Mistake) -> None:
    """Write the shop with these mistakes, and with its tests."""
    copytree(SHOP, folder, dirs_exist_ok=True)
    (folder / "suite.py").rename(folder / "test_shop.py")
    for each in mistakes:
        text = (folder / each.file).read_text()
        assert text.count(each.text) == 1, each.name
        (folder / each.file).write_text(text.replace(each.text, each.becomes))


def test_there_are_eight_mistakes_and_each_client_has_two(tmp_path: Path) -> None:
    open_shop(tmp_path, *MISTAKES)

    assert len({each.test for each in MISTAKES}) == 8
    for client in ("confluent", "kafka_python", "aiokafka"):
        assert sum(each.file == f"with_{client}.py" for each in MISTAKES) >= 2


@pytest.mark.integration
@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.timeout(1800)
def test_chaos_finds_eight_of_eight_and_its_lines_fail_each_test(pytester: pytest.Pytester) -> None:
    open_shop(pytester.path, *MISTAKES)

    result = run_pytest(pytester, "-n2", f"--minibroker-chaos={PLANS}", "--minibroker-chaos-seed=1", xdist=True)

    result.assert_outcomes(passed=8, failed=8)
    found = {each["test"]: each["lines"] for each in FINDING.finditer(result.stdout.str())}
    assert found.keys() == {each.test for each in MISTAKES}
    pytester.makeini("[pytest]\nminibroker_control = true\n")
    tests = (SHOP / "suite.py").read_text()
    for test, lines in found.items():
        head = re.search(TEST.format(test), tests, re.MULTILINE)
        assert head is not None
        (pytester.path / "test_shop.py").write_text(tests[: head.end()] + lines + tests[head.end() :])
        assert any(run_pytest(pytester, "-k", test).ret == pytest.ExitCode.TESTS_FAILED for _ in range(RUNS)), lines


@pytest.mark.integration
@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.timeout(1800)
def test_the_shop_without_mistakes_survives(pytester: pytest.Pytester) -> None:
    open_shop(pytester.path)

    result = run_pytest(pytester, "-n2", f"--minibroker-chaos={PLANS}", xdist=True)

    assert result.ret == 0, result.stdout.str()
    result.stdout.fnmatch_lines(["*= 8 passed, 8 survived chaos in *"])
