"""`minibroker jobs` without Spark: it names the jobs, and starts one in place of itself."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from minibroker import Broker
from minibroker.cli.app import main
from minibroker.spark_jobs import JOBS
from minibroker.spark_jobs.command_lines import PARSERS
from tests.minibroker.checkpoints import CASES, QUERY, Case, CheckpointFolder, make_topics


def test_the_list_has_every_job_and_each_is_a_module(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["jobs", "list"]) == 0

    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == list(JOBS)
    modules = [f"minibroker.spark_jobs.{job.module}" for job in JOBS.values()]
    assert [module for module in modules if importlib.util.find_spec(module) is None] == []


DELAYS = ["--subscribe=-x", "--output", "out", "--checkpoint", "at"]


def test_a_job_gets_its_options_as_they_stand(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[list[str]] = []
    monkeypatch.setattr(os, "execv", lambda program, arguments: started.append(arguments))

    main(["jobs", "run", "-o", "json", "delays", *DELAYS])

    assert started == [[sys.executable, "-m", "minibroker.spark_jobs.flight_delays", *DELAYS, "--json"]]


@pytest.mark.slow
@pytest.mark.parametrize("name", JOBS)
def test_help_and_wrong_options_need_no_spark(name: str) -> None:
    loaded = "import sys; sys.modules['pyspark'] = None; from minibroker.cli.app import main; main(['jobs', 'run'"
    for option, status in (("--help", 0), ("--nope", 2)):
        code = f"{loaded}, '{name}', '{option}'])"
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)

        assert done.returncode == status, done.stderr
        if option == "--help":
            assert f"usage: minibroker jobs run {name} [-h]" in done.stdout
        else:
            (complaint,) = done.stderr.splitlines()
            assert complaint.endswith(f"; see `minibroker jobs run {name} --help`")


def test_the_list_is_one_document(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["jobs", "list", "-o", "json"]) == 0

    assert [job["name"] for job in json.loads(capsys.readouterr().out)] == list(JOBS) == list(PARSERS)


def test_an_unknown_job_is_refused_with_those_that_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["jobs", "run", "nope"]) == 2

    assert "'nope' is not one of " + ", ".join(JOBS) in capsys.readouterr().err


def test_without_spark_the_message_has_the_next_step(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)

    assert main(["jobs", "run", "delays", *DELAYS]) == 1

    assert "pip install -e '.[spark]'" in capsys.readouterr().err


@pytest.fixture
def folder(tmp_path: Path) -> CheckpointFolder:
    (tmp_path / "metadata").write_text(json.dumps({"id": QUERY}))
    return CheckpointFolder(tmp_path)


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as running:
        running.create_topic("flights", partitions=2)
        for partition in (0, 1):
            running.produce("flights", [b"flight"] * 10, partition=partition)
        main(["topics", "delete-records", "flights", "-b", running.bootstrap_servers, "-p", "0", "--before", "4"])
        yield running


@pytest.fixture(scope="module")
def trimmed() -> Iterator[Broker]:
    with Broker() as running:
        make_topics(running)
        yield running


def checkpoint_of(folder: CheckpointFolder, broker: Broker, capsys: pytest.CaptureFixture[str]) -> tuple[int, Any]:
    status = main(["jobs", "checkpoint", str(folder.folder), "-b", broker.bootstrap_servers, "-o", "json"])
    return status, json.loads(capsys.readouterr().out)


@pytest.mark.integration
@pytest.mark.slow
@pytest.mark.parametrize(
    ("committed", "planned", "status", "notes", "following"),
    [
        ({"0": 10, "1": 10}, None, 0, ["", ""], "batch 8 waits for records: all are read"),
        ({"0": 5, "1": 10}, None, 0, ["", ""], "batch 8 runs next; 5 offsets are unread"),
        (
            {"0": 5, "1": 9},
            {"0": 7, "1": 10},
            0,
            ["", ""],
            "batch 8 was planned and not committed: it runs again, over 3 off",
        ),
        ({"0": 4}, None, 0, ["", "new"], "batch 8 runs next; 16 offsets are unread"),
        ({"0": 1, "1": 10}, None, 1, ["lost to retention or DeleteRecords: 3", ""], "a start fails for what is gone"),
        ({"0": 11, "1": 10}, None, 1, ["made anew", ""], "a start fails"),
        ({"0": 10, "1": 10, "2": 0}, None, 1, ["", "", "does not exist"], "a start fails"),
    ],
)
def test_a_checkpoint_is_shown_beside_the_offsets_of_its_topic(
    folder: CheckpointFolder,
    broker: Broker,
    capsys: pytest.CaptureFixture[str],
    committed: dict[str, int],
    planned: dict[str, int] | None,
    status: int,
    notes: list[str],
    following: str,
) -> None:
    folder.plan(6, {"flights": {"0": 0}})
    folder.commit(6)
    folder.plan(7, {"flights": committed}, 17)
    folder.commit(7)
    if planned is not None:
        folder.plan(8, {"flights": planned}, 17)

    exit_status, found = checkpoint_of(folder, broker, capsys)
    main(["jobs", "checkpoint", str(folder.folder), "-b", broker.bootstrap_servers])

    assert exit_status == status
    assert found["committed"]["batch"] == 7
    assert found["next"].startswith(following)
    shown = capsys.readouterr().out.splitlines()
    rows = [line for line in shown if line.startswith("flights ")]
    assert [note in row for note, row in zip(notes, rows, strict=True)] == [True] * len(notes)
    assert shown[-1] == found["next"]
    assert "  a source that is not Kafka, at 17" in shown


@pytest.mark.integration
@pytest.mark.slow
def test_a_query_that_has_only_begun_is_shown_with_its_start(
    folder: CheckpointFolder, broker: Broker, capsys: pytest.CaptureFixture[str]
) -> None:
    folder.write("sources/0/0", {"gone": {"0": 3}}, version="\0v1")

    exit_status, found = checkpoint_of(folder, broker, capsys)

    assert (exit_status, found["committed"], found["planned"]) == (1, None, None)
    assert [(each["topic"], each["committed"], each["log_end"]) for each in found["partitions"]] == [("gone", 3, None)]


@pytest.mark.integration
@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_checkpoint_with_gaps_is_read_as_spark_reads_it(
    case: Case, folder: CheckpointFolder, trimmed: Broker, capsys: pytest.CaptureFixture[str]
) -> None:
    folder.make(case)

    status = main(["jobs", "checkpoint", str(folder.folder), "-b", trimmed.bootstrap_servers])

    assert status == (0 if case.runs is not None else 1)
    printed = capsys.readouterr()
    assert case.says in (printed.out + printed.err).splitlines()[-1]


@pytest.mark.parametrize(
    ("damage", "line"),
    [
        (lambda folder: (folder / "metadata").unlink(), "is no checkpoint of a Spark query: it has no file `metadata`"),
        (lambda folder: (folder / "metadata").write_text(""), "metadata is damaged: it is not JSON"),
        (lambda folder: (folder / "metadata").write_text("{}"), "is damaged: a field is missing, or not as Spark"),
        (lambda folder: (folder / "offsets/7").write_text("v1\n[]\n{}"), "is damaged: a field is missing, or not as"),
        (lambda folder: (folder / "offsets/7").write_text(""), "offsets/7 is damaged: it is empty, or no text"),
        (lambda folder: (folder / "offsets/7").write_text("v9\n{}"), "offsets/7 is damaged: it does not begin as v1"),
        (lambda folder: (folder / "offsets/7").write_text("v1\n{}"), "offsets/7 is damaged: it ends too early"),
        (lambda folder: (folder / "offsets/7").write_text("v1\n{}\n{"), "offsets/7 is damaged: it is not JSON"),
        (lambda folder: (folder / "offsets/7").unlink(), "offsets/7 is damaged: it is missing"),
        (lambda folder: (folder / "offsets/6").write_text(""), "offsets/6 is damaged: it is empty, or no text"),
        (lambda folder: (folder / "commits/7").write_text(""), "commits/7 is damaged: it is empty, or no text"),
        (lambda folder: (folder / "commits/7").write_text("v9"), "commits/7 is damaged: it does not begin as v1"),
    ],
)
def test_a_directory_that_is_no_checkpoint_gets_one_line(
    folder: CheckpointFolder, capsys: pytest.CaptureFixture[str], damage: Any, line: str
) -> None:
    for batch in (6, 7):
        folder.plan(batch, {"flights": {"0": 1}})
        folder.commit(batch)
    damage(folder.folder)

    assert main(["jobs", "checkpoint", str(folder.folder), "-b", "127.0.0.1:9"]) == 1

    (complaint,) = capsys.readouterr().err.splitlines()
    assert line in complaint
