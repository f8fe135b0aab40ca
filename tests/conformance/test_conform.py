"""`minibroker conform`: a broker that answers as Apache Kafka, one with a mistake, and one that lacks an API."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from minibroker import Broker
from minibroker.conformance import judge
from minibroker.conformance.__main__ import main
from minibroker.conformance.holding import SETTINGS
from minibroker.conformance.patient_peer import PatientPeer
from minibroker.conformance.recordings import NAMES, Name, Recording, digest_of, read_recording
from tests.conformance.comparing import wait_for_coordinator
from tests.conformance.planted import MUTANTS, WRONG, found

pytestmark = pytest.mark.integration
MOST = 600  # conversations until a mistake is found
PROFILES = Path(__file__).parent.parent.parent / "docs" / "profiles.md"
KINDS = dict(
    re.findall(r"^(\w.*)\n {4}(.*)$", Path(__file__).with_name("kinds.txt").read_text(encoding="utf-8"), re.MULTILINE)
)
OF_KINDS = ("0.10", "0.11", "1.1", "2.8", "3.9", "4.0", "4.4")
QUICK = {  # with the conversations that show it
    "base offset of an append": "producing",
    "each member leads": "groups",
    "Each rebalance begins a new generation": "groups",
}


@pytest.fixture(autouse=True)
def _hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out what makes conversations small: it has a test of its own."""
    monkeypatch.setattr(judge, "SHRINK_SECONDS", 0.0)


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(settings=SETTINGS | {"broker.id": 0}, act_as="2.0") as started:
        yield started


def test_a_broker_that_answers_as_apache_kafka_has_no_difference(
    broker: Broker, capsys: pytest.CaptureFixture[str]
) -> None:
    status = main([broker.bootstrap_servers, "--as", "2.0", "--seeds", "30", "--only", "sessions"])

    printed = capsys.readouterr().out
    assert "30 conversations in" in printed
    assert "0 differences, 0 APIs" in printed
    assert status == 0


