"""Plans of faults, and `pytest --minibroker-chaos` in sessions of pytest of its own."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from minibroker.chaos.plan import APIS, KINDS, Fault, Plan, Use, candidates, drawn, used_by
from minibroker.chaos.session import Asked, asked_by
from minibroker.chaos.trials import Result, Trials
from minibroker.protocol.api import ApiKey
from tests.minibroker.commands import run_pytest

pytest_plugins = ["pytester"]

USES = [Use("minibroker", api, None) for api in APIS]
# Without a client library, so that a session of it is short. Its request is not that of a tool, which faults spare.
ONE_REQUEST = """

def test_it_asks(minibroker, minibroker_topic):
    import socket, struct
    host, port = minibroker.bootstrap_servers.split(":")
    with socket.create_connection((host, int(port)), timeout=30) as sock:
        sock.sendall(struct.pack(">ihhih3si", 17, 3, 1, 7, 3, b"app", -1))
        assert len(sock.recv(4)) == 4

def test_it_asks_nothing(minibroker):
    assert minibroker.is_running
"""


# -- plans ----------------------------------------------------------------------------------------------------


def test_equal_seeds_draw_equal_plans_and_others_draw_others() -> None:
    plans = [[drawn(seed, "test_a", number, USES) for number in range(1, 21)] for seed in (1, 1, 2)]

    assert plans[0] == plans[1]
    assert plans[0] != plans[2]
    assert drawn(1, "test_a", 1, reversed(USES)) == plans[0][0]
    assert drawn(1, "test_b", 1, USES) != plans[0][0]


def test_twenty_plans_have_faults_of_each_kind_and_at_most_three_each() -> None:
    kind_of = {each.line: kind for kind, _, each in candidates(USES)}
    plans = [drawn(7, "test_a", number, USES) for number in range(1, 21)]

    assert {len(each) for each in plans} <= {1, 2, 3}
    bare = {Fault(each.place, each.verb, each.text, each.api, each.client_id, each.when) for p in plans for each in p}
    assert {kind_of[each.line] for each in bare} == set(KINDS)


def test_an_api_that_a_test_did_not_use_changes_only_the_plans_it_is_in() -> None:
    more, fewer = USES, [each for each in USES if each.api != "list_offsets"]

    for number in range(1, 41):
        plan = drawn(3, "test_a", number, more)
        if not any(each.api == "list_offsets" for each in plan):
            assert drawn(3, "test_a", number, fewer) == plan


def test_each_line_is_a_call_of_an_api_of_kafka() -> None:
    for place in ("minibroker", "cluster"):
        for _, _, fault in candidates([Use(place, api, "app") for api in APIS]):
            ast.parse(fault.line)
            assert fault.line.startswith(f"{place}.faults.{fault.verb}(")
            assert fault.api.upper() in ApiKey.__members__


def test_a_client_is_named_where_others_ask_too() -> None:
    asked = [
        ("minibroker", "fetch", "app", True),
        ("minibroker", "produce", "app", True),
        ("minibroker", "produce", "minibroker-cli", False),
        ("minibroker", "join_group", "app", True),
        ("minibroker", "join_group", "other", True),
        ("minibroker", "create_topics", "app", True),
    ]

    assert used_by(asked) == [
        Use("minibroker", "fetch", None),
        *(Use("minibroker", api, each) for api in ("heartbeat", "join_group") for each in (None, "app", "other")),
        Use("minibroker", "produce", "app"),
    ]
    fault = Fault("minibroker", "delay", "3", "produce", "app", "after", 1, 2)
    assert fault.line == 'minibroker.faults.delay(3, api="produce", client_id="app", when="after", times=1, skip=2)'


# -- shrinking ------------------------------------------------------------------------------------------------


def test_a_plan_is_shrunk_to_the_faults_that_fail_the_test(tmp_path: Path) -> None:
    culprit = Fault("minibroker", "error", '"NOT_COORDINATOR"', "offset_commit", times=3, skip=5)
    others = [Fault("minibroker", "disconnect", "", api, times=1) for api in ("fetch", "produce")]
    ran: list[Plan] = []

    class Simulated(Trials):
        def run(self, test: str, plan: Plan, *, is_recorded: bool = False) -> Result:
            ran.append(plan)
            return Result("failed" if any(each.api == culprit.api for each in plan) else "passed")

    trials = Simulated([], tmp_path, seed=1, timeout_seconds=1)
    verdict = trials._shrunk("test_a", 4, (others[0], culprit, others[1]), Result("failed"))

    assert [each.line for each in verdict.plan] == [
        'minibroker.faults.error("NOT_COORDINATOR", api="offset_commit", times=1)'
    ]
    assert (verdict.number, verdict.failed, verdict.runs) == (4, 2, 2)
    assert len(ran) < 10


# -- options --------------------------------------------------------------------------------------------------


def test_the_options_ask_for_plans_of_a_seed() -> None:
    assert asked_by(None, None) is asked_by(0, None) is asked_by(0, "7.2") is None
    assert asked_by(3, "7") == Asked(7, [1, 2, 3])
    assert asked_by(None, "7.2") == Asked(7, [2])
    some = asked_by(2, None)
    assert some is not None
    assert some.numbers == [1, 2]


@pytest.mark.parametrize(("plans", "seed"), [(-1, None), (3, "x"), (3, "7."), (None, "7")])
def test_options_that_cannot_be_are_refused(plans: int | None, seed: str | None) -> None:
    with pytest.raises(pytest.UsageError, match="--minibroker-chaos"):
        asked_by(plans, seed)


@pytest.mark.integration
@pytest.mark.slow
def test_a_failure_under_a_plan_is_a_failed_test_with_its_lines_and_its_seed(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_app=ONE_REQUEST)

    result = run_pytest(pytester, "--minibroker-chaos-seed=5.13")

    result.assert_outcomes(passed=2, failed=1)
    result.stdout.fnmatch_lines(
        [
            "*test_it_asks under chaos*",
            "it fails under plan 5.13, in 2 of 2 runs, with",
            '    minibroker.faults.disconnect(api="metadata", when="after", times=1)',
            "again: pytest *::test_it_asks --minibroker-chaos-seed=5.13",
            "*test_it_asks_nothing: asks no broker of ours",
            "FAILED *::test_it_asks*",
        ]
    )
