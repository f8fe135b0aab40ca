"""The bar for what takes over a second."""

from __future__ import annotations

import pytest

from minibroker.cli import progress
from minibroker.cli.progress import progress_bar


def test_a_bar_appears_once_it_takes_long_and_output_meanwhile_goes_where_it_was_sent(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    monkeypatch.setattr(progress, "SHOWN_AFTER_SECONDS", 0.0)

    with progress_bar("producing", 10, unit="bytes") as advance:
        advance(4)
        print("a record")  # to a file, say
        advance(3)

    printed = capsys.readouterr()
    assert printed.out == "a record\n"
    assert "a record" not in printed.err
    assert "producing" in printed.err
    assert "7 bytes" in printed.err


def test_quick_work_shows_no_bar(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)

    with progress_bar("producing", 10, unit="bytes") as advance:
        advance(10)

    assert capsys.readouterr() == ("", "")


def test_no_bar_goes_into_a_file(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(progress, "SHOWN_AFTER_SECONDS", 0.0)

    with progress_bar("producing", None, unit="bytes") as advance:
        advance(10)

    assert capsys.readouterr() == ("", "")
