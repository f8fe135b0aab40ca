"""Subscriptions: the metrics that a client is to push, and when, as kafka 4.4 ClientMetricsManager. Pure."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from typing import NamedTuple

from minibroker.broker.config.client_metrics import CLIENT_METRICS_CONFIGS, INTERVAL_MS, MATCH, METRICS, is_match
from minibroker.protocol.checksums import crc32c
from minibroker.protocol.compression import Codec, decompress
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.java_hash import as_int, uuid_hash
from minibroker.protocol.primitives import topic_id_text

ALL_METRICS = "*"
DEFAULT_INTERVAL_MS = int(CLIENT_METRICS_CONFIGS[INTERVAL_MS].default)
MAX_BYTES = 1024 * 1024  # of a push, as telemetry.max.bytes of kafka
MOST_INSTANCES = 16_384
RESERVED_IDS = (bytes(16), bytes(15) + b"\x01")
MAY_ASK_AGAIN = (ErrorCode.UNKNOWN_SUBSCRIPTION_ID, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)

Configs = Mapping[str, Mapping[str, str]]  # of client metrics, by the name of the subscription


class Subscription(NamedTuple):
    """Metrics by the prefixes of their names, one `*` for all, to be pushed every `interval_ms`."""

    subscription_id: int
    interval_ms: int
    metrics: list[str]


class Push(NamedTuple):
    subscription_id: int
    is_last: bool
    codec: int
    metrics: bytes


class Instance:
    """A client as it has asked and pushed so far; times are of the wall clock, 0 for never."""

    def __init__(self, subscription: Subscription, configs: Configs) -> None:
        self.subscription = subscription
        self.configs = configs
        self._asked_ms = 0
        self._pushed_ms = 0
        self._error = ErrorCode.NONE
        self._is_ending = False

    def ask(self, now_ms: int) -> Subscription:
        """Raises KafkaError(THROTTLING_QUOTA_EXCEEDED)."""
        if now_ms - max(self._asked_ms, self._pushed_ms) >= self.subscription.interval_ms:
            self._asked_ms = now_ms
        elif self._error not in MAY_ASK_AGAIN:
            raise too_early()
        self._error = ErrorCode.NONE
        return self.subscription

    def push(self, push: Push, now_ms: int) -> None:
        """Take metrics, which nobody receives. Raises KafkaError."""
        try:
            self._check(push, now_ms)
        except KafkaError as error:
            self._error = error.code
            raise
        finally:
            self._is_ending = push.is_last
        self._error = ErrorCode.NONE

    def _check(self, push: Push, now_ms: int) -> None:
        if self._is_ending:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "the client has said that its last push was the last")
        if self._asked_ms > self._pushed_ms or now_ms - self._pushed_ms >= self.subscription.interval_ms:
            self._pushed_ms = now_ms
        elif not push.is_last:
            raise too_early()
        if push.subscription_id != self.subscription.subscription_id:
            raise KafkaError(ErrorCode.UNKNOWN_SUBSCRIPTION_ID)
        if push.codec not in list(Codec):
            raise KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
        if len(push.metrics) > MAX_BYTES:
            raise KafkaError(ErrorCode.TELEMETRY_TOO_LARGE)
        if push.metrics:
            try:
                decompress(Codec(push.codec), push.metrics, max_size=MAX_BYTES)
            except KafkaError as error:
                raise KafkaError(ErrorCode.INVALID_RECORD, str(error)) from error


def too_early() -> KafkaError:
    return KafkaError(ErrorCode.THROTTLING_QUOTA_EXCEEDED, "the interval of its subscription is not over")


class Instances:
    """The clients that have asked or pushed, up to MOST_INSTANCES; the one that was silent longest makes room."""

    def __init__(self) -> None:
        self._by_id: OrderedDict[bytes, Instance] = OrderedDict()

    def of(self, instance_id: bytes, attributes: Mapping[str, str], configs: Configs) -> Instance:
        """The client of this id, begun anew if the configs have changed since. `attributes` are by their selectors."""
        found = self._by_id.pop(instance_id, None)
        if found is None or found.configs is not configs:
            named = {"client_instance_id": topic_id_text(instance_id), **attributes}
            found = Instance(subscription_of(instance_id, named, configs), configs)
        self._by_id[instance_id] = found
        if len(self._by_id) > MOST_INSTANCES:
            self._by_id.popitem(last=False)
        return found

    def forget(self, instance_id: bytes) -> None:
        self._by_id.pop(instance_id, None)


def subscription_of(instance_id: bytes, attributes: Mapping[str, str], configs: Configs) -> Subscription:
    """All that the configs which a client matches ask for."""
    matched = [each for each in configs.values() if is_match(each.get(MATCH, ""), attributes)]
    listed = [name.strip() for each in matched for name in each.get(METRICS, "").split(",")]
    metrics = sorted({name for name in listed if name})
    if ALL_METRICS in metrics:
        metrics = [ALL_METRICS]
    interval_ms = min([DEFAULT_INTERVAL_MS, *[int(each.get(INTERVAL_MS, DEFAULT_INTERVAL_MS)) for each in matched]])
    checksum = crc32c(f"[{', '.join(metrics)}]{interval_ms}".encode(), 0)
    return Subscription(as_int(checksum ^ uuid_hash(instance_id)), interval_ms, metrics)
