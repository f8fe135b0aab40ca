"""A dashboard for Grafana: what clients do, how far groups lag, what the broker waits for, how it is.

The row of any Kafka cluster comes first; the others need minibroker.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

SCHEMA_VERSION = 39  # of Grafana 10.3 and later
UID = "minibroker"
PANEL_WIDTH, PANEL_HEIGHT = 8, 8
PANELS_IN_A_ROW = 3
SOURCE = {"type": "prometheus", "uid": "${datasource}"}
SHORT = {"[RATE]": "[$__rate_interval]", "{TOPIC}": '{topic=~"$topic"}'}  # in the queries below

# A row, a panel with its unit, its queries with their legends.
PANELS = """\
# Topics and groups, of any Kafka cluster
Records in | cps
  {{topic}} = sum by (topic) (rate(kafka_topic_partition_current_offset{TOPIC}[RATE]))
Lag | short
  {{consumergroup}}: {{topic}} = sum by (consumergroup, topic) (kafka_consumergroup_lag{TOPIC})
  {{consumergroup}}: {{topic}}, fetched = sum by (consumergroup, topic) (minibroker_consumergroup_fetch_lag{TOPIC})
Lag in seconds | s
  {{group}}: {{topic}} = max by (group, topic) (kafka_consumergroup_group_lag_seconds{TOPIC})
The ten longest lags | short | table
   = topk(10, sum by (consumergroup, topic) (kafka_consumergroup_lag))
Members of groups | short
  {{consumergroup}} = sum by (consumergroup) (kafka_consumergroup_members)
Partitions without a leader, and under-replicated | short
  without a leader = sum(kafka_topic_partitions) - (count(kafka_topic_partition_leader) or vector(0))
  under-replicated = sum(kafka_topic_partition_under_replicated_partition)
# Traffic
Bytes in | Bps
  {{topic}} = sum by (topic) (rate(kafka_server_brokertopicmetrics_bytesin_total{TOPIC}[RATE]))
Bytes out | Bps
  {{topic}} = sum by (topic) (rate(kafka_server_brokertopicmetrics_bytesout_total{TOPIC}[RATE]))
Sent without a copy, and copied | Bps
  sendfile = sum(rate(minibroker_sendfile_bytes_total[RATE]))
  copied = sum(rate(minibroker_copied_bytes_total[RATE]))
Requests | reqps
  {{request}} = sum by (request) (rate(kafka_network_requestmetrics_requests_total{request!="Fetch"}[RATE]))
Time of requests, p50 and p99 | ms
  {{request}} p50 = max by (request) (kafka_network_requestmetrics_totaltimems{quantile="0.50"})
  {{request}} p99 = max by (request) (kafka_network_requestmetrics_totaltimems{quantile="0.99"})
Errors | cps
  {{request}} {{error}} = sum by (request, error) (rate(kafka_network_requestmetrics_errors_total{error!="NONE"}[RATE]))
# Waiting
Parked now | short
  {{delayedOperation}} = sum by (delayedOperation) (kafka_server_delayedoperationpurgatory_numdelayedoperations)
Fetches woken, by case | cps
  case {{case}} = sum by (case) (rate(minibroker_fetch_wakeups_total[RATE]))
Ends of waits | cps
  {{delayedOperation}} {{ending}} = sum by (delayedOperation, ending) (rate(minibroker_delayed_operations_total[RATE]))
Handler and parked, p99 | ms
  {{request}} handler = max by (request) (kafka_network_requestmetrics_localtimems{quantile="0.99"})
  {{request}} parked = max by (request) (kafka_network_requestmetrics_remotetimems{quantile="0.99"})
Fetch sessions | short
  sessions = sum(kafka_server_fetchsessioncache_numincrementalfetchsessions)
  partitions = sum(kafka_server_fetchsessioncache_numincrementalfetchpartitionscached)
Groups by state | short
  stable = sum(kafka_coordinator_group_groupmetadatamanager_numgroupsstable)
  preparing = sum(kafka_coordinator_group_groupmetadatamanager_numgroupspreparingrebalance)
  completing = sum(kafka_coordinator_group_groupmetadatamanager_numgroupscompletingrebalance)
  empty = sum(kafka_coordinator_group_groupmetadatamanager_numgroupsempty)
# The broker
Loop busy | percentunit
  of one core = sum(rate(minibroker_loop_cpu_seconds_total[RATE]))
Memory | bytes
  resident = sum(process_resident_memory_bytes)
Connections and descriptors | short
  connections = sum(kafka_server_socket_server_metrics_connection_count)
  descriptors = sum(process_open_fds)
Size of logs | bytes
  {{topic}} = sum by (topic) (kafka_log_log_size{TOPIC})
Fsyncs | s
  seconds a second = sum(rate(minibroker_fsync_seconds_total[RATE]))
Compaction | Bps
  read = sum(rate(minibroker_compaction_read_bytes_total[RATE]))
  written = sum(rate(minibroker_compaction_written_bytes_total[RATE]))
"""


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
