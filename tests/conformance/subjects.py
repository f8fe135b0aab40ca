"""Recordings of Apache Kafka beside the books that have their answers, by name (`python -m tests.books`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from tests.books import GOLDEN, read_book
from tests.conformance import (
    acl_matrix,
    assignments,
    consumer_groups,
    group_directory,
    quota_histories,
    quotas,
    recording,
    sasl,
    settings,
    share_groups,
)
from tests.conformance.recordings import Comparison, Subject

FILES, OTHER_FILES = range(1, settings.FILES + 1), range(1000, 1020)
SUBJECTS = {
    "rights": Subject(acl_matrix.RECORDED, acl_matrix.compared),
    "logins": Subject(sasl.RECORDED, sasl.compared),
    "throttling": Subject(quotas.RECORDED, quotas.compared),
    "throttle-times": Subject(
        quota_histories.RECORDED, quota_histories.compared, range(quota_histories.HISTORIES), range(10_000, 12_000)
    ),
    "assignments": Subject(assignments.RECORDED, assignments.compared, range(assignments.CASES), range(10_000, 14_000)),
    "settings": Subject(settings.RECORDED, settings.compared, FILES, OTHER_FILES),
    "encrypted-settings": Subject(
        settings.RECORDED_ENCRYPTED, partial(settings.compared, encrypted=True), FILES, OTHER_FILES
    ),
}


def scripted(folder: str, file_name: str, compared: Callable[[list[str]], Comparison]) -> Iterator[tuple[str, Subject]]:
    """The books of a folder of tests/golden/conversations/, whose answers lie in one file."""
    for path in sorted((GOLDEN / "conversations" / folder).glob("*.txt")):
        titles = list(read_book(path).scripts)
        yield f"{folder}/{path.stem}", Subject(file_name, partial(of_titles, compared, titles))


def of_titles(compared: Callable[[list[str]], Comparison], titles: list[str], seeds: range) -> Comparison:
    return compared(titles)


RECORDED = {
    "kafka-2.0.1": SUBJECTS | dict(scripted("kafka-2.0.1", recording.RECORDED, recording.compared)),
    "kafka-4.4.0": {
        **dict(scripted("kafka-4.4.0", consumer_groups.RECORDED, consumer_groups.compared)),
        "kafka-4.4.0/generated": Subject(consumer_groups.RECORDED, consumer_groups.compared_generated),
        "kafka-4.4.0/share-groups": Subject(share_groups.RECORDED, share_groups.compared),
        "kafka-4.4.0-directory/group_directory": Subject(group_directory.RECORDED, group_directory.compared),
    },
}
