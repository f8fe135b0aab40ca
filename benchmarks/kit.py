"""The times of tests with a broker of their own: `python -m benchmarks.kit` prints

- `minibroker.msk()`: from `create_cluster` to the first record that is read. The goal is 1 s;
- a test by `minibroker.spark.stream_test`: the first of a session, and the later ones. The goal is 3 s for these.

It needs the extras `spark` and `msk`. The machine should have nothing else to do.
"""

from __future__ import annotations

import json
import os
import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import boto3
from confluent_kafka import Producer
from moto import mock_aws

import minibroker
from minibroker.spark import Action, add, check, check_each_record, check_new, kill_broker, restart_query, stream_test
from minibroker.spark_jobs.session import spark_session

ROUNDS = 5
CLUSTERS = {  # brokers, and whether clients log in
    "msk, 1 broker, plaintext": (1, False),
    "msk, 1 broker, SCRAM over TLS": (1, True),
    "msk, 3 brokers, plaintext": (3, False),
}
SCRAM = {"ClientAuthentication": {"Sasl": {"Scram": {"Enabled": True}}}}
PLAINTEXT = {"EncryptionInfo": {"EncryptionInTransit": {"ClientBroker": "PLAINTEXT"}}}
LOGIN = {"username": "alice", "password": "secret"}
STREAMS: dict[str, list[Action]] = {
    "stream_test, each record": [add("tea", "cake"), check("tea", "cake"), check_each_record()],
    "stream_test, the query starts again": [add("tea"), check("tea"), restart_query(), add("cake"), check_new("cake")],
    "stream_test, the broker dies": [add("tea"), kill_broker(), check("tea"), add("cake"), check_new("cake")],
}


def show(what: str, run: Callable[[], float]) -> None:
    """Print what a first run takes, and the median and the worst of the others."""
    first, *later = [run() for _ in range(1 + ROUNDS)]
    middle, worst = statistics.median(later), max(later)
    print(f"{what:36} first {first:5.2f} s, later {middle:5.2f} s, at most {worst:5.2f} s", flush=True)


def first_record(brokers: int, *, logs_in: bool) -> float:
    """Create a cluster, write a record to it and read it; return the seconds that took."""
    with mock_aws(), minibroker.msk() as msk:
        kafka, secrets = (boto3.client(name, region_name="eu-central-1") for name in ("kafka", "secretsmanager"))
        secret = secrets.create_secret(Name="AmazonMSK_alice", SecretString=json.dumps(LOGIN))["ARN"]
        began = time.perf_counter()
        arn = kafka.create_cluster(
            ClusterName="orders",
            KafkaVersion="3.9.x",
            NumberOfBrokerNodes=brokers,
            BrokerNodeGroupInfo={"InstanceType": "kafka.t3.small", "ClientSubnets": ["subnet-1"]},
            **(SCRAM if logs_in else PLAINTEXT),
        )["ClusterArn"]
        if logs_in:
            kafka.batch_associate_scram_secret(ClusterArn=arn, SecretArnList=[secret])
        settings = msk.client_settings(arn, "confluent-kafka", **({"user": "alice"} if logs_in else {}))
        producer = Producer(settings | {"log_level": 0})
        producer.produce("orders", b"tea")
        assert producer.flush(30) == 0
        assert [record.value for record in msk.broker(arn).records("orders", n=1)] == [b"tea"]
        return time.perf_counter() - began


def values(records: Any) -> Any:
    return records.selectExpr("CAST(value AS STRING) AS item", "topic", "partition", "offset")


def one_test(actions: list[Action], spark: Any) -> float:
    """Run a test of a stream; return the seconds that it took."""
    began = time.perf_counter()
    stream_test(values, *actions, spark=spark)
    return time.perf_counter() - began


def main() -> None:
    os.environ |= {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test"}
    print(f"load {os.getloadavg()[0]:.1f}")
    for name, (brokers, logs_in) in CLUSTERS.items():
        show(name, partial(first_record, brokers, logs_in=logs_in))
    spark = spark_session("kit", master="local[2]")
    try:
        for name, actions in STREAMS.items():
            show(name, partial(one_test, actions, spark))
    finally:
        spark.stop()


if __name__ == "__main__":
    main()
