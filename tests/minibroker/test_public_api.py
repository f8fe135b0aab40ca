"""The public face of `minibroker` and `minibroker.Broker`: names, help, warnings, and the decorator."""

from __future__ import annotations

import asyncio
import inspect
import pydoc
import re
from collections.abc import Iterator
from typing import Any

import pytest

import minibroker
from minibroker import Broker, BrokerError, SettingWarning, running_broker
from tests.minibroker.commands import run_pytest


def plain(text: str) -> str:
    return pydoc.plain(text)


def test_pydoc_of_the_package_shows_every_public_name() -> None:
    shown = plain(pydoc.render_doc(minibroker))

    assert set(minibroker.__all__) <= set(dir(minibroker))
    for name in minibroker.__all__:
        assert f"class {name}(" in shown or f"    {name}(" in shown, name


@pytest.mark.parametrize("name", minibroker.__all__)
def test_every_public_name_and_member_has_a_docstring(name: str) -> None:
    thing = getattr(minibroker, name)

    members = {
        member: value
        for member, value in inspect.getmembers(thing)
        if inspect.isclass(thing) and not member.startswith("_") and member in vars(thing)
        and (callable(value) or isinstance(value, property))
    }  # fmt: skip

    assert inspect.getdoc(thing)
    assert [member for member, value in members.items() if not inspect.getdoc(value)] == []


def test_pydoc_of_broker_shows_its_members_with_their_types() -> None:
    shown = plain(pydoc.render_doc("minibroker.Broker"))

    for name in ("bootstrap_servers", "data_dir", "log_file", "clock", "faults", "transcript", "is_running", "pid"):
        assert f"\n |  {name}\n" in shown
    text = " ".join(shown.replace("\n |", " ").split()).replace("( ", "(")  # Python 3.13 wraps long signatures
    assert "records(self, topic: 'str', n: 'int | None' = None, *, timeout: 'float' = 5.0" in text


def test_before_the_start_the_address_raises_as_the_pid_does() -> None:
    broker = Broker()
    try:
        assert repr(broker) == "<Broker, not started>"
        for ask in (lambda: broker.bootstrap_servers, lambda: broker.pid, broker.get_bootstrap_server):
            with pytest.raises(
                BrokerError, match=r"^the broker was not started; call start\(\), or use it in a `with`"
            ):
                ask()
    finally:
        broker.close()


@pytest.mark.integration
@pytest.mark.slow
def test_its_repr_has_the_address_and_whether_it_runs() -> None:
    with Broker() as broker:
        assert repr(broker) == f"<Broker at {broker.bootstrap_servers} (process {broker.pid})>"
    assert repr(broker) == f"<Broker at {broker.bootstrap_servers} (ended)>"


@pytest.mark.integration
@pytest.mark.slow
def test_a_setting_that_kafka_does_not_have_is_an_error_or_a_warning_where_it_is_used(tmp_path: Any) -> None:
    log = tmp_path / "log"
    message = "num.partition is not a setting of Kafka 2.0; did you mean num.partitions?"
    broker = Broker(settings={"num.partition": 3})
    with pytest.raises(BrokerError, match=f"{re.escape(message)}\nunknown_settings=True, or"):
        broker.start()
    assert not broker.is_running
    broker.close()
    lifted = Broker(settings={"num.partition": 3}, log_file=log, unknown_settings=True)
    with pytest.warns(SettingWarning) as warned, lifted:
        pass
    assert [(str(each.message), each.filename) for each in warned] == [(message, __file__)]
    with Broker(settings={"num.partitions": 3}, environment={"KAFKA_VERSION": "2.0"}, log_file=log):
        pass  # the log has the line of the broker before; pytest makes warnings errors
    with (
        pytest.raises(BrokerError, match=r"not a setting of Kafka 0\.10, which"),
        Broker(act_as="0.10", settings={"group.initial.rebalance.delay.ms": 0}),
    ):
        pass


