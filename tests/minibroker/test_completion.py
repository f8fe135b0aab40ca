"""What Tab offers: as a shell asks for it, by the words so far in the environment."""

from __future__ import annotations

import pytest

from minibroker.cli.completion import serve_options
from tests.minibroker.commands import minibroker
from tests.minibroker.conftest import CommandLine

UNREACHABLE = "127.0.0.1:9"


def offered(words: str, **environment: str) -> list[str]:
    """What is offered for the last of the words, which may be empty."""
    asked = {"COMP_WORDS": words, "COMP_CWORD": str(words.count(" ")), "_MINIBROKER_COMPLETE": "complete_bash"}
    done = minibroker(**asked, **environment)
    assert done.err == ""
    return done.out.split()


@pytest.mark.slow
def test_topics_of_the_cluster_are_offered(cli: CommandLine) -> None:
    topic = cli.topic()

    for words in ("consume", "produce", "offsets", "topics describe", "configs describe --topic"):
        assert offered(f"minibroker {words} {topic[:-1]}", MINIBROKER_BOOTSTRAP=cli.bootstrap) == [topic]


@pytest.mark.slow
def test_the_cluster_is_the_one_that_the_command_line_names(cli: CommandLine) -> None:
    topic = cli.topic()

    words = f"minibroker consume -b {cli.bootstrap} {topic}"
    assert offered(words, MINIBROKER_BOOTSTRAP=UNREACHABLE) == [topic]


@pytest.mark.slow
def test_groups_of_the_cluster_are_offered(cli: CommandLine) -> None:
    topic, group = cli.topic(), cli.new("group")
    cli.out("groups", "reset", group, "--topic", topic, "--to", "end", "--execute")

    assert offered(f"minibroker groups describe {group[:-1]}", MINIBROKER_BOOTSTRAP=cli.bootstrap) == [group]


@pytest.mark.slow
@pytest.mark.parametrize("address", [UNREACHABLE, "no-address"])
def test_a_cluster_that_does_not_answer_offers_nothing_and_says_nothing(address: str) -> None:
    assert offered("minibroker consume ", MINIBROKER_BOOTSTRAP=address) == []


@pytest.mark.slow
def test_a_new_topic_is_not_named_like_one_that_is_there(cli: CommandLine) -> None:
    topic = cli.topic()

    assert offered(f"minibroker topics create {topic[:-1]}", MINIBROKER_BOOTSTRAP=cli.bootstrap) == []


@pytest.mark.slow
def test_the_options_of_serve_are_offered() -> None:
    assert offered("minibroker serve --co") == ["--config", "--control"]


@pytest.mark.slow
def test_what_is_no_option_of_serve_is_left_to_the_shell() -> None:
    assert serve_options("") == []
    assert dict(serve_options("--listen"))["--listen"].startswith("address to listen on")
