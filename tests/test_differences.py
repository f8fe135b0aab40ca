"""docs/differences.md tells which APIs are served: the table in it is API_TABLE's."""

from __future__ import annotations

from pathlib import Path

from minibroker.protocol.api import API_TABLE
from tests.conformance.kafka_versions import LAST_VERSIONS_OF_KAFKA_2_0

DOCUMENT = Path(__file__).parent.parent / "docs" / "differences.md"


def table_of_apis() -> str:
    rows = ["| key | API | versions | Apache Kafka 2.0.1 |", "|---|---|---|---|"]
    for key in sorted(API_TABLE):
        first, last = API_TABLE[key].versions
        kafka = LAST_VERSIONS_OF_KAFKA_2_0.get(key)
        rows.append(
            f"| {int(key)} | {API_TABLE[key].name} | {first}-{last} | {'-' if kafka is None else f'0-{kafka}'} |"
        )
    return "\n".join(rows) + "\n"


def test_the_table_of_apis_is_what_the_broker_serves() -> None:
    table = table_of_apis()

    assert table in DOCUMENT.read_text(encoding="utf-8"), f"put this table into {DOCUMENT.name}:\n\n{table}"
