"""The pytest plugin, in sessions of pytest of its own, as users run it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from minibroker import Broker
from tests.minibroker.commands import run_pytest

pytest_plugins = ["pytester"]
pytestmark = [pytest.mark.integration, pytest.mark.slow]


ASK = """
from minibroker.administration import connected
from minibroker.protocol.api import ApiKey

def topics(broker):
    with connected(broker.bootstrap_servers) as connection:
        return {row.name for row in connection.ask(ApiKey.METADATA, topics=None).topics}
"""


@pytest.fixture
def session(pytester: pytest.Pytester) -> pytest.Pytester:
    """A folder for tests, and in it what they ask a broker."""
    pytester.makepyfile(topics_of=ASK)
    return pytester


def test_tests_of_a_session_share_a_broker_and_have_topics_and_brokers_of_their_own(session: pytest.Pytester) -> None:
    session.makepyfile("""
        import unittest
        from minibroker import Broker
        from topics_of import topics

        seen, made = set(), []

        def test_one(minibroker, minibroker_topic, minibroker_factory):
            assert minibroker_topic.startswith("test_one-")
            assert minibroker.get_bootstrap_server() == minibroker.bootstrap_servers
            seen.add((minibroker.pid, minibroker_topic))
            made.extend([minibroker_factory(settings={"num.partitions": 2}), minibroker_factory()])
            assert made[0].bootstrap_servers != made[1].bootstrap_servers
            assert all(each.is_running for each in made)

        def test_two(minibroker, minibroker_topic, minibroker_unique):
            assert minibroker_topic in topics(minibroker)
            assert minibroker_unique("a b") != minibroker_unique("a b")
            assert " " not in minibroker_unique("a b")
            seen.add((minibroker.pid, minibroker_topic))
            assert len({pid for pid, _ in seen}) == 1 and len(seen) == 2
            assert not any(each.is_running for each in made)

        def test_three(minibroker_clean):
            assert topics(minibroker_clean) == set()

        class Records(unittest.TestCase):
            @classmethod
            def setUpClass(cls):
                cls.broker = cls.enterClassContext(Broker())

            def setUp(self):
                self.broker.reset()

            def test_one(self):
                self.broker.create_topic("one")
                self.assertEqual(topics(self.broker), {"one"})

            def test_two(self):
                self.broker.create_topic("two")
                self.assertEqual(topics(self.broker), {"two"})
    """)

    run_pytest(session).assert_outcomes(passed=5)


def test_the_ini_file_lets_tests_turn_the_clock_and_inject_faults_that_end_with_them(session: pytest.Pytester) -> None:
    session.makeini("[pytest]\nminibroker_control = true\n")
    session.makepyfile("""
        from datetime import timedelta

        def test_one(minibroker):
            before = minibroker.clock.now()
            minibroker.clock.advance(60)
            assert minibroker.clock.now() - before >= timedelta(seconds=60)
            minibroker.faults.disconnect()

        def test_two(minibroker, minibroker_topic):
            assert minibroker.faults.active() == []
    """)

    run_pytest(session).assert_outcomes(passed=2)


def test_no_socket_thread_or_process_is_left(session: pytest.Pytester) -> None:
    session.makeconftest("""
        import os, threading
        from pathlib import Path

        def left():
            sockets = set()
            for each in os.listdir("/proc/self/fd"):
                try:
                    target = os.readlink(f"/proc/self/fd/{each}")
                except FileNotFoundError:
                    continue
                if target.startswith(("socket:", "pipe:")) or "minibroker-" in target:
                    sockets.add(target)
            children = {
                pid for task in Path("/proc/self/task").iterdir() for pid in (task / "children").read_text().split()
            }
            return sockets, set(threading.enumerate()), children

        before = left()

        def pytest_unconfigure(config):
            assert left() == before, (left(), before)
            print("nothing is left")
    """)
    session.makepyfile("""
        def test_one(minibroker_clean, minibroker_topic, minibroker_factory):
            minibroker_factory().reset()
    """)

    result = run_pytest(session, "-s")

    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["*nothing is left*"])


def test_a_brokers_death_fails_its_test_with_the_last_log_lines_and_the_next_has_a_broker(
    session: pytest.Pytester,
) -> None:
    session.makepyfile("""
        import os, signal
        from topics_of import topics

        def test_it_dies(minibroker):
            os.kill(minibroker.pid, signal.SIGKILL)
            minibroker._process.wait()

        def test_it_dies_and_that_is_noticed(minibroker):
            os.kill(minibroker.pid, signal.SIGKILL)
            minibroker.reset()

        def test_it_is_there_again(minibroker):
            assert topics(minibroker) == set()

        def test_one_of_the_test_dies(minibroker_factory):
            broker = minibroker_factory()
            os.kill(broker.pid, signal.SIGKILL)
            broker._process.wait()

        def test_it_is_killed_on_purpose(minibroker):
            minibroker.kill()
    """)

    result = run_pytest(session)

    result.assert_outcomes(passed=2, failed=3)
    result.stdout.fnmatch_lines(
        ["While this test ran, the broker at 127.0.0.1:* was killed by SIGKILL; its last log lines:"]
    )
    result.stdout.fnmatch_lines(["*minibroker is ready at 127.0.0.1:*"])
    result.stdout.fnmatch_lines(["*test_it_dies_and_that_is_noticed*", "*BrokerError: the broker at*SIGKILL*"])


def test_each_worker_of_xdist_has_a_broker(session: pytest.Pytester) -> None:
    pytest.importorskip("xdist", reason="pip install pytest-xdist")
    session.makepyfile("""
        import pytest, time
        from pathlib import Path

        @pytest.mark.parametrize("number", range(2))
        def test_one(minibroker_clean, minibroker_topic, number, worker_id):
            Path(f"{worker_id}.pid").write_text(str(minibroker_clean.pid))
            deadline = time.monotonic() + 20
            while len(list(Path().glob("gw*.pid"))) < 2:
                assert time.monotonic() < deadline, "the other worker had no test"
                time.sleep(0.01)
    """)

    run_pytest(session, "-n2", "--minibroker-log=logs", xdist=True).assert_outcomes(passed=2)

    assert len({each.read_text() for each in Path(session.path).glob("gw*.pid")}) == 2
    assert sorted(each.name for each in (session.path / "logs").iterdir()) == [
        "minibroker-gw0-0.log",
        "minibroker-gw1-0.log",
    ]


def test_a_session_starts_within_700_ms_and_is_reset_within_50_with_100_topics(session: pytest.Pytester) -> None:
    session.makepyfile("""
        import time

        def seconds_of(do):
            "As on a quiet machine: of the time that it took, as much as work here gets of a core."
            begun, shares = time.perf_counter(), [share_of_a_core()]
            do()
            took = time.perf_counter() - begun
            shares.append(share_of_a_core())
            return took * min(shares)

        def share_of_a_core():
            begun, worked = time.perf_counter(), time.process_time()
            while time.process_time() - worked < 0.02:
                pass
            return 0.02 / (time.perf_counter() - begun)

        def test_times(minibroker_factory):
            starts, resets = [], []
            for _ in range(3):
                made = []
                starts.append(seconds_of(lambda: made.append(minibroker_factory())))
            for _ in range(3):
                for number in range(100):
                    made[0].create_topic(f"topic-{number}", partitions=1)
                resets.append(seconds_of(made[0].reset))
            print(f"start {min(starts):.3f} reset {min(resets):.3f}")
    """)

    output = run_pytest(session, "-s").stdout.str()

    times = re.search(r"start ([0-9.]+) reset ([0-9.]+)", output)
    assert times is not None, output
    assert float(times[1]) < 0.7
    assert float(times[2]) < 0.05


# -- faults that a test leaves behind


def test_a_reset_ends_them_and_is_not_struck_itself() -> None:
    with Broker(control=True) as broker:
        fault = broker.faults.disconnect()

        broker.reset()

        assert (fault.is_active, fault.count) == (False, 0)


def test_a_block_ends_well_though_its_broker_was_killed() -> None:
    with Broker(control=True) as broker, broker.faults.delay(1):
        broker.kill()


# -- what a user sees of an error


REFUSED = """
import unittest
import pytest
from minibroker import Broker, running_broker

