"""The laboratory itself: a seed is one run, and what is planted is found."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest

SECONDS = 60


def simulate(*arguments: str, hash_seed: str = "random") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "minibroker", "simulate", *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=SECONDS,
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
    )


def document(*arguments: str, hash_seed: str) -> Any:
    ran = simulate(*arguments, "-o", "json", hash_seed=hash_seed)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return json.loads(ran.stdout)


@pytest.mark.slow
def test_a_seed_is_the_same_run_in_each_process() -> None:
    one, other = (document("--seed", "7", hash_seed=each) for each in ("1", "2"))

    assert one == other
    assert len(one["plan"]["faults"]) > 3
    assert sum(row["operation"] == "send" and row["event"] == "ok" for row in one["history"]) > 50


@pytest.mark.slow
@pytest.mark.parametrize("brokers", ["1", "3"])
def test_seeds_end_without_findings(brokers: str) -> None:
    ran = simulate("--brokers", brokers, "--seeds", "3", "--workers", "1")

    assert (ran.returncode, ran.stdout) == (0, "")
