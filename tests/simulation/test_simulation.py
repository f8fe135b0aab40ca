"""The laboratory itself: a seed is one run, and what is planted is found."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterable
from concurrent.futures.process import BrokenProcessPool
from random import Random
from typing import Any

import pytest

from minibroker.protocol.record import Record
from minibroker.protocol.record_batch import build_batch
from minibroker.simulation.__main__ import arguments, main
from minibroker.simulation.memory_disk import SECTOR, File
from minibroker.simulation.plan import OF_ZOOKEEPER, Fault, Plan, draw
from minibroker.simulation.planting import ROOT, names_in
from minibroker.simulation.replicas import content_of
from minibroker.simulation.world import Process, World

SECONDS = 280  # on a machine that is busy; seconds else


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


def test_a_power_failure_keeps_what_is_synced_and_some_sectors_of_the_rest() -> None:
    left = set()
    for seed in range(40):
        file = File()
        file.content.extend(b"a" * 2 * SECTOR)
        file.synced = bytes(file.content)
        file.lose_power(Random(seed))
        assert bytes(file.content) == b"a" * 2 * SECTOR, "what is synced stays"
        file.content[:] = b"b" * 2 * SECTOR
        file.lose_power(Random(seed))
        assert file.synced == bytes(file.content)
        left.add(bytes(file.content[::SECTOR]))

    assert left == {b"aa", b"ab", b"ba", b"bb"}


def test_what_a_process_draws_is_its_own_and_goes_on_after_a_restart() -> None:
    """Else a run without a client would be another run, and no plan could be shrunk."""

    def drawn(others: int) -> list[float]:
        world = World(1)
        found = []
        for _ in range(3):
            with world.acting_as(Process("broker 1")):
                found.append(world.random.random())
            with world.acting_as(Process("reader-2")):
                for _ in range(others):
                    world.random.random()
        return found

    alone = drawn(0)

    assert alone == drawn(2)
    assert len(set(alone)) == len(alone)


@pytest.mark.parametrize("brokers", [1, 3])
def test_power_fails_only_where_records_are_synced_before_they_count(brokers: int) -> None:
    plans = [draw(seed, brokers) for seed in range(200)]

    assert plans == [draw(seed, brokers) for seed in range(200)]
    synced = {plan.settings["log.flush.interval.messages"] for plan in plans if losing_power(plan.faults)}
    assert synced == {1}


def test_a_log_that_took_its_space_at_once_ends_with_its_last_batch() -> None:
    batches = [bytes(build_batch([Record(each, 0, None, b"x")], base_offset=each)) for each in (0, 1)]

    content = content_of({"0.log": b"".join(batches) + bytes(100), "0.index": b"?"}, 1)

    assert content == batches[1]


def test_a_plan_may_be_shrunk_to_no_event_at_all() -> None:
    read = [arguments().parse_args(["--seed", "1", "--only", text]).only for text in ("", "0,12")]

    assert read == [[], [0, 12]]


@pytest.mark.parametrize(
    ("options", "meant"),
    [(["--sed", "3"], "--seed"), (["--history", "isr-shrnk"], "isr-shrink"), (["--seed", "x"], None)],
)
def test_a_wrong_option_is_one_line_with_the_one_that_was_meant(options: list[str], meant: str | None) -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "minibroker", "simulate", *options], capture_output=True, text=True, check=False
    )

    (line,) = ran.stderr.splitlines()
    end = f"did you mean {meant}? See" if meant else "'x' is not a whole number; see"
    assert (ran.returncode, ran.stdout, line.endswith(f"{end} `minibroker simulate --help`")) == (2, "", True), line


class Unreadable(Exception):
    """An error that pickle cannot read: a worker's parent would wait for it for ever."""

    def __init__(self, one: str, other: str) -> None:
        super().__init__(f"{one} of {other}")


@pytest.mark.parametrize("does", [Unreadable("a defect", "it"), SystemExit(3), signal.SIGKILL], ids=repr)
def test_what_a_worker_ends_with_ends_the_command(does: object, monkeypatch: pytest.MonkeyPatch) -> None:
    def end(plan: Plan) -> None:
        if isinstance(does, BaseException):
            raise does
        os.kill(os.getpid(), signal.SIGKILL)

    monkeypatch.setattr("minibroker.simulation.run.run", end)
    monkeypatch.setenv("PYTHONHASHSEED", "0")  # else it starts itself anew

    with pytest.raises((RuntimeError, BrokenProcessPool)) as raised:
        main(["--first-seed", "7", "--seeds", "2", "--workers", "1"])

    named = "seed 7 of --brokers 3" if isinstance(does, BaseException) else "terminated abruptly"
    assert named in str(raised.value)


