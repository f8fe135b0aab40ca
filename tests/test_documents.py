"""The documents are complete, lead where they say, and their reference pages are made from the source."""

from __future__ import annotations

import ast
import json
import re
import runpy
from functools import cache
from pathlib import Path

import pytest

import minibroker
from minibroker.broker.config.settings.changeable import SETTINGS
from minibroker.storage.config import TOPIC_CONFIGS
from tests.client_matrix import ROWS
from tests.sources import PACKAGES, ROOT, source_files, tree_of

DOCS = ROOT / "docs"
DESIGNS = sorted(path for part in PACKAGES for path in (ROOT / part).rglob("DESIGN.md"))
DOCUMENTS = sorted([*ROOT.glob("*.md"), *DOCS.rglob("*.md"), *DESIGNS])
SOURCE_PATH = re.compile(r"`([\w/.*-]+\.(?:py|toml|txt|gz)|[\w/]+/)`")
PICTURE = re.compile(
    r'<source media="\(prefers-color-scheme: dark\)" srcset="([^"]+)">\n  <img alt="[^"]+" src="([^"]+)">'
)
# How a client is called, and its name in the matrix of tests/client_matrix.py; without one it is only tried by hand.
CLIENT_NAMES = {
    "kafka-python": "kafka-python",
    "confluent-kafka": "confluent-kafka (librdkafka)",
    "librdkafka": "confluent-kafka (librdkafka)",
    "aiokafka": "aiokafka",
    "Java client": "Apache Kafka's Java client",
    "own tools": "Apache Kafka's own tools",
    "KafkaJS": "KafkaJS",
    "@platformatic/kafka": "@platformatic/kafka",
    "franz-go": "franz-go",
    "kcat": "kcat",
    "Spark": "Spark's Kafka source and sink",
    "Flink": "Flink's Avro serializers",
    "Kafka Streams": "Kafka Streams",
    "Kafka Connect": "Kafka Connect",
    "MirrorMaker": "MirrorMaker",
    **{each: each for each in ("sarama", "kafka-go", "kafka-ts", "node-rdkafka", "Debezium")},
}
NOT_AT_THE_TOP = {"Flink's Avro serializers"}
DAY = re.compile(r"\b20\d\d-\d\d-\d\d\b")
BY_HAND = "by hand"
# What a section of docs/clients.md says of the clients that it names: an ability of the matrix, or any of them.
CLAIMED = {
    "Clients": "",
    "Logins": "logins",
    "Programs built on clients": "transactions",
    "Serializers": "serializers",
    "When brokers die": "fail-over",
    "Pinned to a release": "",
    "By hand": BY_HAND,
    "Their own tests": BY_HAND,
    "Old protocols": "old formats",
    "What a client cannot use": "",
}

LINK = re.compile(r"\[[^]]+\]\((?![a-z]+:)([^)#]*)(?:#([^)]+))?\)")
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
CODE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
SHORTEST_PIECE = 6  # of a message that is looked for in the source
OWN_SECTIONS = ("The broker does not start", "In tests", "Messages of the command")


def generator() -> dict[str, object]:
    return runpy.run_path(str(DOCS / "reference" / "generate.py"))


def test_the_reference_pages_are_made_from_the_source() -> None:
    pages = generator()["PAGES"]
    assert isinstance(pages, dict)

    old = [name for name, page in pages.items() if (DOCS / "reference" / name).read_text(encoding="utf-8") != page()]

    assert old == [], "run: python docs/reference/generate.py"


def test_the_python_reference_has_every_public_name() -> None:
    assert set(generator()["NAMES"]) == set(minibroker.__all__)  # type: ignore[call-overload]


def test_the_settings_page_has_every_setting_once_and_every_topic_config() -> None:
    broker, _, topics = (DOCS / "reference" / "settings.md").read_text(encoding="utf-8").partition("\n## Topics\n")

    assert sorted(re.findall(r"^\| `([^`]+)` \|", broker, re.MULTILINE)) == sorted(SETTINGS)
    assert re.findall(r"^\| `([^`]+)` \|", topics, re.MULTILINE) == list(TOPIC_CONFIGS)


def anchors(document: Path) -> set[str]:
    headings = HEADING.findall(CODE.sub("", document.read_text(encoding="utf-8")))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("design", DESIGNS, ids=lambda path: str(path.parent.relative_to(ROOT)))
def test_a_page_on_a_design_names_files_that_are_there(design: Path) -> None:
    named = SOURCE_PATH.findall(design.read_text(encoding="utf-8"))

    missing = [
        each for each in named if not [*design.parent.rglob(each), *ROOT.glob(each), *ROOT.glob(f"tests/*/{each}")]
    ]

    assert len(named) > 10
    assert missing == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_link_leads_to_a_file_and_its_heading(document: Path) -> None:
    broken = []
    for path, anchor in LINK.findall(CODE.sub("", document.read_text(encoding="utf-8"))):
        target = (document.parent / path).resolve() if path else document
        if not target.exists() or (anchor and anchor not in anchors(target)):
            broken.append(f"{path}#{anchor}")

    assert broken == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_picture_has_a_dark_one_beside_it(document: Path) -> None:
    """A drawing has both themes in itself."""
    text = CODE.sub("", document.read_text(encoding="utf-8"))
    pictures = PICTURE.findall(text)
    drawings = re.findall(r"\]\(([^)]+\.svg)\)", text)

    assert text.count("<img") + text.count("![") == len(pictures) + len(drawings)
    assert all(dark == light.replace(".png", "-dark.png") for dark, light in pictures)
    assert [path for pair in pictures for path in pair if not (document.parent / path).exists()] == []
    assert [
        path for path in drawings if "prefers-color-scheme: dark" not in (document.parent / path).read_text("utf-8")
    ] == []


