"""Metrics for Prometheus: names, lag, the endpoint, and a dashboard whose every query finds a series."""

from __future__ import annotations

import gzip
import json
import re
import socket
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from minibroker.metrics.catalogue import HISTOGRAM
from minibroker.metrics.dashboard import dashboard, rows
from minibroker.metrics.end_history import EndHistory
from minibroker.metrics.endpoint import Endpoint
from minibroker.metrics.exposition import collected, exposition
from minibroker.metrics.facts import ClusterFacts, PartitionFacts, facts_of
from tests.minibroker.commands import minibroker
from tests.minibroker.metric_entries import BY_NAME, ENTRIES
from tests.minibroker.queries import OF_OTHERS, OF_PROMETHEUS, selectors

KEY = ("orders", 0)


def without_series(expression: str) -> list[str]:
    """Why the catalogue has no series for a query."""
    wrong = []
    for name, labels in selectors(expression):
        entry = BY_NAME.get(name)
        known = set() if entry is None else {*entry.labels, *(["quantile"] if entry.kind == HISTOGRAM else [])}
        if entry is None:
            wrong.append(f"no metric {name}")
        elif labels - known - OF_PROMETHEUS:
            wrong.append(f"{name} has no label {labels - known - OF_PROMETHEUS}")
    return wrong


def test_the_queries_of_the_dashboard_name_metrics_and_labels_that_exist() -> None:
    expressions = [query.expression for row in rows() for panel in row.panels for query in panel.queries]

    assert {expression: why for expression in expressions if (why := without_series(expression))} == {}
    assert without_series("sum by (nothing) (kafka_brokers)") == ["kafka_brokers has no label {'nothing'}"]


@pytest.mark.parametrize("expression", OF_OTHERS)
def test_the_queries_of_other_dashboards_name_metrics_and_labels_that_exist(expression: str) -> None:
    assert selectors(expression) and without_series(expression) == []


def test_the_dashboard_is_one_that_grafana_imports() -> None:
    made = json.loads(json.dumps(dashboard()))

    panels = made["panels"]
    places = [tuple(panel["gridPos"].values()) for panel in panels]
    assert made["schemaVersion"] == 39
    assert [each["type"] for each in made["templating"]["list"]] == ["datasource", "query"]
    assert len({panel["id"] for panel in panels}) == len(panels) == len(set(places))
    assert all(
        target["datasource"]["uid"] == "${datasource}" for panel in panels for target in panel.get("targets", [])
    )
    assert all(left + width <= 24 for left, _, width, _ in places)


def test_every_metric_has_a_name_of_its_own_and_a_meaning() -> None:
    of_resources = [entry for entry in ENTRIES if "resource" in entry.labels]  # one metric, with a label for the type
    assert len({entry.prometheus for entry in of_resources}) == 3
    assert len(BY_NAME) == len(ENTRIES) - len(of_resources) + 3 > 100
    assert all(re.fullmatch(r"[a-z_0-9]+", entry.prometheus) for entry in ENTRIES)
    assert all(entry.text or entry.unit == "connections" for entry in ENTRIES)


def family(mbean_type: str, keys: str, names: str, *rows: Any, about: Any = None) -> dict[str, Any]:
    found = {"type": mbean_type, "keys": keys.split(), "names": names.split(), "rows": rows}
    return found | {"about": about or [("", "", "", "")] * len(found["names"])}