def test_factory(minibroker_factory):
    minibroker_factory(port=9092)

def test_start(minibroker_factory):
    minibroker_factory(settings={"num.partitions": "many"})

def test_call(minibroker):
    minibroker.create_topic("t", replication_factor=3)

def test_wait(minibroker):
    minibroker.wait_for(lambda: False, timeout=0.01)

def test_value(minibroker):
    minibroker.client_settings("no-such-library")

@running_broker
def test_in_a_decorated_one(broker):
    broker.lag("none")

@running_broker(act_as="7.0")
def test_decorated(broker):
    pass

class TestOfUnittest(unittest.TestCase):
    def test_refused(self):
        Broker(port=9093)

class TestWithoutABroker(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.broker = cls.enterClassContext(Broker(act_as="7.0"))

    def test_nothing(self):
        pass
"""


def test_an_error_ends_at_the_line_of_the_test(session: pytest.Pytester) -> None:
    session.makepyfile(REFUSED)

    result = run_pytest(session)

    result.assert_outcomes(failed=8, errors=1)
    shown = re.compile("/minibroker/|contextlib|/unittest/")
    assert [line for line in result.outlines if shown.search(line)] == []
    result.stdout.fnmatch_lines([
        '>       minibroker_factory(port=9092)',
        'E       TypeError: Broker has no argument port: write listen="127.0.0.1:9092"',
        '>       minibroker_factory(settings={"num.partitions": "many"})',
        "E       *BrokerError: the broker ended with status 1:",
        "E       *BrokerError: the broker refused: * Replication factor: 3 larger than available brokers: 1.",
        "E       *WaitError: after 0.01 s the condition still returned False",
        "E       ValueError: *no-such-library*",
        '>       broker.lag("none")',
        "E       *BrokerError: group none has committed nothing*",
        "*_ test_decorated _*",
        "minibroker: the broker ended with status 2:",
        ">       Broker(port=9093)",
        "E       TypeError: Broker has no argument port*",
    ])  # fmt: skip


def test_an_error_in_the_tests_own_code_keeps_its_traceback(session: pytest.Pytester) -> None:
    session.makepyfile("""
        def test_one(minibroker):
            def condition():
                raise ValueError("of the test")
            minibroker.wait_for(condition)
    """)

    result = run_pytest(session)

    result.stdout.fnmatch_lines(["*/minibroker/waiting.py:*", ">*raise ValueError(*", "E*ValueError: of the test"])


def test_the_deprecations_of_kafka_python_are_not_shown_and_those_of_a_test_are(session: pytest.Pytester) -> None:
    session.makeini("[pytest]\nfilterwarnings =\n    error:read_text:DeprecationWarning\n")
    session.makepyfile("""
        import warnings
        import kafka

        def test_one(minibroker):
            warnings.warn("open_text is deprecated, by the test", DeprecationWarning)
    """)

    run_pytest(session).assert_outcomes(passed=1, warnings=1)
