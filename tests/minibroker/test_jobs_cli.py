"""`minibroker jobs` without Spark: it names the jobs, and starts one in place of itself."""

from __future__ import annotations

import importlib.util
import os
import sys

import pytest

from minibroker.cli.app import main
from minibroker.spark_jobs import JOBS


def test_the_list_has_every_job_and_each_is_a_module(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["jobs", "list"]) == 0

    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == list(JOBS)
    modules = [f"minibroker.spark_jobs.{job.module}" for job in JOBS.values()]
    assert [module for module in modules if importlib.util.find_spec(module) is None] == []


def test_a_job_gets_its_options_as_they_stand(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[list[str]] = []
    monkeypatch.setattr(os, "execv", lambda program, arguments: started.append(arguments))
    options = ["--subscribe", "-x", "--help"]

    main(["jobs", "run", "-o", "json", "delays", *options])

    assert started == [[sys.executable, "-m", "minibroker.spark_jobs.flight_delays", *options, "--json"]]


def test_an_unknown_job_is_refused_with_those_that_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["jobs", "run", "nope"]) == 2

    assert "there is no job 'nope'; there are " + ", ".join(JOBS) in capsys.readouterr().err


def test_without_spark_the_message_has_the_next_step(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)

    assert main(["jobs", "run", "delays"]) == 1

    assert "pip install '.[spark]'" in capsys.readouterr().err