GAUGE = ("gauge", "offset", "of it", "")
QUANTILES = ("50th", "75th", "95th", "98th", "99th", "999th")
QUOTA = [("gauge", "", "", "kafka_server_quota_byte_rate"), ("gauge", "", "", "kafka_server_quota_throttle_time")]
TIMES = {"Count": 7, **{f"{name}Percentile": 0 for name in QUANTILES}}
OF_A_BROKER = [
    family("minibroker:type=Broker", "id address", "Up", [0, "host:9092", 1]),
    family("kafka.cluster:type=Partition", "topic partition", "ReplicasCount InSyncReplicasCount", ["orders", 0, 2, 1]),
    family(
        "kafka.log:type=Log", "topic partition", "LogStartOffset LogEndOffset", ["orders", 0, 3, 12], about=[GAUGE] * 2
    ),
    family(
        "minibroker:type=Partition",
        "topic partition",
        "HighWatermark Leader PreferredLeader",
        *(["orders", 0, 10, 0, 0], ["gone", 0, 1, 0, 0]),
    ),
    family("minibroker:type=Group", "group", "Members", ["billing", 2]),
    family(
        "minibroker:type=Group",
        "group topic partition",
        "CommittedOffset",
        *(["billing", "orders", 0, 4], ["billing", "gone", 0, 1], ["ahead", "orders", 0, 11]),
    ),
    family(
        "kafka.network:type=RequestMetrics",
        "request",
        "TotalTimeMs",
        ["Fetch", TIMES],
        about=[("histogram", "ms", "of a request", "")],
    ),
    family(
        "kafka.server:type=Produce",
        "user client-id",
        "byte-rate throttle-time",
        ["", "writer", 1000.5, 20],
        about=QUOTA,
    ),
]


def test_the_families_of_a_broker_become_series() -> None:
    found = collected(OF_A_BROKER, facts_of(OF_A_BROKER), lambda key, committed: 1.5 if committed == 4 else None)

    lines = exposition(found)[0].decode().splitlines()
    of_group = 'consumergroup="billing",topic="orders"'
    assert {line for line in lines if not line.startswith("#")} >= {
        "kafka_brokers 1.0",
        'kafka_broker_info{address="host:9092",id="0"} 1.0',
        'kafka_topic_partitions{topic="orders"} 1.0',
        'kafka_topic_partition_oldest_offset{partition="0",topic="orders"} 3.0',
        'kafka_topic_partition_current_offset{partition="0",topic="orders"} 10.0',
        'kafka_topic_partition_under_replicated_partition{partition="0",topic="orders"} 1.0',
        'kafka_topic_partition_leader_is_preferred{partition="0",topic="orders"} 1.0',
        'kafka_consumergroup_members{consumergroup="billing"} 2.0',
        'kafka_consumergroup_lag{consumergroup="billing",partition="0",topic="orders"} 6.0',
        f"kafka_consumergroup_lag_sum{{{of_group}}} 6.0",
        'kafka_consumergroup_lag{consumergroup="ahead",partition="0",topic="orders"} 0.0',
        'kafka_consumergroup_current_offset{consumergroup="billing",partition="0",topic="gone"} 1.0',
        'kafka_consumergroup_group_lag_seconds{group="billing",partition="0",topic="orders"} 1.5',
        'kafka_log_log_logendoffset{partition="0",topic="orders"} 12.0',
        'kafka_network_requestmetrics_totaltimems{quantile="0.999",request="Fetch"} 0.0',
        'kafka_network_requestmetrics_totaltimems_count{request="Fetch"} 7.0',
        'kafka_server_quota_byte_rate{clientId="writer",resource="Produce",user=""} 1000.5',
        'kafka_server_quota_throttle_time{clientId="writer",resource="Produce",user=""} 20.0',
    }
    assert not [
        line for line in lines if 'kafka_consumergroup_lag{consumergroup="billing",p' in line and "gone" in line
    ]


def test_names_that_look_like_the_format_are_quoted() -> None:
    facts = ClusterFacts(committed={'a"\n} 1\nb': {KEY: 1}}, partitions={KEY: PartitionFacts(0, 0, 1, 1, 0, 3)})

    lines = exposition(collected([], facts, lambda key, committed: None))[0].decode().splitlines()

    assert 'kafka_consumergroup_lag{consumergroup="a\\"\\n} 1\\nb",partition="0",topic="orders"} 2.0' in lines


