"""Plans of faults, and `pytest --minibroker-chaos` in sessions of pytest of its own."""

from __future__ import annotations

import ast
import signal
import subprocess
import sys
import time
from argparse import ArgumentTypeError
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace
from itertools import islice
from pathlib import Path
from threading import Thread

import pytest

from minibroker.chaos.plan import APIS, KINDS, LOOKED_UP, Fault, Plan, Requests, Use, candidates, drawn, used_by
from minibroker.chaos.run import Actions
from minibroker.chaos.session import Asked, asked_by
from minibroker.chaos.trials import CannotStart, Result, Trials, command_of
from minibroker.errors import BrokerError
from minibroker.protocol.api import ApiKey
from minibroker.pytest_plugin import seconds_of_a_test
from tests.minibroker.commands import WITHOUT, run_pytest

pytest_plugins = ["pytester"]

USES = [Use("minibroker", api, None, 9) for api in APIS]
# Without a client library, so that a session of it is short. Its request is not that of a tool, which faults spare.
ASK = """
import socket, struct

def ask(minibroker):
    host, port = minibroker.bootstrap_servers.split(":")
    with socket.create_connection((host, int(port)), timeout=30) as sock:
        sock.sendall(struct.pack(">ihhih3sii", 21, 2, 1, 7, 3, b"app", -1, 0))
        assert len(sock.recv(4)) == 4
"""
ONE_REQUEST = f"""{ASK}
def test_it_asks(minibroker, minibroker_topic):
    ask(minibroker)

def test_it_asks_nothing(minibroker):
    assert minibroker.is_running
"""


# -- plans ----------------------------------------------------------------------------------------------------


def plans_of(seed: int, test: str = "test_a", uses: Iterable[Use] = USES, number: int = 20) -> list[Plan]:
    return list(islice(drawn(seed, test, uses), number))


def test_equal_seeds_draw_equal_plans_and_others_draw_others() -> None:
    assert plans_of(1) == plans_of(1) == plans_of(1, uses=reversed(USES))
    assert plans_of(1) != plans_of(2)
    assert plans_of(1) != plans_of(1, "test_b")
    assert list(drawn(1, "test_a", [])) == []


def is_telling(fault: Fault) -> bool:
    return APIS[fault.api][0] > LOOKED_UP


@pytest.mark.parametrize("place", ["minibroker", "minibroker_cluster"])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_twenty_plans_have_faults_of_each_kind_and_in_each_api_that_looks_something_up(place: str, seed: int) -> None:
    uses = [each._replace(place=place) for each in USES]
    kind_of = {replace(each.fault, times=None).line: each.kind for each in candidates(uses)}
    plans = plans_of(seed, uses=uses)

    assert {len(each) for each in plans} <= {1, 2, 3}
    assert all(any(map(is_telling, plan)) for plan in plans)
    faults = [each for plan in plans for each in plan]
    kinds = Counter(kind_of[replace(each, skip=0, times=None).line] for each in faults if is_telling(each))
    assert kinds.keys() == set(KINDS)
    looked_up = {each.api for each in USES if APIS[each.api][0] == LOOKED_UP}
    assert looked_up - {each.api for each in faults} == set()


# What finds which mistake: a record that is not waited for or not confirmed, one that is sent twice, work without its
# commit, and a commit without its work.
KEY_FAULTS = [
    ("produce", '.delay(3, api="produce", times=1'),
    ("produce", '.delay(6, api="produce", times=1'),
    ("produce", '.error("KAFKA_STORAGE_ERROR", api="produce"'),
    ("produce", '.disconnect(api="produce", '),
    ("produce", 'api="produce", when="after"'),
    ("offset_commit", '.clock.advance(75), api="produce"'),
    ("offset_commit", '.clock.advance(75), api="offset_commit"'),
    ("offset_commit", '.error("REBALANCE_IN_PROGRESS", api="offset_commit"'),
    ("heartbeat", '.error("REBALANCE_IN_PROGRESS", api="heartbeat"'),
    ("fetch", '.delay(3, api="fetch"'),
    ("fetch", '.delay(6, api="fetch"'),
]
USED = {
    "produce": ["metadata", "produce"],
    "fetch": ["metadata", "list_offsets", "fetch"],
    "offset_commit": [each for each in APIS if "txn" not in each and "share" not in each and "consumer" not in each],
    "heartbeat": ["metadata", "find_coordinator", "join_group", "sync_group", "heartbeat", "offset_fetch", "fetch"],
}


