"""The workflows of GitHub, the action that starts a broker, and what else releases carry."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

import minibroker
from tests.sources import ROOT

ACTIONLINT = "github.com/rhysd/actionlint/cmd/actionlint@v1.7.12"
EXPRESSION = re.compile(r"\$\{\{ (.+?) \}\}")


def test_workflows_hold_to_what_zizmor_knows_of_secure_ones() -> None:
    zizmor = Path(sys.executable).with_name("zizmor")
    done = subprocess.run(
        [zizmor, "--offline", "--no-progress", "."], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.nightly
@pytest.mark.slow
@pytest.mark.skipif(shutil.which("go") is None, reason="actionlint is made with Go: install golang-go")
def test_workflows_are_valid() -> None:
    done = subprocess.run(["go", "run", ACTIONLINT], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_citation_is_of_this_version() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert (citation["version"], citation["license"]) == (minibroker.__version__, "Apache-2.0")


def run_action(inputs: dict[str, str], place: Path) -> dict[str, str]:
    """Run the steps of action.yml as a runner does; return its outputs."""
    action = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
    known = {f"inputs.{name}": str(each["default"]) for name, each in action["inputs"].items()}
    known |= {f"inputs.{name}": value for name, value in inputs.items()}
    known["github.action_path"] = str(ROOT)

    def filled(text: str) -> str:
        return EXPRESSION.sub(lambda found: known[found[1]], text)

    for step in action["runs"]["steps"]:
        files = {name: place / name for name in ("GITHUB_OUTPUT", "GITHUB_PATH")}
        environment = {name: filled(value) for name, value in step["env"].items()}
        environment |= {name: str(path) for name, path in files.items()} | {"RUNNER_TEMP": str(place)}
        shell: Any = [step["shell"], "-e", "-c", filled(step["run"])]
        done = subprocess.run(
            shell, env=os.environ | environment, capture_output=True, text=True, timeout=300, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        for line in files["GITHUB_OUTPUT"].read_text(encoding="utf-8").splitlines():
            name, _, value = line.partition("=")
            known[f"steps.{step['id']}.outputs.{name}"] = value
    return {name: filled(each["value"]) for name, each in action["outputs"].items()}


@pytest.mark.nightly
@pytest.mark.slow
@pytest.mark.integration
@pytest.mark.parametrize("brokers", ["1", "3"])
def test_the_action_starts_a_broker_with_topics_and_settings(brokers: str, tmp_path: Path) -> None:
    inputs = {
        "python": sys.executable,
        "listen": "127.0.0.1:0",
        "brokers": brokers,
        "create-topics": f"orders:3:{brokers},made",
        "settings": "num.partitions=5\n",
    }
    outputs = run_action(inputs, tmp_path)
    try:
        address = outputs["bootstrap-servers"].split(",")[0]
        assert outputs["bootstrap-servers"].count(",") == int(brokers) - 1
        assert Path(outputs["log"]).exists()
        command = Path((tmp_path / "GITHUB_PATH").read_text().strip()) / "minibroker"
        orders = answer(command, "topics", "describe", "orders", "-b", address)
        assert [len(each["replicas"]) for each in orders["partitions"]] == [int(brokers)] * 3
        assert len(answer(command, "topics", "describe", "made", "-b", address)["partitions"]) == 5
    finally:
        os.kill(int((tmp_path / "minibroker" / "pid").read_text()), signal.SIGTERM)


@pytest.mark.nightly
@pytest.mark.slow
@pytest.mark.integration
def test_a_job_may_start_two_brokers_and_a_step_fails_by_the_name_of_its_input(tmp_path: Path) -> None:
    inputs = {"python": sys.executable, "listen": "127.0.0.1:0"}
    with pytest.raises(AssertionError, match=r"::error::the broker is not ready: .* topic wide: Replication factor: 5"):
        run_action(inputs | {"create-topics": "orders,wide:2:5"}, tmp_path)
    one, other = (run_action(inputs, tmp_path)["bootstrap-servers"] for _ in range(2))
    try:
        assert one != other
        with pytest.raises(AssertionError, match=r"::error::.* choose another address with `listen:`"):
            run_action(inputs | {"listen": one}, tmp_path)
    finally:
        for folder in ("minibroker", "minibroker-2"):
            os.kill(int((tmp_path / folder / "pid").read_text()), signal.SIGTERM)


def answer(*command: object) -> Any:
    words = [*map(str, command), "-o", "json"]
    return json.loads(subprocess.run(words, capture_output=True, check=True).stdout)
