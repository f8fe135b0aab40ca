"""A dashboard for Grafana: what clients do, how far groups lag, what the broker waits for, how it is.

The row of any Kafka cluster comes first; the others need minibroker.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib.resources import files
from typing import Any, NamedTuple

SCHEMA_VERSION = 39  # of Grafana 10.3 and later
UID = "minibroker"
PANEL_WIDTH, PANEL_HEIGHT = 8, 8
PANELS_IN_A_ROW = 3
SOURCE = {"type": "prometheus", "uid": "${datasource}"}
SHORT = {"[RATE]": "[$__rate_interval]", "{TOPIC}": '{topic=~"$topic"}'}  # in the queries

# A row, a panel with its unit, its queries with their legends.
PANELS = files("minibroker.metrics").joinpath("dashboard.txt").read_text("utf-8")


class Query(NamedTuple):
    expression: str
    legend: str


class Panel(NamedTuple):
    title: str
    unit: str  # as Grafana names it
    queries: list[Query]
    is_table: bool


class Row(NamedTuple):
    title: str
    panels: list[Panel]


def rows() -> list[Row]:
    """The rows of `PANELS`."""
    found: list[Row] = []
    for line in PANELS.splitlines():
        if line.startswith("# "):
            found.append(Row(line[2:], []))
        elif not line.startswith("  "):
            title, unit, *kind = line.split(" | ")
            found[-1].panels.append(Panel(title, unit, [], kind == ["table"]))
        else:
            legend, _, expression = line[2:].partition(" = ")
            for short, long in SHORT.items():
                expression = expression.replace(short, long)
            found[-1].panels[-1].queries.append(Query(expression, legend))
    return found


def dashboard() -> dict[str, Any]:
    """The dashboard as Grafana imports it; the data source is a variable."""
    return {
        "uid": UID,
        "title": "Kafka and minibroker",
        "schemaVersion": SCHEMA_VERSION,
        "tags": ["kafka", "minibroker"],
        "timezone": "utc",
        "time": {"from": "now-30m", "to": "now"},
        "refresh": "10s",
        "graphTooltip": 1,
        "templating": {"list": variables()},
        "panels": list(panels()),
    }


def variables() -> list[dict[str, Any]]:
    return [
        {"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus"},
        {
            "name": "topic",
            "label": "Topic",
            "type": "query",
            "datasource": SOURCE,
            "query": {"query": "label_values(kafka_topic_partitions, topic)", "refId": "topic"},
            "refresh": 2,
            "multi": True,
            "includeAll": True,
            "allValue": ".*",
            "current": {"text": "All", "value": "$__all"},
        },
    ]


def panels() -> Iterator[dict[str, Any]]:
    """A heading for each row, and its panels below, three side by side."""
    number, top = 0, 0
    for row in rows():
        number += 1
        yield {"id": number, "type": "row", "title": row.title, "gridPos": position(0, top, 24, 1), "panels": []}
        top += 1
        for place, panel in enumerate(row.panels):
            number += 1
            left = place % PANELS_IN_A_ROW * PANEL_WIDTH
            yield made(panel, number, position(left, top + place // PANELS_IN_A_ROW * PANEL_HEIGHT))
        top += -(-len(row.panels) // PANELS_IN_A_ROW) * PANEL_HEIGHT


def made(panel: Panel, number: int, where: dict[str, int]) -> dict[str, Any]:
    return {
        "id": number,
        "type": "table" if panel.is_table else "timeseries",
        "title": panel.title,
        "datasource": SOURCE,
        "gridPos": where,
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        "options": {} if panel.is_table else {"legend": {"displayMode": "list", "placement": "bottom"}},
        "targets": [
            {
                "refId": chr(ord("A") + place),
                "datasource": SOURCE,
                "expr": query.expression,
                "legendFormat": query.legend,
                **({"format": "table", "instant": True} if panel.is_table else {}),
            }
            for place, query in enumerate(panel.queries)
        ],
    }


def position(x: int, y: int, w: int = PANEL_WIDTH, h: int = PANEL_HEIGHT) -> dict[str, int]:
    return {"x": x, "y": y, "w": w, "h": h}