WORLDS = """
import gc
from minibroker.simulation.plan import draw
from minibroker.simulation.run import run
from minibroker.simulation.world import World

for _ in range(3):
    run(draw(1, 1)._replace(seconds=0.5))
print(sum(isinstance(each, World) for each in gc.get_objects()), gc.isenabled())
"""


def test_nothing_of_a_run_stays_in_memory() -> None:
    """A night has 10,000 of them."""
    ran = subprocess.run([sys.executable, "-c", WORLDS], capture_output=True, text=True, check=True)

    assert ran.stdout.split() == ["0", "True"]


def losing_power(faults: Iterable[Fault]) -> list[Fault]:
    return [fault for fault in faults if fault.kind == "power" or fault.how == "with its power"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "run",
    [
        ["--seed", "7"],
        ["--seed", "9"],  # in it, a broker with several logs stops
        ["--seed", "2", "--zookeeper"],
    ],
)
def test_a_seed_is_the_same_run_in_each_process(run: list[str]) -> None:
    one, other = (document(*run, hash_seed=each) for each in ("1", "2"))

    assert one == other
    assert len(one["plan"]["faults"]) > 3
    assert sum(row["operation"] == "send" and row["event"] == "ok" for row in one["history"]) > 20


def test_a_seed_draws_the_same_beside_zookeeper_and_faults_of_that_besides() -> None:
    for seed in range(50):
        alone, beside = draw(seed, 3), draw(seed, 3, is_beside_zookeeper=True)

        assert [each for each in beside.faults if each.kind not in OF_ZOOKEEPER] == list(alone.faults)
        assert list(beside.faults) == sorted(beside.faults, key=lambda fault: fault.at)
        assert (beside.settings, beside.topics) == (alone.settings, alone.topics)


@pytest.mark.slow
@pytest.mark.parametrize("cluster", ["--brokers=1", "--brokers=3", "--zookeeper"])
def test_seeds_end_without_findings(cluster: str) -> None:
    ran = simulate(cluster, "--seeds", "3", "--workers", "1")

    assert (ran.returncode, ran.stdout) == (0, "")


def test_every_old_rule_has_its_story() -> None:
    stories = (ROOT / "docs" / "testing.md").read_text(encoding="utf-8")

    told = {name for names in re.findall(r"^\*\*(.+?)\.\*\*", stories, re.MULTILINE) for name in names.split(", ")}
    assert told == set(names_in("history"))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("planted", "seed"),
    [
        ("hw-goes-back", 4),
        ("kafka-9144", 2),
        ("journal-compaction", 2),
        ("kip-890", 53),
        ("controller-new-journal", 4),
        ("kip-279", 155),
        ("kafka-1387", 1),
    ],
)
def test_an_old_rule_is_found(planted: str, seed: int) -> None:
    ran = simulate("--history", planted, "--first-seed", str(seed), "--seeds", "1", "--workers", "1")

    assert (ran.returncode, "again: minibroker simulate" in ran.stdout) == (1, True), ran.stdout + ran.stderr


@pytest.mark.slow
@pytest.mark.parametrize(("planted", "seed"), [("sequence", 7), ("producer-epoch", 3), ("zookeeper-watches", 2)])
def test_a_mutant_is_found(planted: str, seed: int) -> None:
    ran = simulate("--mutate", planted, "--first-seed", str(seed), "--seeds", "1", "--workers", "1")

    assert (ran.returncode, "again: minibroker simulate" in ran.stdout) == (1, True), ran.stdout + ran.stderr


@pytest.mark.slow
def test_the_cause_is_the_event_after_which_the_finding_comes_without_faults() -> None:
    ran = simulate("--mutate", "fsync", "--brokers", "1", "--seed", "1", "--cause")

    heading, *events = ran.stdout.partition(" comes though ")[2].splitlines()
    assert "after the last of these events" in heading
    assert events and all(re.fullmatch(r"  [\d.]+ \d+ .+", each) for each in events), ran.stdout


@pytest.mark.slow
def test_a_mutant_is_found_and_its_plan_shrunk_to_the_events_that_it_takes() -> None:
    planted = ("--mutate", "fsync", "--brokers", "1")

    ran = simulate(*planted, "--seeds", "5", "--workers", "1", "--shrink")

    shrunk = re.search(r"shrunk to (\d+) events.*--seed (\d+) --only ([\d,]+)", ran.stdout, re.DOTALL)
    assert ran.returncode == 1 and shrunk is not None, ran.stdout + ran.stderr
    assert int(shrunk[1]) <= 12
    again = simulate(*planted, "--seed", shrunk[2], "--only", shrunk[3])
    assert again.returncode == 1, again.stdout + again.stderr
