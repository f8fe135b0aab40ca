"""Output at a terminal: colours, long lines, and text that would control it."""

from __future__ import annotations

import re

import pytest

from minibroker.cli import terminal


def test_colours_are_for_terminals(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm")

    terminal.complain("[bold]not markup[/]")
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    terminal.complain("x")
    monkeypatch.setenv("NO_COLOR", "1")
    terminal.complain("x")

    lines = capsys.readouterr().err.splitlines()
    assert lines == ["minibroker: [bold]not markup[/]", "\x1b[31mminibroker:\x1b[0m x", "minibroker: x"]


def test_a_line_is_as_long_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    terminal.complain("word " * 100)
    terminal.print_table(("TOPIC",), [("t" * 249,)], left=("TOPIC",))

    printed = capsys.readouterr()
    assert len(printed.err.splitlines()) == 1
    assert printed.out.splitlines()[1].rstrip() == "t" * 249


@pytest.mark.parametrize(
    ("width", "lines"),
    [
        (50, [f"{'TOPIC':<41}   LATEST", f"{'t' * 41}  1000000", "t" * 41, "t" * 18]),
        (20, [f"{'TOPIC':<24}   LATEST", f"{'t' * 24}  1000000", *["t" * 24] * 3, "t" * 4]),
    ],
)
def test_a_long_name_is_wrapped_at_the_width_of_the_terminal_but_no_number(
    width: int, lines: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)

    terminal.print_table(("TOPIC", "LATEST"), [("t" * 100, 1_000_000)], left=("TOPIC",))

    printed = re.sub(r"\x1b\[\d*m", "", capsys.readouterr().out)
    assert [line.rstrip() for line in printed.splitlines()] == lines


def test_text_from_a_cluster_does_not_control_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    client_id = "evil\x1b]0;owned\x07\n\x9b31m"

    terminal.complain(client_id)
    terminal.print_line(client_id)
    terminal.print_table(("CLIENT",), [(client_id,)], left=("CLIENT",))

    printed = capsys.readouterr()
    for line in (printed.err, *printed.out.splitlines()[::2]):
        assert line.strip().removeprefix("minibroker: ") == r"evil\x1b]0;owned\x07\x0a\x9b31m"