@pytest.mark.parametrize(
    ("arguments", "next_step"),
    [
        ({"brokers": 3}, "a Broker is one broker; write Cluster(brokers=3)"),
        ({"port": 9092}, 'write listen="127.0.0.1:9092"'),
        ({"replication_factor": 3}, "one broker has one replica; write Cluster(brokers=3)"),
        ({"partitions": 3}, 'write settings={"num.partitions": 3}, or partitions=3 of create_topic'),
        ({"version": "2.0"}, "write act_as='2.0' for the release of Apache Kafka that clients see"),
        ({"configs": {"a": 1}}, "write settings={'a': 1}"),
        ({"data_directory": "x"}, "did you mean data_dir?"),
        ({"xyz": 1}, "it has data_dir, listen, "),
    ],
)
def test_an_argument_that_a_broker_does_not_have_is_refused_with_the_next_step(
    arguments: dict[str, Any], next_step: str
) -> None:
    (name,) = arguments

    with pytest.raises(TypeError, match="^" + re.escape(f"Broker has no argument {name}: {next_step}")):
        Broker(**arguments)


# -- the decorator


class Made:
    """In place of a broker; `running` has those that were started and not closed."""

    running: list[Any] = []  # noqa: RUF012

    def __init__(self, **arguments: Any) -> None:
        self.arguments = arguments

    def start(self) -> None:
        if self.arguments.get("listen") == "nowhere":
            raise BrokerError("cannot start")
        self.running.append(self)

    def close(self) -> None:
        if self in self.running:
            self.running.remove(self)
        self.arguments["closed"] = True


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Made]]:
    monkeypatch.setattr("minibroker.decorator.Broker", Made)
    yield Made
    assert Made.running == []


def test_a_decorated_function_gets_a_broker_of_its_own_and_its_other_arguments(made: type[Made]) -> None:
    @running_broker
    def bare(tmp_path: str, broker: Any) -> tuple[str, Any]:
        """A docstring."""
        assert made.running == [broker]
        return tmp_path, broker

    @running_broker(settings={"num.partitions": 3})
    def configured(broker: Any) -> Any:
        return broker

    assert bare("path")[0] == bare(tmp_path="path")[0] == "path"
    assert bare("path")[1] is not bare("path")[1]
    assert (list(inspect.signature(bare).parameters), bare.__doc__) == (["tmp_path"], "A docstring.")
    assert configured().arguments["settings"] == {"num.partitions": 3}


def test_it_is_closed_when_the_function_raises_and_when_it_cannot_start(made: type[Made]) -> None:
    @running_broker
    def fails(broker: Any) -> None:
        raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        fails()
    with pytest.raises(BrokerError, match="cannot start"), running_broker(listen="nowhere"):
        pass


def test_a_coroutine_function_and_the_tests_of_a_class_are_decorated(made: type[Made]) -> None:
    @running_broker
    async def later(broker: Any) -> bool:
        return made.running == [broker]

    @running_broker(act_as="1.1")
    class Tests:
        def test_one(self, broker: Any) -> str:
            release: str = broker.arguments["act_as"]
            return release

        def test_two(self) -> int:
            return len(made.running)

    assert inspect.iscoroutinefunction(later)
    assert asyncio.run(later())
    assert (Tests().test_one(), Tests().test_two()) == ("1.1", 0)  # type: ignore[call-arg]


def test_it_is_a_context_manager_that_may_be_used_again_and_nested(made: type[Made]) -> None:
    wanted = running_broker(control=True)

    with wanted as outer, wanted as inner:
        assert made.running == [outer, inner]
    with wanted as again:
        assert made.running == [again]


@pytest.mark.parametrize("decorated", [lambda tmp_path: None, type("Tests", (), {"test_one": lambda self: None})])
def test_a_function_or_class_that_takes_no_broker_is_refused(decorated: Any) -> None:
    with pytest.raises(TypeError, match="argument `broker`"):
        running_broker(decorated)


@pytest.mark.integration
@pytest.mark.slow
def test_a_decorated_test_runs_in_pytest(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("""
        from minibroker import running_broker

        @running_broker
        def test_one(tmp_path, broker):
            broker.produce("orders", ["one"])
            assert [record.value for record in broker.records("orders", n=1)] == [b"one"]

        @running_broker(settings={"num.partitions": 2})
        class TestClass:
            def test_two(self, broker, tmp_path):
                broker.create_topic("orders")
                assert broker.topics() == {"orders": 2}
    """)

    run_pytest(pytester).assert_outcomes(passed=2)


pytest_plugins = ["pytester"]