@pytest.mark.parametrize("release", NAMES)
@pytest.mark.parametrize("most", [8, pytest.param(10_000, marks=[pytest.mark.nightly, pytest.mark.timeout(1200)])])
def test_a_broker_that_acts_as_a_release_answers_as_it_was_recorded(release: str, most: int) -> None:
    """The recording has what it answers otherwise, and docs/profiles.md the common kinds."""
    recording = read_recording(release)
    scripts = {name: recording.script(name) for name in recording.digests if name not in recording.deltas}
    # A conversation in which requests wait depends on how busy the machine is.
    plain = [name for name, script in scripts.items() if all(step.kind == "call" for step in script)]
    asked = plain[:: max(1, len(plain) // most)]
    with Broker(settings=recording.settings | {"broker.id": 0}, act_as=release) as acting:
        host, port = acting.bootstrap_servers.split(":")
        with closing(PatientPeer(host, int(port), answer_seconds=30.0)) as peer:
            wait_for_coordinator(peer)
            otherwise = [
                name
                for number, name in enumerate(asked)
                if digest_of(scripts[name], peer.hold(scripts[name], f"r{number:06d}-")) != recording.digests[name]
            ]

    assert len(asked) >= min(most, 100)
    assert otherwise == []


def test_each_recorded_difference_is_of_a_kind_that_the_document_gives_a_reason_for() -> None:
    text = PROFILES.read_text(encoding="utf-8")
    words = re.sub(r"\s+", " ", text)
    counts: dict[str, Counter[str]] = {kind: Counter() for kind in KINDS}
    for release in OF_KINDS:
        recording = read_recording(release)
        assert f"{len(recording.deltas)} of {len(recording.digests):,} in {release}" in words
        for name in recording.deltas:
            shown = first_field(recording, name)
            kinds = [kind for kind, pattern in KINDS.items() if re.fullmatch(pattern, shown)]
            assert len(kinds) == 1, f"{name}: {shown}"
            counts[kinds[0]][release] += 1

    rows = dict(re.findall(r"^\| [^|]+ \| ([^|]+) \| [^|]+ \| [^|]+ \| ([^|]+) \|$", text, re.MULTILINE))
    numbers = {kind: ", ".join(f"{each}: {count}" for each, count in found.items()) for kind, found in counts.items()}
    assert {kind: rows.get(kind) for kind in KINDS} == numbers


def first_field(recording: Recording, name: Name) -> str:
    """The first field that differs in a conversation. An error's message counts only where nothing else differs."""
    deltas = recording.deltas[name]
    first = next((each for each in deltas if not each.path.endswith(("message", "documentation"))), deltas[0])
    step = [each for each in recording.script(name) if each.kind != "drop"][first.answer]
    field = re.sub(r"\[[0-9]+\]", "", first.path)
    return f"{recording.name} {step.api} {field} {first.value!r}"


def test_a_difference_has_its_requests_and_both_answers(broker: Broker, capsys: pytest.CaptureFixture[str]) -> None:
    """Apache Kafka 4.4.0 offers and answers what 2.0 does not."""
    status = main([broker.bootstrap_servers, "--as", "4.4", "--seeds", "6", "--only", "groups", "-o", "json"])

    report = json.loads(capsys.readouterr().out)
    lacked = {each["api"]: each["has"] for each in report["lacks"]}
    assert lacked["ConsumerGroupHeartbeat"] is None
    assert lacked["Fetch"] == [0, 8]
    assert report["conversations"] == 6
    assert status == 1


def test_settings_that_are_not_as_they_were_recorded_are_told_first(
    broker: Broker, capsys: pytest.CaptureFixture[str]
) -> None:
    main([broker.bootstrap_servers, "--as", "2.0", "--seed", "1"])
    assert capsys.readouterr().err == ""

    with Broker(settings=SETTINGS | {"group.min.session.timeout.ms": 7000}, act_as="2.0") as other:
        main([other.bootstrap_servers, "--as", "2.0", "--seed", "1"])
        told = capsys.readouterr().err.splitlines()

    assert told == [
        f"{other.bootstrap_servers} has other settings than what was recorded; differences and long waits follow from"
        " them:",
        "  group.min.session.timeout.ms=7000, not 100",
        "Start it with the settings that `minibroker conform --as 2.0 --settings` prints.",
    ]


def test_an_api_that_is_skipped_is_not_lacking(broker: Broker, capsys: pytest.CaptureFixture[str]) -> None:
    main(
        [broker.bootstrap_servers, "--as", "4.4", "--seeds", "1", "--only", "records", "--skip", "fetch", "-o", "html"]
    )

    page = capsys.readouterr().out
    assert page.startswith("<!doctype html>")
    assert "versions of Produce: Apache Kafka has" in page
    assert "versions of Fetch" not in page


@pytest.mark.parametrize(
    ("arguments", "status", "line"),
    [
        (["127.0.0.1:1"], 2, "127.0.0.1:1 cannot be judged: "),
        (["127.0.0.1:1", "--only", "Fetsch"], 2, "'Fetsch' is no API and no family"),
        (["127.0.0.1:1", "--seed", "999999"], 2, "seed 999999 is not recorded for 2.0"),
        ([], 2, "name the broker"),
    ],
)
def test_what_cannot_be_done_is_one_line(
    arguments: list[str], status: int, line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        ended = main(arguments)
    except SystemExit as end:
        ended = int(end.code or 0)

    assert line in capsys.readouterr().err
    assert ended == status


@pytest.mark.pure
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name in QUICK else pytest.mark.nightly) for name in (*WRONG, *MUTANTS)]
)
def test_a_mistake_is_found(name: str, tmp_path: Path) -> None:
    count, kind = found(name, tmp_path, read_recording("2.0"), MOST, {QUICK[name]} if name in QUICK else ())

    assert count, f"{name}: not found in {MOST} conversations"
    assert kind
