"""Signals end `consume` and `produce` in order: what is printed is committed, what is acknowledged is counted."""

from __future__ import annotations

import os
import signal
import subprocess

import pytest

from minibroker.cli.signals import Interrupted, interruption
from tests.integration.members import wait_until
from tests.minibroker.commands import running
from tests.minibroker.conftest import CommandLine

FIVE = ["a", "b", "c", "d", "e"]


@pytest.mark.integration
@pytest.mark.slow
@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 143), (signal.SIGINT, 130), (signal.SIGHUP, 129)])
def test_printed_records_are_committed_soon_and_at_a_signal_which_leaves_the_group(
    cli: CommandLine, number: signal.Signals, status: int
) -> None:
    topic, group = cli.topic(values=FIVE), cli.new("reports")

    def committed() -> object:
        return [row["committed"] for row in cli.document("groups", "describe", group)["partitions"]]

    with running("consume", topic, "--follow", "-g", group, "-b", cli.bootstrap) as process:
        assert process.stdout is not None and process.stderr is not None
        printed = [process.stdout.readline() for _ in FIVE]
        wait_until(lambda: committed() == [5], "the commit, within a second unless the machine is busy")
        cli.records.write(topic, ["new"])
        printed.append(process.stdout.readline())
        process.send_signal(number)

        assert printed == [f"{value}\n" for value in [*FIVE, "new"]]
        assert (process.wait(10), process.stderr.read()) == (status, "")
    described = cli.document("groups", "describe", group)
    assert (committed(), described["members"], described["state"]) == ([6], [], "Empty")


@pytest.mark.integration
@pytest.mark.slow
@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_an_interrupted_producer_counts_its_acknowledged_records(
    cli: CommandLine, number: signal.Signals, status: int
) -> None:
    topic = cli.topic()
    with running("produce", topic, "-b", cli.bootstrap, stdin=subprocess.PIPE) as process:
        assert process.stdin is not None and process.stdout is not None and process.stderr is not None
        process.stdin.write("a\nb\n")
        process.stdin.flush()
        wait_until(lambda: cli.out("consume", topic) == "a\nb\n", "both records")
        process.send_signal(number)

        line = process.stderr.readline()
        assert (process.wait(10), process.stdout.read()) == (status, "")
    assert line == "minibroker: interrupted; 2 records acknowledged\n"


def test_a_deferred_signal_waits_for_the_next_check() -> None:
    steps = []
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(Interrupted) as interrupted, interruption() as signals, signals.deferred():
        signal.raise_signal(signal.SIGTERM)
        steps.append("deferred")
        signals.check()
        steps.append("after the check")

    assert (steps, interrupted.value.status) == (["deferred"], 143)
    assert signal.getsignal(signal.SIGTERM) is before


@pytest.mark.parametrize("grace_seconds", [0.0, 60.0])
def test_a_second_signal_or_the_end_of_patience_does_not_wait(
    monkeypatch: pytest.MonkeyPatch, grace_seconds: float
) -> None:
    monkeypatch.setattr("minibroker.cli.signals.GRACE_SECONDS", grace_seconds)
    end, begin = os.pipe()
    with pytest.raises(Interrupted), interruption() as signals, signals.deferred():
        signal.raise_signal(signal.SIGTERM)
        if grace_seconds:
            signal.raise_signal(signal.SIGTERM)
        os.read(end, 1)  # for ever, as of a broker that does not answer
    os.close(end)
    os.close(begin)


def test_an_ignored_signal_stays_ignored() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with interruption():
            signal.raise_signal(signal.SIGHUP)
    finally:
        signal.signal(signal.SIGHUP, before)
