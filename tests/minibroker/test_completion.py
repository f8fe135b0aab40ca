"""Completion by Tab: as a shell asks for it, by the words so far in the environment."""

from __future__ import annotations

import pytest

from minibroker.cli.completion import options_in_help
from tests.minibroker.commands import minibroker
from tests.minibroker.conftest import CommandLine

UNREACHABLE = "127.0.0.1:9"


def offered(words: str, **environment: str) -> list[str]:
    """Return the offers for the last of the words, which may be empty."""
    asked = {"COMP_WORDS": words, "COMP_CWORD": str(words.count(" ")), "_MINIBROKER_COMPLETE": "complete_bash"}
    done = minibroker(**asked, **environment)
    assert done.err == ""
    return done.out.split()


@pytest.mark.slow
def test_topics_and_groups_of_the_cluster_are_offered(cli: CommandLine) -> None:
    topic, group = cli.topic(), cli.new("group")
    cli.out("groups", "reset", group, "--topic", topic, "--to", "end", "--execute")

    for words in ("consume", "produce", "offsets", "topics describe", "configs describe --topic"):
        assert offered(f"minibroker {words} {topic[:-1]}", MINIBROKER_BOOTSTRAP=cli.bootstrap) == [topic]
    assert offered(f"minibroker groups describe {group[:-1]}", MINIBROKER_BOOTSTRAP=cli.bootstrap) == [group]
    retention = f"minibroker configs set --topic {topic} retention.m"
    assert offered(retention, MINIBROKER_BOOTSTRAP=cli.bootstrap) == ["retention.ms="]
    unset = retention.replace(" set ", " unset ")
    assert offered(unset, MINIBROKER_BOOTSTRAP=cli.bootstrap) == ["retention.ms"]
    # The command line names the cluster before the environment does; a new topic is not named like one that is there.
    named = f"minibroker consume -b {cli.bootstrap} {topic[:-1]}"
    assert offered(named, MINIBROKER_BOOTSTRAP=UNREACHABLE) == [topic]
    assert offered(f"minibroker topics create {topic[:-1]}", MINIBROKER_BOOTSTRAP=cli.bootstrap) == []


@pytest.mark.slow
@pytest.mark.parametrize("address", [UNREACHABLE, "no-address:"])
def test_a_cluster_that_does_not_answer_completes_nothing(address: str) -> None:
    assert offered("minibroker consume ", MINIBROKER_BOOTSTRAP=address) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("typed", "completions"),
    [
        ("topics de", ["delete", "delete-records", "describe"]),
        ("prod", ["produce", "producers"]),
        ("groups reset g --ex", ["--execute"]),
        ("topics delete t --int", ["--internal"]),
        ("produce t --value-encoding ", ["base64", "hex", "text"]),
        ("consume t --output ", ["json", "text"]),
        ("serve --co", ["--config", "--console", "--console-config", "--control", "--count"]),
        ("console --al", ["--allow-changes"]),
    ],
)
def test_commands_options_and_values_are_offered(typed: str, completions: list[str]) -> None:
    assert sorted(offered(f"minibroker {typed}")) == completions


@pytest.mark.slow
def test_words_that_are_no_option_of_serve_are_left_to_the_shell() -> None:
    assert options_in_help("serve", "") == []
    assert dict(options_in_help("serve", "--listen"))["--listen"].startswith("address to listen on")
