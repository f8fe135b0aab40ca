"""Requests to a schema registry with their answers as text: `python -m tests.broker.schema_registry_book` records them.

`let NAME = SCHEMA` names a schema, `$NAME` is its text as JSON. A conversation begins with `# title`, on an empty
registry. Below each request `METHOD address body` is the answer `status JSON`.
"""

from __future__ import annotations

import json
import re
import tempfile
from pathlib import Path
from typing import NamedTuple

import trio

from tests.broker.conftest import InMemoryBroker
from tests.broker.schema_registry import AskedRegistry

GOLDEN = Path(__file__).parent.parent / "golden"
BOOK = "schema_registry.txt"
REQUEST = re.compile(r"(?P<method>[A-Z]+) (?P<path>\S+)(?: (?P<body>.*))?")
NAMED = re.compile(r"\$(\w+)")


class Conversation(NamedTuple):
    title: str
    text: str


def read(book: str = BOOK) -> tuple[dict[str, str], list[Conversation]]:
    """The named schemas, and the conversations."""
    head, *rest = (GOLDEN / book).read_text().split("\n# ")
    named = dict(re.findall(r"^let (\w+) = (.*)$", head, re.MULTILINE))
    return named, [Conversation(title, text.strip()) for title, _, text in (each.partition("\n") for each in rest)]


async def held(conversation: Conversation, named: dict[str, str], registry: AskedRegistry) -> str:
    """Hold a conversation; return its text with the answers as they are."""
    lines = []
    for line in conversation.text.splitlines():
        request = REQUEST.fullmatch(line)
        if request is None:
            continue
        body = request["body"] and NAMED.sub(lambda name: json.dumps(named[name[1]]), request["body"]).encode()
        status, answer = await registry.ask(request["method"], request["path"], body)
        lines += [line, f"{status} {json.dumps(answer, ensure_ascii=False)}"]
    return "\n".join(lines)


async def record() -> None:
    named, conversations = read()
    head = (GOLDEN / BOOK).read_text().partition("\n# ")[0]
    texts = []
    for each in conversations:
        with tempfile.TemporaryDirectory() as directory:
            async with trio.open_nursery() as nursery:
                broker = InMemoryBroker(Path(directory), nursery)
                texts.append(f"\n# {each.title}\n{await held(each, named, AskedRegistry(broker))}\n")
                broker.close()
                nursery.cancel_scope.cancel()
    (GOLDEN / BOOK).write_text(head + "".join(texts))


if __name__ == "__main__":
    trio.run(record)
