"""boto3's client `kafka` has real brokers behind: `with mock_aws(), minibroker.msk():`."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import boto3
import confluent_kafka
import pytest
from botocore.exceptions import ClientError
from moto import mock_aws

import minibroker
from minibroker import BrokerError
from minibroker.aws.msk import Msk
from minibroker.cluster import Cluster
from minibroker.process import Broker

pytestmark = [pytest.mark.integration, pytest.mark.slow]
REGION = "eu-central-1"
NODES = {"InstanceType": "kafka.t3.small", "ClientSubnets": ["subnet-1"]}
SCRAM = {"Sasl": {"Scram": {"Enabled": True}}}
OPEN = {"EncryptionInTransit": {"ClientBroker": "PLAINTEXT"}}
WAIT_SECONDS = 30.0


@pytest.fixture
def msk() -> Iterator[Msk]:
    with mock_aws(), minibroker.msk() as made:
        yield made


@pytest.fixture
def kafka(msk: Msk) -> Any:
    return boto3.client("kafka", region_name=REGION)


def created(kafka: Any, *, brokers: int = 1, version: str = "3.9.x", **more: Any) -> str:
    made = kafka.create_cluster(
        ClusterName="orders", BrokerNodeGroupInfo=NODES, KafkaVersion=version, NumberOfBrokerNodes=brokers, **more
    )
    assert made["ClusterName"] == "orders"
    return str(made["ClusterArn"])


def written(settings: dict[str, Any], value: bytes) -> None:
    """Write a record; fail unless the broker has it."""
    errors: list[Any] = []
    producer = confluent_kafka.Producer(settings)
    producer.produce("orders", value, on_delivery=lambda error, _: errors.append(error))
    producer.flush(WAIT_SECONDS)
    assert errors == [None]


def test_a_cluster_has_a_broker_until_it_is_deleted(msk: Msk, kafka: Any) -> None:
    arn = created(kafka, EncryptionInfo=OPEN)

    assert kafka.describe_cluster(ClusterArn=arn)["ClusterInfo"]["State"] == "ACTIVE"
    assert [each["State"] for each in kafka.list_clusters()["ClusterInfoList"]] == ["ACTIVE"]
    servers = kafka.get_bootstrap_brokers(ClusterArn=arn)["BootstrapBrokerString"]
    written({"bootstrap.servers": servers}, b"tea")
    broker = msk.broker(arn)
    assert isinstance(broker, Broker)
    assert [record.value for record in broker.records("orders")] == [b"tea"]

    assert kafka.delete_cluster(ClusterArn=arn)["State"] == "DELETING"
    assert not broker.is_running
    with pytest.raises(kafka.exceptions.NotFoundException):
        kafka.get_bootstrap_brokers(ClusterArn=arn)


def test_version_2_of_the_call_asks_for_three_brokers(msk: Msk, kafka: Any) -> None:
    provisioned = {
        "BrokerNodeGroupInfo": NODES,
        "KafkaVersion": "2.8.1",
        "NumberOfBrokerNodes": 6,
        "EncryptionInfo": OPEN,
    }
    arn = kafka.create_cluster_v2(ClusterName="orders", Provisioned=provisioned)["ClusterArn"]

    assert kafka.describe_cluster_v2(ClusterArn=arn)["ClusterInfo"]["State"] == "ACTIVE"
    assert isinstance(msk.broker(arn), Cluster)
    servers = kafka.get_bootstrap_brokers(ClusterArn=arn)["BootstrapBrokerString"].split(",")
    assert len(servers) == 3
    written({"bootstrap.servers": servers[2]}, b"tea")


def test_tls_is_what_a_cluster_has_unless_it_asks(msk: Msk, kafka: Any) -> None:
    arn = created(kafka)

    servers = kafka.get_bootstrap_brokers(ClusterArn=arn)
    settings = msk.client_settings(arn, "confluent-kafka")
    assert settings["bootstrap.servers"] == servers["BootstrapBrokerStringTls"]
    assert settings["security.protocol"] == "SSL"
    written(settings, b"tea")


def test_a_user_logs_in_by_a_secret(msk: Msk, kafka: Any) -> None:
    secrets = boto3.client("secretsmanager", region_name=REGION)
    login = json.dumps({"username": "alice", "password": "wonder land"})
    secret = secrets.create_secret(Name="AmazonMSK_alice", SecretString=login)["ARN"]
    other = secrets.create_secret(Name="alice", SecretString=login)["ARN"]
    empty = secrets.create_secret(Name="AmazonMSK_nobody", SecretString="{}")["ARN"]
    arn = created(kafka, ClientAuthentication=SCRAM)

    answer = kafka.batch_associate_scram_secret(ClusterArn=arn, SecretArnList=[secret, other, empty])

    assert [each["SecretArn"] for each in answer["UnprocessedScramSecrets"]] == [other, empty]
    assert kafka.list_scram_secrets(ClusterArn=arn)["SecretArnList"] == [secret]
    settings = msk.client_settings(arn, "confluent-kafka") | {
        "bootstrap.servers": kafka.get_bootstrap_brokers(ClusterArn=arn)["BootstrapBrokerStringSaslScram"],
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "alice",
        "sasl.password": "wonder land",
    }
    written(settings, b"tea")

    again = kafka.batch_disassociate_scram_secret(ClusterArn=arn, SecretArnList=[secret, other])
    assert [each["SecretArn"] for each in again["UnprocessedScramSecrets"]] == [other]
    errors: list[Any] = []
    producer = confluent_kafka.Producer(settings | {"error_cb": errors.append})
    msk.broker(arn).wait_for(lambda: producer.poll(0.1) == 0 and errors, timeout=WAIT_SECONDS)
    assert errors[0].code() == confluent_kafka.KafkaError._AUTHENTICATION


def test_what_cannot_be_had_is_refused(msk: Msk, kafka: Any) -> None:
    with pytest.raises(ClientError, match="no release of Kafka is like"):
        created(kafka, version="0.8.2")
    with pytest.raises(ClientError, match="serverless"):
        kafka.create_cluster_v2(ClusterName="orders", Serverless={"VpcConfigs": [{"SubnetIds": ["subnet-1"]}]})
    assert kafka.list_clusters()["ClusterInfoList"] == []


def test_a_name_is_taken_in_its_region_alone(msk: Msk, kafka: Any) -> None:
    arn = created(kafka, EncryptionInfo=OPEN)
    with pytest.raises(ClientError, match="ConflictException"):
        created(kafka)

    created(boto3.client("kafka", region_name="us-east-1"), EncryptionInfo=OPEN)
    kafka.delete_cluster(ClusterArn=arn)
    created(kafka, EncryptionInfo=OPEN)


def test_without_a_mock_nothing_is_asked_of_aws() -> None:
    with pytest.raises(BrokerError, match="with mock_aws"), minibroker.msk():
        pass


def test_moto_is_loaded_only_when_it_is_asked_for() -> None:
    code = "import sys, minibroker, minibroker.broker.app; print({'moto', 'boto3', 'botocore'} & {*sys.modules})"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "set()\n"
