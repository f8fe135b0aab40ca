"""Amazon MSK in a test: boto3's client `kafka` makes real brokers, beside moto's `mock_aws`.

moto keeps the clusters. botocore's events, which every client emits, tell what is asked (`before-parameter-build`), let
brokers answer what moto does not know (`before-call`), and complete its answers (`after-call`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import ContextDecorator
from typing import Any

from minibroker.aws.clusters import Asked, Brokers
from minibroker.cluster import Cluster
from minibroker.errors import BrokerError
from minibroker.process import Broker

SERVICE = "kafka"
SECRET_PREFIX = "AmazonMSK_"
NEEDED = "minibroker.msk() needs moto and boto3; in the clone of minibroker: pip install -e '.[msk]'"
OUTSIDE = "minibroker.msk() works inside moto's mock: with mock_aws(), minibroker.msk():"
KEPT = "minibroker"  # in the context of a call
NOT_FOUND, BAD_REQUEST = (404, "NotFoundException"), (400, "BadRequestException")
CONFLICT = (409, "ConflictException")
Answer = tuple[Any, dict[str, Any]]  # of botocore: the HTTP response, and what it has parsed
active: list[Msk] = []  # the innermost last


def msk(*, brokers: int | None = None) -> Msk:
    """Real brokers behind boto3's client `kafka`: `with mock_aws(), minibroker.msk():`, or a decorator below that.

    `brokers`: how many each cluster has; None for as many as it asks for, up to three.
    """
    return Msk(brokers)


class Msk(ContextDecorator):
    """While it is entered, each cluster that boto3's client `kafka` creates has brokers on this machine."""

    def __init__(self, brokers: int | None) -> None:
        self._brokers = brokers
        self._clusters: dict[str, Brokers] = {}  # by ARN

    def __enter__(self) -> Msk:
        """Raises BrokerError without moto and boto3, and outside of `mock_aws`, where AWS itself would be asked."""
        try:
            from moto.core.models import botocore_stubber
        except ImportError:
            raise BrokerError(NEEDED) from None
        if not botocore_stubber.enabled:
            raise BrokerError(OUTSIDE)
        register()
        active.append(self)
        return self

    def __exit__(self, *_: object) -> None:
        active.remove(self)
        for brokers in self._clusters.values():
            brokers.broker.close()
        self._clusters.clear()

    def broker(self, cluster_arn: str) -> Broker | Cluster:
        """The broker or the brokers of a cluster. Raises KeyError."""
        return self._clusters[cluster_arn].broker

    def client_settings(self, cluster_arn: str, library: str, *, user: str | None = None) -> Any:
        """The settings of a client library with the addresses, the certificate to trust, and the login of a user."""
        return self.broker(cluster_arn).client_settings(library, user=user)

    # -- calls ----------------------------------------------------------------------------------------------------

    def before(self, operation: str, asked: Mapping[str, Any], context: dict[str, Any]) -> Answer | None:
        """The answer to a call in place of moto's; None for moto's."""
        if operation in ("CreateCluster", "CreateClusterV2"):
            if self._has(asked["ClusterName"], context["client_region"]):
                return refused(CONFLICT, "A resource with this name already exists.")
            try:
                context[KEPT] = Brokers(Asked.of(asked), self._brokers)
            except BrokerError as error:
                return refused(BAD_REQUEST, str(error))
        if operation in OF_A_CLUSTER and asked["ClusterArn"] not in self._clusters:
            return refused(NOT_FOUND, f"The cluster {asked['ClusterArn']} does not exist.")
        answer: Callable[[Brokers, Mapping[str, Any]], dict[str, Any]] | None = ANSWERED_HERE.get(operation)
        return None if answer is None else answered(answer(self._clusters[asked["ClusterArn"]], asked))

    def _has(self, name: str, region: str) -> bool:
        return any(each.name == name and arn.split(":")[3] == region for arn, each in self._clusters.items())

    def after(self, operation: str, context: dict[str, Any], status: int, parsed: dict[str, Any]) -> None:
        """Complete moto's answer: brokers run as soon as a cluster is created."""
        brokers = context.get(KEPT)
        if isinstance(brokers, Brokers):
            if status < 300:
                self._clusters[parsed["ClusterArn"]] = brokers
            else:
                brokers.broker.close()
        elif operation == "DeleteCluster" and status < 300:
            parsed["State"] = "DELETING"
            self._clusters.pop(parsed["ClusterArn"]).broker.close()
        for info in (parsed.get("ClusterInfo"), *parsed.get("ClusterInfoList", ())):
            if info and info.get("ClusterArn") in self._clusters:
                info["State"] = "ACTIVE"


