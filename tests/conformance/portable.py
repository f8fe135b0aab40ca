"""The conversations of books that any broker can be asked: they travel with the package (`minibroker conform`).

Those of kafka-2.0.1/ and kafka-4.4.0/ are steps already. Of the others, the ones that need no settings and no broker of
their own become steps here, one conversation for each version.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from typing import Any

from minibroker.conformance.asking import delete_records, list_offsets
from minibroker.conformance.steps import KEYS, Script, Step, call, read_script, script_text
from tests.books import GOLDEN, Book, read_book
from tests.books import Script as Told
from tests.books.conversations import is_timed
from tests.books.language import KNOWN, VERBS, Names, batch, each_of, fetch, line_of, step_of
from tests.books.subjects import CLEANED, OF_ALL, needs_own_broker, reason_against
from tests.broker.conftest import NOW_MS
from tests.conformance.scripts import OF_KAFKA_2_0, OF_KAFKA_4_4

FOLDER = GOLDEN / "conversations"
NOT_OF_ITSELF = {
    "replicas that are not up",  # later Kafka lets such a fetch wait
    "ApiVersions 5 refuses a client that means to ask another broker, as kafka 4.4.0",  # it has the epoch of features
}
OF_VERSION = re.compile(r"^((?:again |start |from \S+ |\w+: )*\w+) \*", re.DOTALL)


def produce(topic: str, *values: bytes, partition: int = 0, acks: int = 1, version: int = 7, **options: Any) -> Step:
    rows = [(NOW_MS, None, value) for value in values]
    topics = [(topic, [(partition, batch(rows=rows))])]
    return call("Produce", version, acks=acks, timeout_ms=1000, topics=topics, **options)


def fill(topic: str, partition: int = 0, *, batches: int = 1, size: int = 100, **options: Any) -> list[Step]:
    return [produce(topic, b"x" * size, partition=partition, **options) for _ in range(batches)]


def write_at(topic: str, *times_ms: int, **options: Any) -> Step:
    topics = [(topic, [(0, batch(rows=[(each, None, b"v") for each in times_ms]))])]
    return call("Produce", 7, acks=1, timeout_ms=1000, topics=topics, **options)


def delete_topic(name: str, **options: Any) -> Step:
    return call("DeleteTopics", 3, topic_names=[name], timeout_ms=1000, **options)


def converted(book: Book, script: Told, version: int) -> Script:
    """The steps of a conversation in a version. Raises Exception where its language says what steps cannot."""

    def offsets(topic: str, *times_ms: int, version: int = version, **options: Any) -> list[Step]:
        return [list_offsets((topic, 0, each, 100), version=version, **options) for each in times_ms]

    def versioned_fetch(*rows: Any, version: int = version, **options: Any) -> Step:
        return fetch(*rows, version=version, **options)

    verbs = VERBS | {
        "delete_before": lambda topic, offset, partition=0, **_: delete_records((topic, partition, offset)),
        "delete_topic": delete_topic,
        "fetch": versioned_fetch,
        "fill": fill,
        "offsets": offsets,
        "produce": produce,
        "write": produce,
        "write_at": write_at,
    }
    steps: Script = []
    for text in (*book.steps_before(script), *script.steps):
        for line in each_of(OF_VERSION.sub(rf"\1 {version}", text)):
            made: Any = step_of(line, book.defaults, Names(KNOWN | {"NOW_MS": NOW_MS, "configs": {}}), verbs)
            steps += made if isinstance(made, list) else [made]
    return steps


def reads_again(script: Script) -> bool:
    """Whether the text of a script is the script."""
    try:
        return repr(read_script(script_text(script))) == repr(script)
    except (SyntaxError, NameError, TypeError):
        return False


def is_of_itself(title: str, script: Script) -> bool:
    """Whether it leaves everything as it was for other clients, and needs no restart."""
    return title not in NOT_OF_ITSELF and not any(
        step.kind == "restart" or step.api in (CLEANED | OF_ALL) for step in script
    )


def can_be_asked(script: Script) -> bool:
    """Whether what only an answer in memory has is in no request."""
    try:
        for step in script:
            if step.kind in ("call", "park"):
                step.frame("r000000-", NOW_MS, {})
    except (AttributeError, TypeError, ValueError, struct.error):
        return False
    return True


def of_book(book: Book) -> Iterator[tuple[str, Script]]:
    for script in book.scripts.values():
        known = all(word in KEYS or word in CONVERTED for word in words(book, script))
        is_alone = book.settings | script.settings or needs_own_broker(book, script) or is_timed(book, script)
        if not known or is_alone or reason_against("kafka-3.9.1", book, script):
            continue
        for version in script.versions or (0,):
            try:
                steps = converted(book, script, version)
            except (AttributeError, AssertionError, KeyError, NameError, TypeError, ValueError):
                break  # it has values that only a broker in memory is given
            if is_of_itself(script.title, steps) and reads_again(steps) and can_be_asked(steps):
                yield f"{script.title}, v{version}" if script.versions else script.title, steps


CONVERTED = {*VERBS, "delete_before", "delete_topic", "fill", "offsets", "produce", "write", "write_at"}


def words(book: Book, script: Told) -> set[str]:
    return {line_of(step).word for step in (*book.steps_before(script), *script.steps)}


def portable() -> dict[str, dict[str, str]]:
    """By book, and in it by title, the scripts as text."""
    found: dict[str, dict[str, str]] = {}
    for folder, scripts in (("kafka-2.0.1", OF_KAFKA_2_0), ("kafka-4.4.0", OF_KAFKA_4_4)):
        for path in sorted((FOLDER / folder).glob("*.txt")):
            texts = {title: scripts[title]() for title in read_book(path).scripts}
            kept = {title: steps for title, steps in texts.items() if is_of_itself(title, steps)}
            found.setdefault(path.stem, {}).update({title: script_text(steps) for title, steps in kept.items()})
    for path in sorted(FOLDER.glob("*.txt")):
        texts = dict(of_book(read_book(path)))
        if texts:
            found.setdefault(path.stem, {}).update({title: script_text(steps) for title, steps in texts.items()})
    return {book: texts for book, texts in found.items() if texts}
