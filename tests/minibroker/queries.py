"""Queries of dashboards for Prometheus, and the metrics and labels that they name."""

from __future__ import annotations

import re

# The queries of Grafana's dashboard 7589 (Kafka Exporter Overview), and of Strimzi's for the JMX exporter as far as
# they are of a broker and not of its JVM.
OF_OTHERS = """
sum(rate(kafka_topic_partition_current_offset{instance=~'$instance', topic=~"$topic"}[1m])) by (topic)
sum(delta(kafka_topic_partition_current_offset{instance=~'$instance', topic=~"$topic"}[5m])/5) by (topic)
sum(delta(kafka_consumergroup_current_offset{instance=~'$instance',topic=~"$topic"}[5m])/5) by (consumergroup, topic)
sum(kafka_consumergroup_lag{instance="$instance",topic=~"$topic"}) by (consumergroup, topic)
sum by(topic) (kafka_topic_partitions{instance=~'$instance',topic=~"$topic"})
count(kafka_server_replicamanager_leadercount)
sum(kafka_controller_kafkacontroller_activecontrollercount)
sum(irate(kafka_controller_controllerstats_uncleanleaderelections_total[5m]))
sum(kafka_server_replicamanager_partitioncount)
sum(kafka_server_replicamanager_underreplicatedpartitions)
sum(kafka_cluster_partition_atminisr)
sum(kafka_cluster_partition_underminisr)
sum(kafka_controller_kafkacontroller_offlinepartitionscount)
sum(irate(kafka_server_brokertopicmetrics_bytesin_total{topic=~"$kafka_topic",topic!=""}[5m]))
sum(irate(kafka_server_brokertopicmetrics_bytesout_total{topic=~"$kafka_topic",topic!=""}[5m]))
sum(irate(kafka_server_brokertopicmetrics_messagesin_total{topic=~"$kafka_topic",topic!=""}[5m]))
sum(irate(kafka_server_brokertopicmetrics_totalproducerequests_total{topic=~"$kafka_topic",topic!=""}[5m]))
sum(irate(kafka_server_brokertopicmetrics_totalfetchrequests_total{topic=~"$kafka_topic",topic!=""}[5m]))
sum(irate(kafka_server_brokertopicmetrics_failedfetchrequests_total{topic=~"$kafka_topic",topic!=""}[5m]))
sum(irate(kafka_network_requestmetrics_requests_total{request=~"Produce|FetchConsumer"}[5m])) by (request)
kafka_network_requestmetrics_totaltimems{request="FetchConsumer",quantile="0.99"}
sum(kafka_server_socket_server_metrics_connection_count) by (listener)
sum(kafka_server_socket_server_metrics_incoming_byte_rate) by (listener)
sum(kafka_server_quota_byte_rate) by (resource, clientId)
sum(kafka_log_log_size) by (topic)
""".strip().splitlines()
WORDS = {"sum", "by", "rate", "irate", "delta", "max", "count", "topk", "vector", "or"}
OF_PROMETHEUS = {"instance", "job"}


def selectors(expression: str) -> list[tuple[str, set[str]]]:
    """The metrics of a query, each with the labels that it is asked by; those of a grouping are with all of them."""
    groups = {label for group in re.findall(r"by\s*\(([^)]*)\)", expression) for label in re.findall(r"\w+", group)}
    plain = re.sub(r"by\s*\([^)]*\)|\[[^]]*\]", " ", expression)
    found = []
    for name, matchers in re.findall(r"([a-z_][a-z_0-9]*)\s*(\{[^}]*\})?", re.sub(r"\"[^\"]*\"|'[^']*'", "''", plain)):
        if name not in WORDS:
            found.append((name, set(re.findall(r"(\w+)\s*(?:=~|!=|=)", matchers)) | groups))
    return found
