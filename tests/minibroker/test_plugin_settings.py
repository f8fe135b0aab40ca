"""The settings of the session's broker: ini options, fixtures that override them, and what tests get by default."""

from __future__ import annotations

import pytest

from minibroker import Broker
from minibroker.process import settings_for_tests
from minibroker.storage.quick_groups import QUICK_GROUPS
from tests.minibroker.commands import run_pytest

pytest_plugins = ["pytester"]

ASK = """
from minibroker.administration import connected
from minibroker.protocol.api import ApiKey

def ask(broker, key, **body):
    with connected(broker.bootstrap_servers) as connection:
        return connection.ask(ApiKey[key], **body)

def partitions(broker, name):
    broker.create_topic(name)
    (topic,) = [row for row in ask(broker, "METADATA", topics=None).topics if row.name == name]
    return len(topic.partitions)

def last_fetch(broker):
    return {row.api_key: row.max_version for row in ask(broker, "API_VERSIONS").api_keys}[1]

def setting(broker, name):
    answer = ask(broker, "DESCRIBE_CONFIGS", resources=[(4, "0", [name])])
    return answer.results[0].configs[0].value
"""
DELAY = "group.initial.rebalance.delay.ms"


@pytest.fixture
def session(pytester: pytest.Pytester) -> pytest.Pytester:
    pytester.makepyfile(asking=ASK)
    return pytester


@pytest.mark.integration
@pytest.mark.slow
def test_ini_options_are_the_session_brokers_settings(session: pytest.Pytester) -> None:
    session.makeini("""
        [pytest]
        minibroker_settings =
            num.partitions = 3
            group.max.session.timeout.ms=7000
        minibroker_act_as = 0.11
        minibroker_control = true
        minibroker_transcript = true
    """)
    session.makepyfile(f"""
        from asking import last_fetch, partitions, setting

        def test_one(minibroker):
            assert partitions(minibroker, "three") == 3
            assert setting(minibroker, "group.max.session.timeout.ms") == "7000"
            assert setting(minibroker, "{DELAY}") == "0"
            assert last_fetch(minibroker) == 5
            assert minibroker.has_control
            assert "CreateTopics" in [each.api for each in minibroker.transcript.exchanges()]
            minibroker.kill()

        def test_two(minibroker):
            assert partitions(minibroker, "after a restart".replace(" ", "-")) == 3
            assert False, "for its report"
    """)

    result = run_pytest(session, "--minibroker-log=logs")

    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["*- minibroker 127.0.0.1:* -*", "*created topic after-a-restart*"])
    result.stdout.no_fnmatch_line("*created topic three with*")  # of the test before
    assert {each.name for each in (session.path / "logs").iterdir()} == {
        "minibroker-main-0.log",
        "minibroker-main-0.transcript",
    }


@pytest.mark.integration
@pytest.mark.slow
def test_fixtures_override_the_ini_options(session: pytest.Pytester) -> None:
    session.makeini("[pytest]\nminibroker_settings =\n    num.partitions=3\n    log.retention.hours=5\n")
    session.makeconftest(f"""
        import pytest

        @pytest.fixture(scope="session")
        def minibroker_settings(minibroker_settings):
            return minibroker_settings | {{"num.partitions": 2, "{DELAY}": 100}}

        @pytest.fixture(scope="session")
        def minibroker_act_as():
            return "1.1"

        @pytest.fixture(scope="session")
        def minibroker_control():
            return True

        @pytest.fixture(scope="session")
        def minibroker_transcript(tmp_path_factory):
            return tmp_path_factory.mktemp("kept") / "transcript"
    """)
    session.makepyfile(f"""
        from asking import last_fetch, partitions, setting

        def test_one(minibroker, minibroker_transcript):
            assert partitions(minibroker, "two") == 2
            assert setting(minibroker, "log.retention.hours") == "5"
            assert setting(minibroker, "{DELAY}") == "100"
            assert last_fetch(minibroker) == 7
            assert minibroker.has_control
            assert minibroker_transcript.exists()
    """)

    run_pytest(session).assert_outcomes(passed=1)


@pytest.mark.parametrize("line", ["num.partitions", "= 3", "num.partitions: 3"])
def test_a_setting_without_a_value_ends_the_session_with_its_form(session: pytest.Pytester, line: str) -> None:
    session.makeini(f"[pytest]\nminibroker_settings =\n    {line}\n")
    session.makepyfile("def test_one(): pass")

    result = session.runpytest_inprocess("-p", "no:cacheprovider", "-p", "no:xdist")

    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"*minibroker_settings: {line}: write name=value, one in a line*"])


@pytest.mark.parametrize(
    ("given", "act_as", "environment", "settings"),
    [
        ({}, None, {}, QUICK_GROUPS),
        ({"num.partitions": 2}, "1.1", {}, {DELAY: "0", "num.partitions": 2}),
        ({DELAY: 3000}, None, {}, QUICK_GROUPS | {DELAY: 3000}),
        ({}, "0.10", {}, {}),  # which has no such setting, and does not wait
        (
            {},
            None,
            {"KAFKA_GROUP_INITIAL_REBALANCE_DELAY_MS": "50"},  # settings would override it
            {name: value for name, value in QUICK_GROUPS.items() if name != DELAY},
        ),
    ],
)
def test_tests_get_kafkas_defaults_but_for_the_waits_of_groups(
    given: dict[str, object], act_as: str | None, environment: dict[str, str], settings: dict[str, object]
) -> None:
    assert settings_for_tests(given, act_as=act_as, environment=environment) == settings


def test_a_broker_of_ones_own_has_it_too() -> None:
    assert f"{DELAY}=0" in command_of(Broker())
    assert f"{DELAY}=70" in command_of(Broker(settings={DELAY: 70}))


@pytest.mark.integration
@pytest.mark.slow
def test_an_ini_option_takes_settings_that_kafka_does_not_have(session: pytest.Pytester) -> None:
    lines = "[pytest]\nminibroker_settings =\n    num.partition=3\n"
    session.makepyfile("def test_one(minibroker): pass")
    session.makeini(lines)

    refused = run_pytest(session)
    session.makeini(f"{lines}minibroker_unknown_settings = true\n")
    lifted = run_pytest(session)

    refused.assert_outcomes(errors=1)
    refused.stdout.fnmatch_lines([
        "*ERROR at setup of test_one*",
        "minibroker: num.partition is not a setting of Kafka 2.0; did you mean num.partitions?",
    ], consecutive=True)  # fmt: skip
    lifted.assert_outcomes(passed=1, warnings=1)


def command_of(broker: Broker) -> list[str]:
    try:
        return broker._command(broker.data_dir)
    finally:
        broker.close()