@pytest.mark.parametrize(("api", "text"), KEY_FAULTS)
def test_what_tells_the_most_is_in_twenty_plans_of_every_seed(api: str, text: str) -> None:
    uses = [each for each in USES if each.api in USED[api]]
    without = [seed for seed in range(30) if text not in str([e.line for p in plans_of(seed, uses=uses) for e in p])]

    assert without == []


def test_an_api_that_a_test_did_not_use_changes_no_faults_but_those_that_look_something_up() -> None:
    more, fewer = plans_of(3, number=40), plans_of(3, uses=[e for e in USES if e.api != "list_offsets"], number=40)

    assert more != fewer
    assert [list(filter(is_telling, each)) for each in more] == [list(filter(is_telling, each)) for each in fewer]


def test_a_test_lasts_until_a_member_beats_again_where_that_is_struck() -> None:
    uses = [Use("minibroker", api, None, 1) for api in USED["heartbeat"]]
    waiting = [plan for plan in plans_of(1, uses=uses) if plan[0].api == "heartbeat"]

    assert waiting
    assert all(plan[-1].line.startswith('minibroker.faults.delay(6, api="fetch"') for plan in waiting)


def test_a_fault_that_would_skip_all_requests_of_the_run_without_faults_strikes_the_first() -> None:
    skips = {
        requests: {
            each.skip for plan in plans_of(1, uses=[Use("minibroker", "produce", None, requests)]) for each in plan
        }
        for requests in (0, 1, 3)
    }

    assert skips == {0: {0}, 1: {0}, 3: {0, 1, 2}}


def test_no_metadata_is_lost() -> None:
    """One that is lost keeps librdkafka from its subscription for five minutes, with no mistake in the program."""
    found = {each.kind for each in candidates([Use("minibroker", "metadata", None, 3)])}

    assert found == {"refused", "late"}


def test_each_line_is_a_call_of_an_api_of_kafka() -> None:
    for place in ("minibroker", "cluster"):
        for _, _, fault, _ in candidates([Use(place, api, "app", 1) for api in APIS]):
            ast.parse(fault.line)
            assert fault.line.startswith(f"{place}.faults.{fault.verb}(")
            assert fault.api.upper() in ApiKey.__members__


def test_a_client_is_named_where_others_ask_too() -> None:
    asked = [
        Requests("minibroker", "fetch", "app", True, 2),
        Requests("minibroker", "produce", "app", True, 1),
        Requests("minibroker", "produce", "app", True, 4),  # at another broker
        Requests("minibroker", "produce", "minibroker-cli", False, 1),
        Requests("minibroker", "join_group", "app", True, 1),
        Requests("minibroker", "join_group", "other", True, 2),
        Requests("minibroker", "create_topics", "app", True, 1),
    ]

    assert used_by(asked) == [
        Use("minibroker", "fetch", None, 2),
        *(Use("minibroker", "heartbeat", each, 0) for each in (None, "app", "other")),
        *(Use("minibroker", "join_group", each, count) for each, count in ((None, 3), ("app", 1), ("other", 2))),
        Use("minibroker", "produce", "app", 4),
    ]
    fault = Fault("minibroker", "delay", "3", "produce", "app", "after", 1, 2)
    assert fault.line == 'minibroker.faults.delay(3, api="produce", client_id="app", when="after", times=1, skip=2)'


# -- shrinking ------------------------------------------------------------------------------------------------


