"""`minibroker users`: on a broker and in a data directory, passwords from files and terminals, and what goes wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from minibroker.admin.users import one_of_each_user
from minibroker.cli import users
from minibroker.cli.app import main
from minibroker.cli.users import read_password
from minibroker.protocol import scram
from minibroker.protocol.scram import Deletion
from tests.integration.brokers import apache_kafka_jars

pytestmark = [pytest.mark.integration, pytest.mark.slow]

needs_minibroker = pytest.mark.skipif(
    apache_kafka_jars() is not None, reason="Apache Kafka 2.0.1 keeps users in ZooKeeper; unset MINIBROKER_TEST_KAFKA"
)


@pytest.fixture
def password_file(tmp_path: Path) -> Path:
    path = tmp_path / "password"
    path.write_text("hunter2\nand another line\n")
    return path


def printed(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    status = main(list(map(str, arguments)))
    found = capsys.readouterr()
    return status, found.out, found.err


def test_a_byte_order_mark_is_not_part_of_a_password(tmp_path: Path) -> None:
    (tmp_path / "password").write_bytes("hunter2\r\n".encode("utf-8-sig"))

    assert read_password("alice", tmp_path / "password") == "hunter2"


@needs_minibroker
def test_the_directory_of_a_running_broker_is_left_alone(
    tmp_path: Path, password_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from minibroker import Broker

    with Broker(data_dir=tmp_path / "data"):
        status, out, err = printed(
            capsys, "users", "add", "x", "--password-file", password_file, "--data-dir", tmp_path / "data"
        )

    assert (status, out) == (1, "")
    assert "is in use by another broker" in err
    assert "leave --data-dir out" in err


def test_a_list_of_users_makes_no_directory(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    printed(capsys, "users", "list", "--data-dir", tmp_path / "new")

    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    ("typed", "outcome"),
    [
        (["hunter2", "hunter2"], "added: alice"),
        (["hunter2", "hunter3"], "the passwords differ; try again"),
        ([""], "a password must not be empty"),
    ],
)
def test_a_password_is_asked_twice_without_an_echo(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    typed: list[str],
    outcome: str,
) -> None:
    asked: list[str] = []
    answers = iter(typed)

    def getpass(prompt: str) -> str:
        asked.append(prompt)
        return next(answers)

    monkeypatch.setattr("getpass.getpass", getpass)
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)

    _, out, err = printed(capsys, "users", "add", "alice", "--data-dir", tmp_path)

    assert outcome in out + err
    stored = tmp_path / "minibroker.json"
    assert "hunter" not in out + err + (stored.read_text() if stored.exists() else "")
    assert stored.exists() == (outcome == "added: alice")
    assert asked[0] == "password of alice: "


def test_the_options_have_the_mechanisms_and_bounds_of_the_protocol() -> None:
    assert tuple(scram.BY_NAME) == users.MECHANISMS
    bounds = (users.MIN_ITERATIONS, users.DEFAULT_ITERATIONS, users.MAX_ITERATIONS)
    assert bounds == (scram.MIN_ITERATIONS, scram.DEFAULT_ITERATIONS, scram.MAX_ITERATIONS)


def test_a_request_changes_a_user_once() -> None:
    """Apache Kafka without ZooKeeper refuses a user that a request names twice."""
    changes = [Deletion("a", 1), Deletion("a", 2), Deletion("b", 1)]

    assert one_of_each_user(changes) == [[changes[0], changes[2]], [changes[1]]]
