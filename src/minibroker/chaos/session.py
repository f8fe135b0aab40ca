"""Plugin of `pytest --minibroker-chaos=20`: runs the tests that passed with a broker again, when all have run.

Each under its own plans of faults, in processes of their own (trials.py). A test that fails under one is reported as a
failed test, with the lines that make the faults and the option that draws them again. Under pytest-xdist it works in
the process that distributes the tests, and runs as many at once as there are workers.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from random import SystemRandom
from typing import NamedTuple

import pytest

from minibroker.chaos.trials import CannotStart, Trials, Verdict, command_of
from minibroker.process import Broker

SEED = re.compile(r"(?P<seed>\d+)(?:\.(?P<number>\d+))?")
SEEDS = 1_000_000
PLANS_MAX = 10_000
# Attributes of reports.
MARK = "minibroker_chaos"  # whether the test has a broker
VERDICT = "minibroker_chaos_plan"  # under which the test fails; 0 for none


class Asked(NamedTuple):
    """The seed and the plans that the options ask for."""

    seed: int
    numbers: list[int]  # of the plans of each test


def asked_by(plans: int | None, seed: str | None) -> Asked | None:
    """Read `--minibroker-chaos` and `--minibroker-chaos-seed`; None where they ask for nothing. Raises UsageError."""
    if plans is not None and not 0 <= plans <= PLANS_MAX:
        raise pytest.UsageError(f"--minibroker-chaos: {plans}: write how many plans each test gets, such as 20")
    found = None if seed is None else SEED.fullmatch(seed)
    if seed is not None and found is None:
        raise pytest.UsageError(
            f"--minibroker-chaos-seed: {seed}: write SEED, or SEED.PLAN for one plan, as a failure prints it"
        )
    if found is not None and found["number"] is not None:
        if not 1 <= int(found["number"]) <= PLANS_MAX:
            raise pytest.UsageError(f"--minibroker-chaos-seed: {seed}: plans have the numbers 1 to {PLANS_MAX}")
        return None if plans == 0 else Asked(int(found["seed"]), [int(found["number"])])
    if found is not None and plans is None:
        raise pytest.UsageError(f"--minibroker-chaos-seed={seed} needs --minibroker-chaos=20, or the number of a plan")
    if not plans:
        return None
    number = SystemRandom().randrange(SEEDS) if found is None else int(found["seed"])
    return Asked(number, list(range(1, plans + 1)))


class Marking:
    """Marks the reports of tests that have a broker, in each process that runs tests."""

    def __init__(self, uses_brokers: Callable[[pytest.Item], bool], of_fixtures: Callable[[], list[Broker]]) -> None:
        self._uses_brokers = uses_brokers
        self._of_fixtures = of_fixtures
        self._started: set[Broker] = set()
        ready = Broker.await_ready

        def awaited(broker: Broker, **arguments: float) -> Broker:
            self._started.add(broker)
            return ready(broker, **arguments)

        setattr(Broker, "await_ready", awaited)  # noqa: B010 - for mypy, which allows no assignment

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        if report.when == "call":
            self._started.difference_update(self._of_fixtures())  # which run for tests without them, too
            setattr(report, MARK, self._uses_brokers(item) or bool(self._started))
            self._started = {each for each in self._started if each.is_running}  # a class or a module has these
        return report


class ChaosSession:
    """Runs the tests again, in the process that pytest was started in."""

    def __init__(self, config: pytest.Config, asked: Asked) -> None:
        self._config = config
        self._asked = asked
        self._tests: dict[str, pytest.TestReport] = {}
        self._failed: set[str] = set()  # without faults
        self._is_over = False
        self._verdicts: list[Verdict] = []
        workers = getattr(config.option, "numprocesses", None)
        self._at_once = workers if isinstance(workers, int) and workers > 0 else 1
        command = command_of(
            config.invocation_params.args,
            is_spread=config.pluginmanager.hasplugin("xdist"),
            is_covered=config.pluginmanager.hasplugin("_cov"),
        )
        timeout_seconds = config.option.minibroker_chaos_timeout
        self._trials = Trials(command, config.invocation_params.dir, seed=asked.seed, timeout_seconds=timeout_seconds)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if hasattr(report, VERDICT):
            return
        test = report.nodeid
        if getattr(self._config.option, "dist", "") == "loadgroup" and test.rfind("@") > test.rfind("]"):
            test = test.rpartition("@")[0]  # pytest-xdist puts its group behind it
        if report.when == "call" and report.passed and getattr(report, MARK, None) and not hasattr(report, "wasxfail"):
            self._tests[test] = report
        elif report.failed:
            self._tests.pop(test, None)
            self._failed.add(test)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtestloop(self, session: pytest.Session) -> Generator[None, object, object]:
        result = yield
        if not (session.config.option.collectonly or session.shouldstop or session.shouldfail):
            self._write_line(f"minibroker chaos: {len(self._asked.numbers)} plans a test, seed {self._asked.seed}")
            try:
                for verdict in self._examined(session):
                    self._verdicts.append(verdict)
                    if verdict.is_wrong or not verdict.why_not:
                        self._config.hook.pytest_runtest_logreport(report=self._report(verdict))
            except CannotStart as error:
                raise pytest.UsageError(
                    f"minibroker chaos runs each test in a pytest of its own, and that one does not start:\n{error}"
                ) from None
            self._is_over = True
        return result

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Have the session fail where it was to test under faults, and no test was."""
        if (
            self._is_over
            and session.exitstatus == pytest.ExitCode.OK
            and not any(each.plans for each in self._verdicts)
        ):
            session.exitstatus = pytest.ExitCode.NO_TESTS_COLLECTED

    def _examined(self, session: pytest.Session) -> Iterator[Verdict]:
        """The verdict on each test; after a Ctrl-C, or as many failures as are enough, no more."""
        with ThreadPoolExecutor(self._at_once) as threads:
            waiting = {threads.submit(self._trials.examine, test, self._asked.numbers) for test in self._tests}
            try:
                while waiting:
                    done, waiting = wait(waiting, return_when=FIRST_COMPLETED)
                    for each in done:
                        yield each.result()
                    if session.shouldfail or session.shouldstop:
                        return
            finally:
                for each in waiting:
                    each.cancel()
                self._trials.stop()

    def _report(self, verdict: Verdict) -> pytest.TestReport:
        passed = self._tests[verdict.test]
        path, line, name = passed.location
        text = f"{verdict.why_not}\n\n{verdict.result.text}" if verdict.is_wrong else self._text(verdict)
        has_failed = verdict.is_wrong or bool(verdict.number)
        report = pytest.TestReport(
            nodeid=passed.nodeid,
            location=(path, line, f"{name} under chaos"),
            keywords=passed.keywords,
            outcome="failed" if has_failed else "passed",
            longrepr=text if has_failed else None,
            when="setup" if verdict.is_wrong else "call",  # pytest calls it an error, not a failure
            sections=[(title, text) for title, text in verdict.result.sections],
        )
        setattr(report, VERDICT, verdict.number)
        return report

    def _text(self, verdict: Verdict) -> str:
        """Return the failure as text: the lines to paste, the option that repeats it, and the test's own failure."""
        seed = f"{self._asked.seed}.{verdict.number}"
        path, *names = verdict.test.split("::")
        path = os.path.relpath(self._config.rootpath / path, self._config.invocation_params.dir)
        times = f"in {verdict.failed} of {verdict.runs} runs"
        return "\n".join(
            [
                f"it fails under plan {seed}, {times}, with",
                "",
                *(f"    {each.line}" for each in verdict.plan),
                "",
                f"again: pytest {shlex.quote('::'.join([path, *names]))} --minibroker-chaos-seed={seed}",
                "",
                verdict.result.text,
            ]
        )

    def pytest_report_teststatus(self, report: pytest.TestReport) -> tuple[str, str, str] | None:
        if getattr(report, VERDICT, None) == 0 and report.passed:
            return "survived chaos", ".", "SURVIVED CHAOS"
        return None

    def pytest_terminal_summary(self) -> None:
        why_not = {each.test: each.why_not for each in self._verdicts if each.why_not}
        for test, why in {**why_not, **dict.fromkeys(sorted(self._failed), "it fails without them")}.items():
            self._write_line(f"minibroker chaos: not under faults: {test}: {why}")
        if self._is_over and not any(each.plans for each in self._verdicts):
            self._write_line("minibroker chaos: no test has run under faults; it takes tests that pass with a broker")

    def _write_line(self, line: str) -> None:
        reporter = self._config.pluginmanager.getplugin("terminalreporter")
        if reporter is not None:
            reporter.ensure_newline()
            reporter.write_line(line)