def test_a_plan_is_shrunk_to_the_faults_that_fail_the_test(tmp_path: Path) -> None:
    culprit = Fault("minibroker", "error", '"NOT_COORDINATOR"', "offset_commit", times=3, skip=5)
    others = [Fault("minibroker", "disconnect", "", api, times=1) for api in ("fetch", "produce")]
    not_struck = Result("failed", struck=dict.fromkeys([each.line for each in others], False))
    ran: list[Plan] = []

    class Simulated(Trials):
        def run(self, test: str, plan: Plan, *, is_recorded: bool = False) -> Result:
            ran.append(plan)
            return Result("failed" if any(each.api == culprit.api for each in plan) else "passed")

    trials = Simulated([], tmp_path, seed=1, timeout_seconds=1)
    for result in Result("failed"), not_struck:
        verdict = trials._shrunk("test_a", 4, (others[0], culprit, others[1]), result)

        assert [each.line for each in verdict.plan] == [
            'minibroker.faults.error("NOT_COORDINATOR", api="offset_commit", times=1)'
        ]
        assert (verdict.number, verdict.failed, verdict.runs) == (4, 2, 2)
    assert len(ran) < 16


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


# -- runs -----------------------------------------------------------------------------------------------------


def run_of(program: str, tmp_path: Path, seconds: float = 60) -> Result:
    """The result of a run whose pytest is this program."""
    return Trials([sys.executable, "-c", program], tmp_path, seed=1, timeout_seconds=seconds).run("test_a", ())


@pytest.mark.slow
@pytest.mark.parametrize("status", [pytest.ExitCode.USAGE_ERROR, pytest.ExitCode.INTERRUPTED])
def test_a_pytest_that_does_not_start_is_no_failure_of_a_plan(tmp_path: Path, status: int) -> None:
    with pytest.raises(CannotStart, match="it is wrong"):
        run_of(f"print('it is wrong'); raise SystemExit({status:d})", tmp_path)


@pytest.mark.slow
def test_a_test_that_is_not_found_or_that_ends_its_process_is_told_as_that(tmp_path: Path) -> None:
    assert run_of("raise SystemExit(5)", tmp_path).outcome == "not run"
    ended = run_of("import os; print('bye', flush=True); os._exit(1)", tmp_path)
    killed = run_of("import os; os.abort()", tmp_path)

    assert (ended.outcome, ended.text) == ("failed", "the test ended its process with status 1\nbye\n")
    assert killed.text.startswith("the test ended its process with status -6\n")


@pytest.mark.slow
def test_a_test_that_is_slow_without_faults_gets_more_time(tmp_path: Path) -> None:
    # Longer than the limit of 1 s, and shorter than the 3 s that a run without faults may take.
    trials = Trials([sys.executable, "-c", "import time; time.sleep(1.5)"], tmp_path, seed=1, timeout_seconds=1)

    assert trials.run("test_a", ()).text.startswith("the test hangs: it had not ended after 1 s")
    assert trials.examine("test_a", [1]).result.text.startswith("the test ended its process with status 0")
    assert trials.run("test_a", ()).text.startswith("the test ended its process with status 0")


@pytest.mark.slow
@pytest.mark.parametrize(("times", "outcome"), [(1, "passed"), (2, "not begun")])
def test_a_fixture_that_fails_once_is_no_failure_of_a_plan(times: int, outcome: str, pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        test_a=f"""
        from pathlib import Path
        import pytest

        @pytest.fixture
        def busy():
            failed = Path("failed").read_text() if Path("failed").exists() else ""
            if len(failed) < {times}:
                Path("failed").write_text(failed + "x")
                raise TimeoutError("the machine is busy")

        def test_it(busy):
            pass
        """
    )
    trials = Trials([sys.executable, "-m", "pytest", *WITHOUT], pytester.path, seed=1, timeout_seconds=60)

    assert trials.run("test_a.py::test_it", ()).outcome == outcome


HANGING = """
import faulthandler, time
faulthandler.enable()
def wait_for_the_bill():
    time.sleep(600)
wait_for_the_bill()
"""


@pytest.mark.slow
def test_a_test_that_hangs_is_ended_and_told_with_where_it_hangs(tmp_path: Path) -> None:
    hung = run_of(HANGING, tmp_path, seconds=3)

    assert hung.outcome == "failed"
    first, second, third, *_ = hung.text.splitlines()
    assert first == "the test hangs: it had not ended after 3 s"
    assert second == "it waits in (most recent call first)"
    assert third.endswith("in wait_for_the_bill")


# -- what a test asks, beside the actions of faults ------------------------------------------------------------


