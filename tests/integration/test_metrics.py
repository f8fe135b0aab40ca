"""The metrics of real processes: `serve --metrics`, `minibroker metrics` on any Kafka, and Prometheus itself."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from benchmarks.apache_kafka import ApacheKafka
from benchmarks.processes import ServerProcess, free_port
from minibroker import Broker, Cluster
from minibroker.metrics.catalogue import HISTOGRAM, entries_of_cluster
from minibroker.metrics.dashboard import rows
from tests.integration.brokers import Minibroker
from tests.integration.members import wait_until, wait_until_gone
from tests.minibroker.commands import minibroker
from tests.minibroker.metric_entries import BY_NAME, ENTRIES
from tests.minibroker.queries import OF_OTHERS, selectors

# No quota of the broker's time is set; an old kernel does not tell the descriptors.
MAY_BE_MISSING = {"process_open_fds", "kafka_server_quota_request_time"}
PROMETHEUS_SECONDS = 60

Scraped = dict[str, list[tuple[dict[str, str], float]]]  # labels and value of each series, by metric


def metrics_url(broker: ServerProcess) -> str:
    found = re.search(r"metrics are at (http://\S+)", broker.log_text)
    assert found is not None, broker.log_text
    return found[1]


def scraped(text: str) -> Scraped:
    found: Scraped = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found.setdefault(sample.name, []).append((sample.labels, sample.value))
    return found


def scrape(url: str) -> Scraped:
    with urllib.request.urlopen(url, timeout=30) as response:
        return scraped(response.read().decode())


def exercise(bootstrap: str) -> None:
    """Write, read as a group, and commit; read as another client, and do not commit."""
    assert minibroker("topics", "create", "orders", "-b", bootstrap, "--if-not-exists").status == 0
    from confluent_kafka import Consumer, Producer, TopicPartition

    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(5):
        producer.produce("orders", f"{number}")
    producer.flush(30)
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "billing", "auto.offset.reset": "earliest"})
    consumer.subscribe(["orders"])
    deadline = time.monotonic() + 30
    while len(consumer.consume(3, timeout=0.2)) < 3:
        assert time.monotonic() < deadline, "nothing was consumed"
    consumer.commit(asynchronous=False)
    consumer.close()
    looking = {"client.id": "looking", "group.id": "none", "enable.auto.commit": False}
    consumer = Consumer({"bootstrap.servers": bootstrap, **looking})
    consumer.assign([TopicPartition("orders", 0, 0)])
    assert len(consumer.consume(5, timeout=30)) == 5
    consumer.close()


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Minibroker]:
    broker = Minibroker(
        tmp_path_factory.mktemp("metrics"),
        "--metrics",
        "127.0.0.1:0",
        settings={
            "group.initial.rebalance.delay.ms": 0,
            "offsets.topic.num.partitions": 1,
            "log.flush.interval.messages": 1,
            "quota.producer.default": 1 << 40,
            "quota.consumer.default": 1 << 40,
        },
    )
    try:
        broker.wait_until_ready()
        exercise(broker.bootstrap)
        yield broker
    finally:
        broker.kill()


@pytest.fixture(scope="module")
def found(served: Minibroker) -> Scraped:
    """All metrics, with those of an earlier scrape."""
    scrape(metrics_url(served))
    return scrape(metrics_url(served))


def test_every_metric_of_the_reference_is_there_with_its_labels(found: Scraped) -> None:
    wrong = []
    for entry in ENTRIES:
        series = found.get(entry.prometheus, [])
        labels = {*entry.labels, *(["quantile"] if entry.kind == HISTOGRAM else [])}
        if not any(set(each) == labels for each, _ in series) and entry.prometheus not in MAY_BE_MISSING:
            wrong.append(f"{entry.prometheus}{sorted(labels)}: {[sorted(each) for each, _ in series[:2]]}")
    assert not wrong, wrong
    unknown = {name.removesuffix("_count") for name in found} - BY_NAME.keys()
    assert unknown - {"kafka_server_socket_server_metrics_connection"} == set()


def test_the_figures_count_records_bytes_and_requests(served: Minibroker, found: Scraped) -> None:
    def value(name: str, **labels: str) -> float:
        return next(value for each, value in found[name] if each == labels)

    assert value("kafka_server_brokertopicmetrics_messagesin_total", topic="orders") == 5
    assert value("kafka_topic_partition_current_offset", topic="orders", partition="0") == 5
    lag = value("kafka_consumergroup_lag", consumergroup="billing", topic="orders", partition="0")
    assert 0 <= lag <= 2
    assert value("kafka_server_brokertopicmetrics_bytesout_total", topic="orders") > 0
    assert value("kafka_broker_info", id="0", address=served.bootstrap) == 1
    assert value("minibroker_fsync_seconds_total") > 0
    assert value("kafka_server_quota_byte_rate", resource="Fetch", user="", clientId="rdkafka") >= 0
    of = {"listener": "PLAINTEXT", "networkProcessor": "0"}
    fetched = value("kafka_server_brokertopicmetrics_bytesout_total", topic="orders")
    assert value("kafka_server_socket_server_metrics_outgoing_byte_total", **of) > fetched
    assert value("kafka_server_socket_server_metrics_incoming_byte_total", **of) > 100
    assert value("process_resident_memory_bytes") > 10_000_000


@pytest.mark.parametrize(
    "expression", [*OF_OTHERS, *(q.expression for row in rows() for p in row.panels for q in p.queries)]
)
def test_the_queries_of_dashboards_find_series(found: Scraped, expression: str) -> None:
    for name, labels in selectors(expression):
        assert any(labels - {"instance", "job"} <= set(each) for each, _ in found[name]), name


@pytest.mark.parametrize("end", [ServerProcess.terminate, ServerProcess.kill])
def test_nothing_is_left_of_the_endpoint_however_the_broker_ends(
    tmp_path: Path, end: Callable[[ServerProcess], object]
) -> None:
    port = free_port()
    broker = Minibroker(tmp_path, "--metrics", f"127.0.0.1:{port}").wait_until_ready()
    try:
        scrape(f"http://127.0.0.1:{port}/metrics")
        child = child_of(broker.pid)
    finally:
        end(broker)

    wait_until_gone(child, seconds=10)
    again = Minibroker(tmp_path, "--metrics", f"127.0.0.1:{port}").wait_until_ready()
    again.kill()


def child_of(pid: int) -> int:
    """The only child of a broker, which is ready before it starts that."""
    children = Path(f"/proc/{pid}/task/{pid}/children")
    wait_until(lambda: children.read_text() != "", "the broker's child")
    (child,) = map(int, children.read_text().split())
    return child


def test_the_broker_outlives_the_endpoint(tmp_path: Path) -> None:
    broker = Minibroker(tmp_path, "--metrics", "127.0.0.1:0").wait_until_ready()
    try:
        os.kill(child_of(broker.pid), 9)
        broker.wait_for_log("the process that serves metrics has ended")
        exercise(broker.bootstrap)
        assert broker.terminate() == 0
    finally:
        broker.kill()


def test_an_address_in_use_is_one_line(served: Minibroker, tmp_path: Path) -> None:
    address = metrics_url(served).removeprefix("http://").removesuffix("/metrics")

    done = minibroker("serve", "--data-dir", tmp_path, "--listen", "127.0.0.1:0", "--metrics", address)

    assert (done.status, "choose another address with --metrics HOST:PORT" in done.complaint) == (1, True)


def test_a_secured_broker_has_its_metrics_by_credentials_or_from_python(tmp_path: Path) -> None:
    with Broker(security="SASL_SSL", users=["alice"], metrics=True) as broker:
        broker.produce("orders", [b"a", b"b"])
        properties = tmp_path / "client.properties"
        properties.write_text("".join(f"{key}={value}\n" for key, value in broker.client_settings("java").items()))
        shown = minibroker("metrics", "show", "--command-config", properties, "-b", broker.bootstrap_servers)

        assert broker.metrics()["kafka.server:type=BrokerTopicMetrics,name=MessagesInPerSec,topic=orders"] == 2
        assert shown.status == 0, shown.err
        assert 'kafka_topic_partition_current_offset{topic="orders",partition="0"} 2.0' in shown.out.replace(
            'partition="0",topic="orders"', 'topic="orders",partition="0"'
        )


@pytest.mark.nightly  # by day test_any_kafka.py has the metrics of 4.4.0
def test_apache_kafka_has_the_metrics_of_any_cluster(jars: Path, tmp_path: Path) -> None:
    with ApacheKafka(jars, tmp_path, heap="512m") as kafka:
        exercise(kafka.bootstrap)
        shown = minibroker("metrics", "show", "-b", kafka.bootstrap)

    assert shown.status == 0, shown.err
    found = scraped(shown.out)
    names = {entry.prometheus for entry in entries_of_cluster()} - {"kafka_consumergroup_group_lag_seconds"}
    assert set(found) - {"kafka_consumergroup_group_lag_seconds"} == names
    assert ({"topic": "orders", "partition": "0"}, 5.0) in found["kafka_topic_partition_current_offset"]
    assert [each for each, _ in found["kafka_consumergroup_lag"]] == [
        {"consumergroup": "billing", "topic": "orders", "partition": "0"}
    ]


@pytest.mark.nightly
def test_prometheus_answers_every_query_of_the_dashboard(served: Minibroker, tmp_path: Path) -> None:
    program = shutil.which("prometheus") or os.environ.get("MINIBROKER_TEST_PROMETHEUS")
    if program is None:
        pytest.skip("needs Prometheus (Debian: apt install prometheus, or name it in MINIBROKER_TEST_PROMETHEUS)")
    target = metrics_url(served).removeprefix("http://").removesuffix("/metrics")
    (tmp_path / "prometheus.yml").write_text(
        f"scrape_configs: [{{job_name: kafka, scrape_interval: 1s, static_configs: [{{targets: ['{target}']}}]}}]\n"
    )
    port = free_port()
    command = [program, f"--config.file={tmp_path}/prometheus.yml", f"--storage.tsdb.path={tmp_path}/data"]
    prometheus = subprocess.Popen(
        [*command, f"--web.listen-address=127.0.0.1:{port}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        base = f"http://127.0.0.1:{port}/api/v1/query?"
        expressions = [q.expression for row in rows() for panel in row.panels for q in panel.queries] + OF_OTHERS
        wanted = [concrete(expression) for expression in expressions]
        deadline = time.monotonic() + PROMETHEUS_SECONDS
        missing = wanted
        while missing and time.monotonic() < deadline:
            missing = [each for each in missing if not answer(base + urllib.parse.urlencode({"query": each}))]
            time.sleep(0.2)  # it scrapes by a clock of its own
        assert missing == []
    finally:
        prometheus.terminate()
        prometheus.wait(30)


def concrete(expression: str) -> str:
    """The query with Grafana's variables replaced."""
    values = {
        "$__rate_interval": "1m",
        "$topic": ".*",
        "$kafka_topic": ".*",
        '="$instance"': '=~".*"',
        "$instance": ".*",
    }
    for variable, value in values.items():
        expression = expression.replace(variable, value)
    return expression


