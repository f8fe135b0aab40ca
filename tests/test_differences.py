"""docs/differences.md tells which APIs are served: the table in it is API_TABLE's."""

from __future__ import annotations

from pathlib import Path

from minibroker.protocol.api import API_TABLE

DOCUMENT = Path(__file__).parent.parent / "docs" / "differences.md"

# From kafka 2.0.1 ApiKeys: the last version of each API it has.
LAST_VERSIONS_OF_KAFKA_2_0 = {
    0: 6, 1: 8, 2: 3, 3: 6, 8: 4, 9: 4, 10: 2, 11: 3, 12: 2, 13: 2, 14: 2, 15: 2, 16: 2, 17: 1, 18: 2, 19: 3, 20: 2,
    21: 1, 22: 1, 23: 1, 24: 1, 25: 1, 26: 1, 27: 0, 28: 1, 29: 1, 30: 1, 31: 1, 32: 2, 33: 1, 34: 1, 35: 1, 36: 0,
    37: 1, 42: 1,
}  # fmt: skip


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
