"""Applies the operations of IncrementalAlterConfigs to a resource's configs: set, delete, append, subtract.

AlterConfigs has only one operation: replace all configs. The incremental API came with Kafka 2.3, and follows its
AdminManager: a list that was never set begins as its default, and appending a present element changes nothing. Pure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from minibroker.broker.config.settings.changeable import SETTINGS
from minibroker.broker.config.settings.endpoints import base_name
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.storage.config import TOPIC_CONFIGS, LogConfig, check_names

SET, DELETE, APPEND, SUBTRACT = range(4)
OPERATIONS = {APPEND: "append", SUBTRACT: "subtract"}

Row = Any  # name, operation, value


def replaced(current: Mapping[str, str], given: Sequence[Row]) -> dict[str, str]:
    """Return the configs after AlterConfigs: only the given ones."""
    return {row.name: row.value for row in given}


def altered(
    current: Mapping[str, str], given: Sequence[Row], *, default_list: Callable[[str, int], str]
) -> dict[str, str]:
    """Return the configs of a resource after these operations. Raises KafkaError.

    `default_list` returns the default of a list, by the name and for this operation; it raises for other types.
    """
    check_no_duplicates(given)
    configs = dict(current)
    for name, operation, value in given:
        if operation == SET:
            configs[name] = value
        elif operation == DELETE:
            configs.pop(name, None)
        elif operation in OPERATIONS:
            before = elements(configs.get(name, default_list(name, operation)))
            configs[name] = ",".join(combined(before, elements(value), operation))
        else:
            raise invalid(f"Unknown operation {operation} on config {name}")
    return configs


def combined(before: Sequence[str], given: Sequence[str], operation: int) -> list[str]:
    if operation == SUBTRACT:
        return [each for each in before if each not in given]
    return list(dict.fromkeys([*before, *given]))


def elements(text: str) -> list[str]:
    return [element.strip() for element in text.split(",") if element.strip()]


def topic_list(name: str, operation: int) -> str:
    """Return the default of a topic's list, as text. Raises KafkaError for other types."""
    check_names([name])
    return checked_list(name, operation, TOPIC_CONFIGS[name].type.value, LogConfig().value_text(name))


def broker_list(name: str, operation: int) -> str:
    """Return the default of a broker's list, as text. Raises KafkaError for other types."""
    row = SETTINGS.get(base_name(name))
    kind, default = (None, None) if row is None else (row.kind.name, row.write(row.default))
    return checked_list(name, operation, kind, default)


def checked_list(name: str, operation: int, kind: str | None, default: str | None) -> str:
    if kind != "LIST":
        raise invalid(f"Config value {OPERATIONS[operation]} is not allowed for config key: {name}")
    return default or ""


def no_list(name: str, operation: int) -> str:
    """Raises KafkaError: no config of a group is a list, and of client metrics kafka 4.4 knows no types."""
    message = f"Can't {OPERATIONS[operation].upper()} to key {name} because its type is not LIST."
    raise KafkaError(ErrorCode.INVALID_CONFIG, message)


def check_logger_operation(row: Row) -> None:
    """Raises KafkaError for any operation on a broker's logger, since there is none (as kafka 3.9)."""
    name, operation, _ = row
    if operation in OPERATIONS:
        title = OPERATIONS[operation].upper()
        raise invalid(f"{title} operation is not allowed for the BROKER_LOGGER resource")
    if operation not in (SET, DELETE):
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)
    raise KafkaError(ErrorCode.INVALID_CONFIG, f"Logger {name} does not exist!")


def check_no_duplicates(given: Sequence[Row]) -> None:
    """Raises KafkaError(INVALID_REQUEST) for a name that comes twice."""
    repeated = [name for name, times in Counter(row.name for row in given).items() if times > 1]
    if repeated:
        raise invalid(f"Error due to duplicate config keys : {','.join(repeated)}")


def check_no_nulls(given: Sequence[Row]) -> None:
    """Raises KafkaError(INVALID_REQUEST) for a null value, except in a deletion."""
    nulls = [row.name for row in given if row.value is None and getattr(row, "operation", SET) != DELETE]
    if nulls:
        raise invalid(f"Null value not supported for : {','.join(nulls)}")


def invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, message)