def test_the_index_lists_every_document() -> None:
    listed = {path for path, _ in LINK.findall((DOCS / "README.md").read_text(encoding="utf-8"))}

    assert {str(path.relative_to(DOCS)) for path in DOCS.rglob("*.md")} - listed == {"README.md"}


@cache
def text_of_the_source() -> str:
    """The source of all packages; a string in several pieces is in one."""
    text = "\n".join(path.read_text(encoding="utf-8") for path in source_files(*PACKAGES))
    return re.sub(r'"\s*\n\s*f?"', "", text).replace('\\"', '"')


def test_every_message_of_ours_in_the_troubleshooting_is_one_that_the_source_has() -> None:
    text = (DOCS / "troubleshooting.md").read_text(encoding="utf-8")
    sections = dict(re.findall(r"^## (.+?)\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL))
    messages = [
        message for title in OWN_SECTIONS for message in re.findall(r"^\| `([^`]+)` \|", sections[title], re.MULTILINE)
    ]

    unknown = [
        piece.strip()
        for message in messages
        for piece in message.split("...")
        if len(piece.strip()) >= SHORTEST_PIECE and piece.strip() not in text_of_the_source()
    ]

    assert len(messages) >= 18
    assert unknown == []


def logged_lines() -> list[re.Pattern[str]]:
    """Patterns of what the broker may log: the formats of its loggers, with anything for what each is given."""
    calls = (
        node
        for path in source_files("broker", "storage")
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and isinstance(node.func.value, ast.Name)
        and node.func.value.id == "logger"
    )
    formats = {
        argument.value
        for call in calls
        for argument in call.args[:2]
        if isinstance(argument, ast.Constant) and isinstance(argument.value, str)
    }
    return [
        re.compile(".+".join(map(re.escape, re.split(r"%[\d.]*[a-z]", each)))) for each in formats if each.strip("%s: ")
    ]


def test_each_line_beside_one_of_kafkas_log_is_logged_here() -> None:
    text = (DOCS / "troubleshooting.md").read_text(encoding="utf-8").partition("## Kafka's log lines")[2]
    metrics = (DOCS / "reference/metrics.md").read_text(encoding="utf-8")
    assert [name for name in re.findall(r"the metric `(\w+)`", text) if f"`{name}`" not in metrics] == []
    cells = re.findall(r"the log: ((?:`[^`]+`(?:, )?)+)", text)
    named = [line for cell in cells for line in re.findall(r"`(.+?)`", cell)]

    patterns = logged_lines()

    assert len(named) >= 15
    assert [line for line in named if not any(pattern.fullmatch(line) for pattern in patterns)] == []


def passed_by_client() -> dict[str, set[str]]:
    """The abilities whose tests have passed, by client; of all its versions that the matrix has."""
    matrix = json.loads((ROOT / "tests/golden/client-matrix.json").read_text(encoding="utf-8"))
    assert len(matrix["clients"]) == len(ROWS)
    abilities: dict[str, set[str]] = {}
    for row in matrix["clients"]:
        assert not any("failed" in cell for cell in row["cells"].values()), row
        name = row["client"].partition(" as ")[0]
        abilities.setdefault(CLIENT_NAMES.get(name, name), set()).update(row["cells"])
    return abilities


def clients_named(text: str) -> set[str]:
    """The clients in a text, by their names in the matrix, or as they are for one that it lacks."""
    known = "|".join(map(re.escape, sorted(CLIENT_NAMES, key=len, reverse=True)))
    return {CLIENT_NAMES[name] for name in re.findall(rf"(?<![\w./-])(?:{known})(?![\w/-])", text)}


def test_whatever_is_said_of_a_client_has_a_cell_or_a_day() -> None:
    abilities = passed_by_client()
    page = (DOCS / "clients.md").read_text(encoding="utf-8")
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    claims = [("", "", readme)]
    for section in re.split(r"^#+ ", page, flags=re.MULTILINE)[1:]:
        title, _, text = section.partition("\n")
        by_hand = CLAIMED.get(title) == BY_HAND and DAY.search(text)
        paragraphs = [] if by_hand else [each for each in text.split("\n\n") if not DAY.search(each)]
        claims += [(title, CLAIMED[title], each) for each in paragraphs]

    without = [
        (title, name, ability)
        for title, ability, text in claims
        for name in clients_named(text)
        if not (ability in abilities.get(name, ()) if ability else abilities.get(name))
    ]
    assert without == []
    intro = page.partition("\n## ")[0]
    assert set(abilities) - clients_named(intro) - NOT_AT_THE_TOP == set()