def bootstrap(brokers: Brokers, asked: Mapping[str, Any]) -> dict[str, Any]:
    return brokers.bootstrap


def associate(brokers: Brokers, asked: Mapping[str, Any]) -> dict[str, Any]:
    return of_secrets(asked, lambda arn: associate_one(brokers, arn))


def disassociate(brokers: Brokers, asked: Mapping[str, Any]) -> dict[str, Any]:
    return of_secrets(asked, brokers.disassociate)


def list_secrets(brokers: Brokers, asked: Mapping[str, Any]) -> dict[str, Any]:
    return {"SecretArnList": list(brokers.secrets)}


def of_secrets(asked: Mapping[str, Any], do: Callable[[str], None]) -> dict[str, Any]:
    """Do something for each secret; show those for which it cannot be done."""
    unprocessed = []
    for arn in asked["SecretArnList"]:
        try:
            do(arn)
        except (BrokerError, KeyError, ValueError) as error:
            message = str(error) if isinstance(error, BrokerError) else f"{arn} is not associated with the cluster"
            unprocessed.append({"SecretArn": arn, "ErrorCode": "InvalidSecret", "ErrorMessage": message})
    return {"ClusterArn": asked["ClusterArn"], "UnprocessedScramSecrets": unprocessed}


def associate_one(brokers: Brokers, arn: str) -> None:
    """Let the user of a secret of the mocked Secrets Manager log in. Raises BrokerError."""
    import boto3
    from botocore.exceptions import ClientError

    if not brokers.has_users:
        raise BrokerError("the cluster has no SASL/SCRAM; ask for ClientAuthentication={'Sasl': {'Scram': ...}}")
    *_, region, _, _, name = arn.split(":")
    if not name.startswith(SECRET_PREFIX):
        raise BrokerError(f"the name of the secret {name} does not begin with {SECRET_PREFIX}")
    try:
        secret = boto3.client("secretsmanager", region_name=region).get_secret_value(SecretId=arn)
        login = json.loads(secret["SecretString"])
        brokers.associate(arn, login["username"], login["password"])
    except (ClientError, KeyError, TypeError, ValueError) as error:
        raise BrokerError(f"the secret {name} is not a username and a password: {error!r}") from error


ANSWERED_HERE = {
    "GetBootstrapBrokers": bootstrap,
    "BatchAssociateScramSecret": associate,
    "BatchDisassociateScramSecret": disassociate,
    "ListScramSecrets": list_secrets,
}
OF_A_CLUSTER = {*ANSWERED_HERE, "DescribeCluster", "DescribeClusterV2", "DeleteCluster"}


# -- botocore's events: handlers stay with the clients that were made meanwhile, and do nothing afterwards ------------


def register() -> None:
    """Let clients that are made from now on have the handlers, also those of boto3's default session."""
    import boto3
    from botocore.handlers import BUILTIN_HANDLERS

    for event, handler in HANDLERS.items():
        if (event, handler) not in BUILTIN_HANDLERS:
            BUILTIN_HANDLERS.append((event, handler))
        if boto3.DEFAULT_SESSION is not None:
            boto3.DEFAULT_SESSION.events.register(event, handler, unique_id=event)


def on_parameters(params: dict[str, Any], context: dict[str, Any], **_: Any) -> None:
    context[KEPT] = params


def on_call(model: Any, context: dict[str, Any], **_: Any) -> Answer | None:
    return active[-1].before(model.name, context.pop(KEPT), context) if active else None


def on_answer(http_response: Any, parsed: dict[str, Any], model: Any, context: dict[str, Any], **_: Any) -> None:
    if active:
        active[-1].after(model.name, context, http_response.status_code, parsed)


HANDLERS: dict[str, Callable[..., Any]] = {
    f"before-parameter-build.{SERVICE}": on_parameters,
    f"before-call.{SERVICE}": on_call,
    f"after-call.{SERVICE}": on_answer,
}


def answered(parsed: dict[str, Any], status: int = 200) -> Answer:
    from botocore.awsrequest import AWSResponse

    parsed["ResponseMetadata"] = {"HTTPStatusCode": status, "HTTPHeaders": {}, "RetryAttempts": 0}
    return AWSResponse("", status, {}, None), parsed


def refused(error: tuple[int, str], message: str) -> Answer:
    status, code = error
    return answered({"Error": {"Code": code, "Message": message}}, status)
