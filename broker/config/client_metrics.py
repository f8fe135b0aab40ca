"""The configs of client metrics (KIP-714): which clients are to push which metrics, and how often.

As kafka 4.4 ClientMetricsConfigs. Clients push to a broker with a receiver, which this one is not: as a Kafka without
one, it keeps the configs for who describes them, and for who asks for subscriptions all the same
(`broker/wings/telemetry`). Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple

from minibroker.broker.config.settings.types import INT, InvalidValueError
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.regular_expressions import Regex, RegexError

INTERVAL_MS, MATCH, METRICS = "interval.ms", "match", "metrics"
EXPRESSIONS_KEPT = 100
LEAST_INTERVAL_MS, GREATEST_INTERVAL_MS = 100, 3_600_000
SELECTORS = {
    "client_instance_id", "client_id", "client_software_name", "client_software_version", "client_source_address",
    "client_source_port",
}  # fmt: skip


class ClientMetricsConfig(NamedTuple):
    kind: str
    default: str
    doc: str


CLIENT_METRICS_CONFIGS: Mapping[str, ClientMetricsConfig] = {
    INTERVAL_MS: ClientMetricsConfig("INT", "300000", "The time between two pushes of a client, in milliseconds."),
    MATCH: ClientMetricsConfig("LIST", "", "Patterns SELECTOR=EXPRESSION that a client matches; none: every client."),
    METRICS: ClientMetricsConfig("LIST", "", "Prefixes of the names of metrics; `*`: all."),
}


def check(configs: Mapping[str, str]) -> None:
    """Raises KafkaError for configs that client metrics cannot have."""
    for name, text in configs.items():
        if name not in CLIENT_METRICS_CONFIGS:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown client metrics configuration: {name}")
        if name == INTERVAL_MS:
            check_interval(text)
        elif text and not all(each.strip() for each in text.split(",")):
            raise invalid(f"Configuration '{name}' values must not be empty.")
    for pattern in filter(None, configs.get(MATCH, "").split(",")):
        check_pattern(pattern.strip())


def check_interval(text: str) -> None:
    try:
        interval_ms = INT.parse(text)
    except InvalidValueError as error:
        raise invalid(f"Invalid value {text} for configuration {INTERVAL_MS}: {error}") from None
    if not LEAST_INTERVAL_MS <= interval_ms <= GREATEST_INTERVAL_MS:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"Invalid value {text} for {INTERVAL_MS}, interval must be between {LEAST_INTERVAL_MS} and "
            f"{GREATEST_INTERVAL_MS} (1 hour)",
        )


def check_pattern(pattern: str) -> None:
    selector, _, expression = (each.strip() for each in pattern.partition("="))
    if selector not in SELECTORS or not expression or "=" in expression or expression_of(expression) is None:
        raise invalid(f"Illegal client matching pattern: {pattern}")


@lru_cache(maxsize=EXPRESSIONS_KEPT)
def expression_of(text: str) -> Regex | None:
    try:
        return Regex(text)
    except RegexError:
        return None


def is_match(patterns: str, attributes: Mapping[str, str]) -> bool:
    """Whether a client has all the attributes that a config `match` names by their selectors.

    An expression that only an earlier minibroker accepted matches no client.
    """
    for pattern in filter(None, map(str.strip, patterns.split(","))):
        selector, _, text = pattern.partition("=")
        expression = expression_of(text.strip())
        if expression is None or not expression.matches(attributes[selector.strip()]):
            return False
    return True


def invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_CONFIG, message)
