"""AlterConfigs and IncrementalAlterConfigs at the handlers: in effect at once, there after a restart, or refused.

What Apache Kafka 2.0.1 answers to every kind of wrong and right change is in tests/golden/conversations/kafka-2.0.1/
(changing.txt, reconfiguring.txt).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from minibroker.broker.wings.security.wing import SecurityWing
from minibroker.protocol.api import ApiKey
from minibroker.protocol.errors import ErrorCode
from tests.broker.asking import BROKER, described
from tests.broker.conftest import InMemoryBroker, MakeBroker
from tests.certificates import Certificates


async def alter(
    broker: InMemoryBroker, kind: int, name: str, configs: dict[str, Any], version: int = 1
) -> tuple[int, str | None]:
    """Error code and message of the one resource."""
    resources = [(kind, name, list(configs.items()))]
    answer = await broker.call(ApiKey.ALTER_CONFIGS, version, resources=resources, validate_only=False)
    return tuple(answer.responses[0][:2])


async def value_and_source(
    broker: InMemoryBroker, kind: int, name: str, *keys: str
) -> dict[str, tuple[str | None, int]]:
    return {key: (row.value, row.config_source) for key, row in (await described(broker, kind, name, *keys)).items()}


async def test_a_stored_setting_that_is_no_longer_right_is_ignored(
    make_broker: MakeBroker, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    broker = make_broker(tmp_path / "shared")
    await alter(broker, BROKER, "0", {"log.segment.bytes": "5000", "log.retention.bytes": "9"})
    broker.close()
    path = tmp_path / "shared" / "minibroker.json"
    path.write_text(path.read_text().replace('"5000"', '"many"'))

    broker = make_broker(tmp_path / "shared")

    assert "log.segment.bytes=many is ignored" in caplog.text
    kept = {"log.segment.bytes": ("1073741824", 5), "log.retention.bytes": ("9", 2)}
    assert await value_and_source(broker, BROKER, "0", *kept) == kept


async def test_secrets_are_not_written_down(broker: InMemoryBroker, tmp_path: Path) -> None:
    code, message = await alter(broker, BROKER, "0", {"listener.name.x.ssl.keystore.password": "hunter2"})

    assert code == ErrorCode.INVALID_REQUEST
    assert message is not None and message.endswith(": Password encoder secret not configured")
    assert all("hunter2" not in path.read_text() for path in tmp_path.rglob("minibroker.*"))  # noqa: ASYNC240


async def test_a_listener_gets_another_key_store_while_it_serves(make_broker: MakeBroker, tmp_path: Path) -> None:
    certificates = Certificates(tmp_path)
    first, second = (certificates.issued(name) for name in ("first", "second"))
    broker = make_broker(
        listeners="SSL://:0",
        security_inter_broker_protocol="SSL",
        ssl_keystore_type="PEM",
        ssl_keystore_location=str(first),
    )
    (listener,) = [each.tls["SSL"] for each in broker.parts.wings if isinstance(each, SecurityWing)]
    before, name = listener.context(), "listener.name.ssl.ssl.keystore.location"

    refused = await alter(broker, BROKER, "0", {name: str(tmp_path / "none")})
    assert (refused[0], listener.context()) == (ErrorCode.INVALID_REQUEST, before)
    assert "No such file or directory" in (refused[1] or "")
    assert await alter(broker, BROKER, "0", {name: str(second)}) == (ErrorCode.NONE, None)
    assert listener.context() is not before
