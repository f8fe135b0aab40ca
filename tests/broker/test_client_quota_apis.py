"""AlterClientQuotas, where tests/golden/conversations/quotas_and_users.txt does not reach."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from minibroker.broker.cluster.file_state import FILE_NAME
from minibroker.broker.wings.quotas import quota_apis
from minibroker.protocol.api import ApiKey
from minibroker.protocol.errors import ErrorCode
from tests.broker.conftest import MakeBroker


async def test_the_names_of_all_entities_are_bounded(
    make_broker: MakeBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(quota_apis, "NAMES_MAX_BYTES", 10_000)
    broker = make_broker(tmp_path / "data")
    codes = []
    for entity in (("user", "x" * 9000), ("client-id", "y" * 1001)):
        entries = [([entity], [("producer_byte_rate", 1.0, False)])]
        answer = await broker.call(ApiKey.ALTER_CLIENT_QUOTAS, 1, entries=entries, validate_only=False)
        codes.append(answer.entries[0].error_code)

    assert codes == [ErrorCode.NONE, ErrorCode.INVALID_REQUEST]
    broker.close()
    stored = json.loads((tmp_path / "data" / FILE_NAME).read_text())["client_quotas"]
    assert [list(each["entity"]) for each in stored] == [["user"]]