def test_what_is_read_is_asked_again_after_an_action_in_between_and_else_not() -> None:
    actions = Actions()
    asked = []

    def lag(broker: object) -> int:
        asked.append(broker)
        if len(asked) == 1:
            actions.acting(lambda: None)()
            raise BrokerError("it was killed")
        return 0

    def refused(broker: object) -> None:
        raise BrokerError("there is no such group")

    assert actions.reading(lag)("broker") == 0
    assert asked == ["broker", "broker"]
    with pytest.raises(BrokerError, match="no such group"):
        actions.reading(refused)("broker")


def test_what_is_written_waits_for_an_action() -> None:
    actions = Actions()
    order = []
    produce = Thread(target=actions.writing(lambda: order.append("produced")))

    def restart() -> None:
        produce.start()
        produce.join(0.05)
        order.append("restarted")

    actions.acting(restart)()
    produce.join(30)

    assert order == ["restarted", "produced"]


# -- options --------------------------------------------------------------------------------------------------


def test_the_options_ask_for_plans_of_a_seed() -> None:
    assert asked_by(None, None) is asked_by(0, None) is asked_by(0, "7.2") is None
    assert asked_by(3, "7") == Asked(7, [1, 2, 3])
    assert asked_by(None, "7.2") == Asked(7, [2])
    some = asked_by(2, None)
    assert some is not None
    assert some.numbers == [1, 2]


@pytest.mark.parametrize("seconds", ["0", "-1", "nan", "1e9", "x"])
def test_a_time_in_which_no_test_can_end_is_refused(seconds: str) -> None:
    with pytest.raises(ArgumentTypeError, match="write how many seconds a test may take, such as 60"):
        seconds_of_a_test(seconds)


@pytest.mark.parametrize(("plans", "seed"), [(-1, None), (20_000, None), (3, "x"), (3, "7."), (3, "7.0"), (None, "7")])
def test_options_that_cannot_be_are_refused(plans: int | None, seed: str | None) -> None:
    with pytest.raises(pytest.UsageError, match="--minibroker-chaos"):
        asked_by(plans, seed)


SUITE = """
import pytest

class TestShop:
    @pytest.mark.parametrize("name", ["a::b"])
    def test_that_hangs(self, minibroker, name):
        ask(minibroker)
        while minibroker.has_control and minibroker._transcript_path is None:
            pass

def test_that_fails(minibroker):
    assert minibroker.topics()

def test_without_a_broker():
    pass

def test_that_needs_others(minibroker, request):
    assert len(request.session.items) > 1
"""


@pytest.mark.integration
@pytest.mark.slow
@pytest.mark.nightly
def test_each_test_gets_a_verdict_or_a_reason(pytester: pytest.Pytester) -> None:
    below = pytester.mkpydir("below")
    (below / "test_app.py").write_text(ASK + SUITE)
    pytester.makeini("[pytest]")

    result = run_pytest(
        pytester, "-n1", "--dist=loadgroup", "--minibroker-chaos-seed=5.6", "--minibroker-chaos-timeout=30", xdist=True
    )

    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.assert_outcomes(passed=3, failed=2, errors=1)
    result.stdout.fnmatch_lines(
        [
            "*ERROR*test_that_needs_others under chaos*",
            "it fails when it runs alone, without faults",
            "*TestShop.test_that_hangs[[]a::b[]] under chaos*",
            "again: pytest 'below/test_app.py::TestShop::test_that_hangs[[]a::b[]]' --minibroker-chaos-seed=5.6",
            "the test hangs: it had not ended after 30 s",
            "  File *, line * in test_that_hangs",
            "*below/test_app.py::test_that_fails: it fails without them",
        ]
    )
    assert "test_without_a_broker" not in result.stdout.str()


@pytest.mark.integration
@pytest.mark.slow
@pytest.mark.nightly
def test_a_suite_that_chaos_cannot_run_has_a_status_of_its_own(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        test_app="def test_without_a_broker(): pass\ndef test_b(minibroker): assert minibroker.topics() == {}"
    )
    without = run_pytest(pytester, "--minibroker-chaos=2")
    pytester.makeconftest("from pathlib import Path\nPath('only once').mkdir()")
    does_not_start = run_pytest(pytester, "--minibroker-chaos=2")

    assert without.ret == pytest.ExitCode.NO_TESTS_COLLECTED
    without.stdout.fnmatch_lines(["*no test has run under faults; it takes tests that pass with a broker"])
    assert does_not_start.ret == pytest.ExitCode.USAGE_ERROR
    does_not_start.stderr.fnmatch_lines(["ERROR: minibroker chaos runs each test in a pytest of its own*"])
    does_not_start.stderr.fnmatch_lines(["*FileExistsError*"])


