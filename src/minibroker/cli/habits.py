"""Commands as kcat, rpk and Kafka's own tools have them, and how each is written here."""

from __future__ import annotations

import re
from collections.abc import Sequence

HELP, VERSION = "help", "version"
NAME_THE_TOPIC = "the topic is an argument: `minibroker {command} TOPIC`"
MODES = {
    "-L": "write `minibroker topics list`",
    "-C": "write `minibroker consume TOPIC`",
    "-P": "write `minibroker produce TOPIC`",
    "-G": "write `minibroker consume TOPIC --group NAME`",
    "-Q": "write `minibroker offsets TOPIC --at @TIME`",
}
# By command: an option that it does not have, and what stands for it.
HABITS: dict[str, dict[str, str]] = {
    "minibroker": MODES,
    "consume": {
        **dict.fromkeys(("-t", "--topic", "-C"), NAME_THE_TOPIC),
        "--offset": "write --from POSITION",
        "--from-beginning": "it starts at the beginning unless --from POSITION is given",
        **dict.fromkeys(("-c", "--num", "--max-messages"), "write -n N"),
        **dict.fromkeys(("-e", "--exit"), "it stops at the end unless --follow is given"),
        "-G": "write --group NAME",
        **dict.fromkeys(("-J", "--json"), "write -o json"),
        **dict.fromkeys(("-K", "--property"), r"write -f '%k:%v\n'"),
        "--isolation-level": "write --read-committed",
        "-u": "records are never held back",
    },
    "produce": {
        **dict.fromkeys(("-t", "--topic", "-P"), NAME_THE_TOPIC),
        "-l": "write --file FILE",
        "--property": "write --key-separator TEXT",
        **dict.fromkeys(("-Z", "--tombstone"), 'write --json, for lines such as {"key": "UA", "value": null}'),
    },
    "topics": {
        "--list": "write `minibroker topics list`",
        "--create": "write `minibroker topics create NAME`",
        "--describe": "write `minibroker topics describe NAME`",
        "--delete": "write `minibroker topics delete NAME`",
        "--alter": "write `minibroker topics grow NAME --partitions N`",
    },
    "groups": {
        "--list": "write `minibroker groups list`",
        "--describe": "write `minibroker groups describe GROUP`",
        "--delete": "write `minibroker groups delete GROUP`",
        "--reset-offsets": "write `minibroker groups reset GROUP --to POSITION`",
        "--export": "write `minibroker groups export GROUP`",
    },
}
OUTPUT_IS_POSITION = re.compile(r"'-o': '(beginning|start|earliest|end|latest|stored|s?@.*|[-+]?\d+)' is not one of")


def as_options(words: Sequence[str], nouns: Sequence[str]) -> list[str]:
    """The words with `help` and `version` as the options that they are here, also behind one of the nouns."""
    match list(words):
        case [first, *rest] if first == HELP:
            return [*rest, "--help"]
        case [first] if first == VERSION:
            return ["--version"]
        case [first, second, *rest] if second == HELP and first in nouns:
            return [first, *rest, "--help"]
    return list(words)


def written_here(command: str, option: str, message: str) -> str | None:
    """The words for an option that the command lacks, or lacks with that value; None if none are known."""
    if command == "consume" and OUTPUT_IS_POSITION.search(message):
        return "write --from POSITION to start there"
    known = HABITS.get(command, {}).get(option)
    return NAME_THE_TOPIC.format(command=command) if known == NAME_THE_TOPIC else known
