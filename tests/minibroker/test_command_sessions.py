"""Commands print what `tests/golden/commands` has recorded (`command_sessions.py`)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.apache_kafka import KafkaUnavailable
from tests.minibroker.command_sessions import OF_MINIBROKER, Book, Session, books, held, masked, serving

Served = tuple[Book, str]  # and what kind of broker serves it


def cases() -> Iterator[object]:
    for book in books():
        for kind in ("minibroker", *book.after("also")):
            marks = [pytest.mark.integration, pytest.mark.slow] if book.has_broker else []
            marks += [] if kind in OF_MINIBROKER else [pytest.mark.nightly]
            for session in book.sessions:
                title = f"{book.path.stem}: {session.title}"
                yield pytest.param(
                    (book, kind), session, id=title if kind == "minibroker" else f"{title}, {kind}", marks=marks
                )


@pytest.fixture(scope="module")
def bootstrap(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    book, kind = request.param
    try:
        with serving(book, tmp_path_factory.mktemp("kafka"), kind) as address:
            yield address
    except KafkaUnavailable as reason:
        pytest.skip(f"{kind} cannot be had: {reason}")


# By default the scope is that of the narrowest argument, and each session would start a broker of its own.
@pytest.mark.parametrize(("bootstrap", "session"), list(cases()), indirect=["bootstrap"], scope="module")
def test_commands_print_their_recorded_output(bootstrap: str, session: Session, tmp_path: Path) -> None:
    assert held(session, bootstrap, tmp_path) == session.text


@pytest.mark.parametrize("seconds", ["2.5", "0.1712345678901", "9.1e-05"])
def test_a_number_is_masked_whole(seconds: str, tmp_path: Path) -> None:
    line = f'{{"seconds": {seconds}, "at": 1712345678901}}'

    assert masked(line, "127.0.0.1:9092", tmp_path) == '{"seconds": SECONDS, "at": MILLISECONDS}'