@pytest.mark.integration
@pytest.mark.slow
@pytest.mark.nightly
def test_ctrl_c_ends_the_runs_and_their_brokers(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        test_app="def test_a(minibroker):\n"
        "    open(f'pid {minibroker.pid}', 'w').write(str(minibroker._work_dir))\n"
        "    while minibroker.has_control: pass"
    )
    with pytester.popen(
        [sys.executable, "-m", "pytest", *WITHOUT, "--minibroker-chaos=2"], stdin=subprocess.DEVNULL
    ) as process:
        wait_until(lambda: len([*pytester.path.glob("pid *")]) == 2)
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=60)

    assert process.returncode == pytest.ExitCode.INTERRUPTED, out
    noted = list(pytester.path.glob("pid *"))
    wait_until(lambda: not any(Path("/proc", each.name.removeprefix("pid ")).exists() for each in noted))
    assert not any(Path(each.read_text()).exists() for each in noted)


CLUSTER_APP = """
from confluent_kafka import Consumer, Producer

def test_numbers(minibroker_cluster):
    minibroker_cluster.create_topic("numbers")
    servers = {"bootstrap.servers": minibroker_cluster.bootstrap_servers}
    producer = Producer(servers | {"enable.idempotence": True})
    numbers = [b"%d" % number for number in range(6)]
    for number in numbers:
        producer.produce("numbers", number)
        assert producer.flush(40) == 0
    minibroker_cluster.produce("numbers", [b"end"])
    group = {"group.id": "g", "auto.offset.reset": "earliest", "session.timeout.ms": 6000, "heartbeat.interval.ms": 200}
    consumer = Consumer(servers | group)
    consumer.subscribe(["numbers"])
    seen = []
    while b"end" not in seen:
        seen += [each.value() for each in consumer.consume(10, 0.5) if each.error() is None]
    consumer.close()
    assert [each.value for each in minibroker_cluster.records("numbers")] == [*numbers, b"end"]
"""


@pytest.mark.integration
@pytest.mark.slow
@pytest.mark.nightly
def test_a_suite_with_a_cluster_meets_each_kind_of_fault_and_goes_on(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_app=CLUSTER_APP)
    test = "test_app.py::test_numbers"
    command = command_of([*WITHOUT, test], is_spread=True, is_covered=False)
    trials = Trials(command, pytester.path, seed=1, timeout_seconds=120)
    alone = trials.run(test, (), is_recorded=True)
    uses = used_by(Requests(*each) for _, *each in alone.asked)
    heaviest = {each.kind: each.fault for each in sorted(candidates(uses), key=lambda each: each.weight)}

    assert heaviest.keys() == set(KINDS)
    for kind, fault in heaviest.items():
        fault = fault if fault.verb == "call" else replace(fault, times=1)
        result = trials.run(test, (fault,))
        assert (kind, result.text, result.impossible) == (kind, "", {})
        assert result.struck == {fault.line: True}


@pytest.mark.integration
@pytest.mark.slow
def test_a_failure_under_a_plan_is_a_failed_test_with_its_lines_and_its_seed(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_app=ONE_REQUEST)

    result = run_pytest(pytester, "--minibroker-chaos-seed=5.9")

    result.assert_outcomes(passed=2, failed=1)
    result.stdout.fnmatch_lines(
        [
            "*test_it_asks under chaos*",
            "it fails under plan 5.9, in 2 of 2 runs, with",
            '    minibroker.faults.disconnect(api="list_offsets", when="after", times=1)',
            "again: pytest *::test_it_asks --minibroker-chaos-seed=5.9",
            "*test_it_asks_nothing: no client of its own asks a broker; *",
            "FAILED *::test_it_asks*",
        ]
    )