@pytest.mark.parametrize(
    ("points", "committed", "seconds"),
    [
        ([], 5, None),
        ([(10, 0)], 10, 0.0),
        ([(10, 0)], 12, 0.0),
        ([(10, 0)], 9, 20.0),  # or longer: nothing is known of before
        ([(10, 0), (20, 10)], 15, 15.0),  # at 5 s, now it is 20 s
        ([(10, 0), (20, 10)], 10, 20.0),
        ([(10, 0), (20, 10)], 5, 25.0),  # at the speed since then
        ([(10, 0), (10, 4), (10, 8), (20, 10)], 10, 12.0),  # it stood still until 8 s
        ([(10, 0), (10, 8)], 9, 20.0),
        ([(50, 0), (10, 4), (20, 10)], 10, 16.0),  # another topic of that name
    ],
)
def test_the_lag_in_seconds_is_the_time_since_the_end_was_there(
    points: list[tuple[int, float]], committed: int, seconds: float | None
) -> None:
    history = EndHistory()
    for end, now in points:
        history.note(KEY, end, now)

    assert history.lag_seconds(KEY, committed, now=20.0) == seconds
    history.keep([])
    assert history.lag_seconds(KEY, committed, now=20.0) is None


class Scraped:
    """A scraped broker: `scrape` returns the families above, or raises."""

    error: Exception | None = None

    def scrape(self) -> Any:
        if self.error is not None:
            raise self.error
        return collected(OF_A_BROKER, facts_of(OF_A_BROKER), lambda key, committed: None)


@contextmanager
def endpoint(scraped: Any) -> Iterator[str]:
    with Endpoint(socket.create_server(("127.0.0.1", 0)), scraped) as server:
        thread = threading.Thread(target=server.serve_forever, args=[0.01])
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.socket.getsockname()[1]}"
        finally:
            server.shutdown()
            thread.join()


def get(url: str, **headers: str) -> tuple[int, bytes, Any]:
    request = urllib.request.Request(url, headers={name.replace("_", "-"): value for name, value in headers.items()})
    try:
        with urllib.request.urlopen(request, timeout=10) as response:
            return response.status, response.read(), response.headers
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read(), error.headers


def test_the_endpoint_answers_scrapers_but_no_page_of_another_host() -> None:
    scraped = Scraped()
    with endpoint(scraped) as url:
        status, text, headers = get(f"{url}/metrics")
        packed = get(f"{url}/metrics", Accept_Encoding="gzip")
        newest = get(f"{url}/metrics", Accept="application/openmetrics-text; version=1.0.0")
        others = [
            get(url + path, **more)[0]
            for path, more in (("/x", {}), ("/healthz", {}), ("/metrics", {"Host": "evil.example"}))
        ]
        scraped.error = EOFError("the broker\nhas ended")
        failed = get(f"{url}/metrics")

    assert status == 200 and b"kafka_brokers 1.0\n" in text
    assert headers["Content-Type"].startswith("text/plain") and headers["X-Content-Type-Options"] == "nosniff"
    assert packed[2]["Content-Encoding"] == "gzip" and gzip.decompress(packed[1]) == text
    assert newest[1].endswith(b"# EOF\n") and newest[2]["Content-Type"].startswith("application/openmetrics-text")
    assert others == [404, 200, 400]
    assert failed[:2] == (503, b"the broker has ended\n")


@pytest.mark.integration
@pytest.mark.slow
def test_a_wrong_address_is_one_line() -> None:
    refused = minibroker("metrics", "serve", "--listen", "nowhere")
    unreachable = minibroker("metrics", "show", "-b", "127.0.0.1:1")

    assert (refused.status, "'nowhere' is not HOST:PORT" in refused.complaint) == (2, True)
    assert (unreachable.status, "no broker at 127.0.0.1:1" in unreachable.complaint) == (1, True)