def answer(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=10) as response:
            return bool(json.load(response)["data"]["result"])
    except OSError:
        return False


OF_CLUSTER = {
    "controllers": "kafka.controller:type=KafkaController,name=ActiveControllerCount",
    "topics": "kafka.controller:type=KafkaController,name=GlobalTopicCount",
    "partitions": "kafka.controller:type=KafkaController,name=GlobalPartitionCount",
    "offline": "kafka.controller:type=KafkaController,name=OfflinePartitionsCount",
    "imbalanced": "kafka.controller:type=KafkaController,name=PreferredReplicaImbalanceCount",
    "unclean": "kafka.controller:type=ControllerStats,name=UncleanLeaderElectionsPerSec",
    "led": "kafka.server:type=ReplicaManager,name=LeaderCount",
    "replicas": "kafka.server:type=ReplicaManager,name=PartitionCount",
    "under-replicated": "kafka.server:type=ReplicaManager,name=UnderReplicatedPartitions",
}


def test_a_cluster_has_the_sums_of_apache_kafka_also_over_a_fail_over() -> None:
    """As three brokers of Apache Kafka 2.0.1 showed them by JMX on 2026-11-28, but for the unclean election."""
    with Cluster(brokers=3, metrics=True, settings={"auto.leader.rebalance.enable": "false"}) as cluster:

        def sums(*broker_ids: int) -> dict[str, object]:
            of_each = [cluster.broker(each).metrics() for each in broker_ids]
            return {name: sum(metrics[mbean] for metrics in of_each) for name, mbean in OF_CLUSTER.items()}  # type: ignore[misc]

        def await_sums(*broker_ids: int, **expected: int) -> None:
            whole = {"controllers": 1, "topics": 2, "partitions": 4, "offline": 0, "imbalanced": 0, "unclean": 0}
            whole |= {"led": 4, "replicas": 10, "under-replicated": 0} | {
                name.replace("_", "-"): value for name, value in expected.items()
            }
            wait_until(lambda: sums(*broker_ids) == whole, f"the sums {whole}", seconds=20)

        cluster.create_topic("orders", partitions=3)
        cluster.create_topic("single", replication_factor=1)
        lonely = cluster.leader_of("single")
        if lonely == cluster.controller:
            cluster.move_controller()
        await_sums(1, 2, 3)

        cluster.kill(lonely)
        first, second = sorted({1, 2, 3} - {lonely}, key=lambda each: each != cluster.controller)
        await_sums(first, second, offline=1, imbalanced=2, led=3, replicas=6, under_replicated=3)
        cluster.kill(first)
        await_sums(second, offline=1, imbalanced=3, led=3, replicas=3, under_replicated=3)
        cluster.start()
        await_sums(1, 2, 3, imbalanced=2)

        led_by_second = next(each for each in range(3) if cluster.leader_of("orders", each) == second)
        cluster.shrink_isr("orders", led_by_second, lonely)
        cluster.unclean_election("orders", led_by_second, lonely)
        wait_until(lambda: sums(1, 2, 3)["unclean"] == 1, "an unclean election")
