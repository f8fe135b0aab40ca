"""The requests of the public tests of Karapace, in karapace_cases.txt: their status, and fields of the answer."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from tests.broker.conftest import InMemoryBroker
from tests.broker.schema_registry import AskedRegistry
from tests.broker.schema_registry_book import NAMED, REQUEST, Conversation, read

pytest.importorskip("proto_schema_parser", reason="schemas need the extra: pip install -e '.[schemas]'")

ANSWER = re.compile(r"(?P<status>\d{3})(?: = (?P<kept>\w+)| (?P<fields>\S.*))?")
SCHEMAS, CONVERSATIONS = read("karapace_cases.txt")


def as_in(wanted: Any, found: Any) -> Any:
    """The answer; of an object, the fields that are wanted."""
    return {name: found.get(name) for name in wanted} if isinstance(wanted, dict) else found


@pytest.mark.parametrize("slash", ["", "/"])
@pytest.mark.parametrize("conversation", CONVERSATIONS, ids=lambda each: each.title)
async def test_a_registry_answers_as_karapaces_tests_say(
    conversation: Conversation, slash: str, broker: InMemoryBroker
) -> None:
    registry = AskedRegistry(broker)
    ids: dict[str, int] = {}
    lines = [line for line in conversation.text.splitlines() if not line.startswith("  Karapace: ")]
    for asked, wanted in zip(lines[::2], lines[1::2], strict=True):
        request, answer = REQUEST.fullmatch(asked), ANSWER.fullmatch(wanted)
        assert request is not None and answer is not None, asked
        path = NAMED.sub(lambda name: str(ids[name[1]]), request["path"])
        path, _, parameters = path.partition("?")
        body = request["body"] and NAMED.sub(lambda name: json.dumps(SCHEMAS[name[1]]), request["body"]).encode()
        status, found = await registry.ask(request["method"], f"{path}{slash}?{parameters}", body)
        assert status == int(answer["status"]), (asked, found)
        if answer["kept"]:
            ids[answer["kept"]] = found["id"]
        if answer["fields"]:
            fields = json.loads(re.sub(r'"\$(\w+)"', lambda name: str(ids[name[1]]), answer["fields"]))
            assert as_in(fields, found) == fields, asked
