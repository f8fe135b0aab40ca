"""The verdicts on pairs of schemas: in compatibility.txt at all levels, in karapace_pairs.txt of a reader."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from minibroker.schemas.schema import LEVELS, incompatible, parse
from tests.schemas.pairs import Pair, pairs

pytest.importorskip("proto_schema_parser", reason="schemas need the extra: pip install -e '.[schemas]'")


@pytest.mark.parametrize("pair", pairs(), ids=lambda pair: f"{pair.kind} {pair.title}")
def test_a_pair_of_schemas_has_its_verdict_at_each_level(pair: Pair) -> None:
    old, new = parse(pair.kind, pair.old, {}), parse(pair.kind, pair.new, {})
    allowed = {"NONE"} | {"B": {"BACKWARD"}, "F": {"FORWARD"}, "BF": {"BACKWARD", "FORWARD", "FULL"}, "-": set()}[
        pair.verdict
    ]

    for level in LEVELS:
        found = incompatible(level, new, [old])
        assert (found is None) == (level.removesuffix("_TRANSITIVE") in allowed), (level, found)
        if found is not None and pair.field is not None:
            assert any(re.search(rf"(?<!\w){re.escape(pair.field)}(?!\w)", str(each)) for each in found[1]), found


KARAPACE = (Path(__file__).parent / "karapace_pairs.txt").read_text()
NAMED = {(kind, name): text for kind, name, text in re.findall(r"^let (\w+) (\w+) = (.*)$", KARAPACE, re.MULTILINE)}
VERDICTS = re.findall(r"^(\w+) (reads|refuses): (.*(?:\n  \w+<.*)*)", KARAPACE, re.MULTILINE)


@pytest.mark.parametrize(
    ("kind", "verdict", "pair"), [(kind, verdict, pair) for kind, verdict, each in VERDICTS for pair in each.split()]
)
def test_a_pair_of_karapaces_has_its_verdict(kind: str, verdict: str, pair: str) -> None:
    new, old = (parse(kind, NAMED[kind, name], {}) for name in pair.split("<"))

    assert bool(new.unreadable(old)) == (verdict == "refuses")


def test_only_a_transitive_level_looks_at_older_versions() -> None:
    one, two = '["null","int"]', '["null"]'
    oldest, newest, new = (parse("AVRO", each, {}) for each in (one, two, two))

    assert incompatible("BACKWARD", new, [oldest, newest]) is None
    assert incompatible("BACKWARD_TRANSITIVE", new, [oldest, newest])[0] == 0  # type: ignore[index]
    assert incompatible("FULL", new, []) is None
    assert incompatible("BACKWARD", new, [parse("AVRO", '"string"', {}), oldest])[0] == 1  # type: ignore[index]
