"""Judges a broker: holds conversations with it, and says what it answers otherwise than a release of Apache Kafka.

What it answers is compared by digest. A minibroker is started once there is something to say field by field: it answers
in place of Apache Kafka, corrected by what the recording has for that conversation.
"""

from __future__ import annotations

import random
import re
import time
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from itertools import islice
from queue import SimpleQueue
from typing import Any, NamedTuple

from minibroker import Broker
from minibroker.conformance.answers import Differing, Plain, differing
from minibroker.conformance.conversation import NO_ANSWER
from minibroker.conformance.holding import cleaning
from minibroker.conformance.patient_peer import PatientPeer
from minibroker.conformance.recordings import Delta, Name, Recording, digest_of, of_version, patched
from minibroker.conformance.shrinking import essential_steps, fewer_steps
from minibroker.conformance.steps import KEYS, PREFIX_MARK, Script, Step
from minibroker.protocol.api import ApiKey
from minibroker.protocol.primitives import ZERO_UUID

ANSWER_SECONDS = 5.0
LANES = 4  # conversations that are held at once
LANE_SECONDS = 2.0  # for an answer there; what is late is asked again alone
FEW, MANY = 8, 128  # conversations of a round: few while there are differences
SETTINGS_SECONDS = 0.3  # until a broker has surely applied altered configs
COORDINATOR_SECONDS = 30.0
POLL_SECONDS = 0.05
HELD_AGAIN = 2
SHRINK_SECONDS = 5.0  # for one difference, to make its conversation small
MOST_FINDINGS = 40
MOST_TRIALS = 2  # conversations in which a difference may turn out to follow from another
NUMBER = re.compile(r"\[\d+\]")
DEFAULT_PARTITIONS = 1
FIRST_CREATING_METADATA = 4  # the version from which a client says whether Metadata makes topics
API_VERSIONS = 0
BROKER = 4  # of the types of resources

# What brokers and controllers ask each other, and no client does.
BETWEEN_BROKERS = {"LeaderAndIsr", "StopReplica", "UpdateMetadata", "ControlledShutdown", "WriteTxnMarkers"}


class BrokerUnusableError(Exception):
    """The broker cannot be judged; the text says why and what to do."""


class Kind(NamedTuple):
    """The common traits of differences that are told once."""

    api: str
    path: str  # without numbers of rows
    kafkas: str
    other: str


class Answered(NamedTuple):
    """A step that was answered otherwise."""

    number: int
    step: Step
    fields: list[Differing]

    @property
    def kind(self) -> Kind:
        """The kind of the first field, or of a following one if that is but a known trait of the answer."""
        return self._kind_of(self.fields[0])

    def without(self, known: Collection[Kind]) -> Answered:
        """The same without fields of known kinds in front, unless these are errors, from which others follow."""
        fields = self.fields
        while fields[1:] and self._kind_of(fields[0]) in known and not fields[0].path.endswith("error_code"):
            fields = fields[1:]
        return self._replace(fields=fields)

    def _kind_of(self, field: Differing) -> Kind:
        path, kafkas, other = field
        is_error = path.endswith("error_code")
        shown = [str(each) if is_error else type(each).__name__ for each in (kafkas, other)]
        if isinstance(kafkas, str) and not path:
            shown[0] = kafkas
        if isinstance(other, str) and not path:
            shown[1] = other
        return Kind(self.step.api, NUMBER.sub("", path), *shown)


class Finding:
    """A kind of difference: the smallest conversation that shows it, and how many do."""

    def __init__(self, name: Name, script: Script, answered: Answered) -> None:
        self.name = name
        self.script = script
        self.answered = answered
        self.count = 1


class Lack(NamedTuple):
    """Versions of an API that the release offers, and this broker does not; `has` is None without the API."""

    api: str
    offers: tuple[int, int]
    has: tuple[int, int] | None


class Side:
    """One of the two brokers that a conversation is held with."""

    def __init__(self, host: str, port: int, answer_seconds: float = ANSWER_SECONDS) -> None:
        self.peer = PatientPeer(host, port, answer_seconds=answer_seconds)
        self._port = port

    def learn_id(self) -> None:
        """Learn the id of the broker that answers here: it is shown as 0."""
        first, _ = self.versions.get(ApiKey.METADATA, (0, 0))
        answer = self.peer.asked(ApiKey.METADATA, first, topics=[])
        if not isinstance(answer, str) and answer.brokers:
            ids = {row.port: row.node_id for row in answer.brokers}
            self.peer.learn_id(ids.get(self._port, answer.brokers[0].node_id))

    @cached_property
    def versions(self) -> dict[int, tuple[int, int]]:
        """Of each API. Raises BrokerUnusableError."""
        try:
            answer = self.peer.asked(ApiKey.API_VERSIONS, API_VERSIONS)
        except (OSError, ConnectionError) as error:
            raise BrokerUnusableError(f"no broker answers there: {error}") from None
        if isinstance(answer, str) or answer.error_code:
            raise BrokerUnusableError("it does not answer ApiVersions v0, with which a client begins")
        return {row.api_key: (row.min_version, row.max_version) for row in answer.api_keys}

    def await_coordinators(self) -> None:
        """Wait until groups and transactions have a coordinator, if the broker has them: Kafka makes it when asked."""
        until = time.monotonic() + COORDINATOR_SECONDS
        for version, asked in ((0, {"key": "g"}), (1, {"key": "t", "key_type": 1})):
            while self.has(ApiKey.FIND_COORDINATOR, version) and time.monotonic() < until:
                answer = self.peer.asked(ApiKey.FIND_COORDINATOR, version, **asked)
                is_slow = answer == NO_ANSWER or (not isinstance(answer, str) and answer.error_code)
                if not is_slow:
                    break
                time.sleep(POLL_SECONDS)

    def settings(self, names: Collection[str]) -> dict[str, str | None]:
        """The values of these settings, by name, as the broker describes them; none without DescribeConfigs."""
        if ApiKey.DESCRIBE_CONFIGS not in self.versions:
            return {}
        first, _ = self.versions[ApiKey.DESCRIBE_CONFIGS]
        asked = [(BROKER, str(self.peer.node_id), list(names))]
        answer = self.peer.asked(ApiKey.DESCRIBE_CONFIGS, first, resources=asked)
        return {} if isinstance(answer, str) else {row.name: row.value for one in answer.results for row in one.configs}

    def has(self, key: int, version: int) -> bool:
        first, last = self.versions.get(key, (0, -1))
        return first <= version <= last

    def hold(self, script: Script, prefix: str) -> list[Plain]:
        """The answers; topics are made by Metadata where the broker lacks CreateTopics, and deleted behind."""
        if not self.has(ApiKey.CREATE_TOPICS, 2):
            for name in topics_of(script):
                self._made_by_metadata(name.replace(PREFIX_MARK, prefix))
        answers = self.peer.hold(script, prefix)
        last = cleaning(script)
        if self.has(last.key, last.version):
            self.peer.hold([last], prefix)
        return answers

    def _made_by_metadata(self, topic: str) -> int:
        version = min(self.versions[ApiKey.METADATA][1], FIRST_CREATING_METADATA)
        made = {"allow_auto_topic_creation": True} if version >= FIRST_CREATING_METADATA else {}
        until = time.monotonic() + ANSWER_SECONDS
        while True:
            answer = self.peer.asked(ApiKey.METADATA, version, topics=[(ZERO_UUID, topic)], **made)
            rows = [] if isinstance(answer, str) else answer.topics
            if (rows and not rows[0].error_code) or time.monotonic() > until:
                return len(rows[0].partitions) if rows else 0
            time.sleep(POLL_SECONDS)

    def default_partitions(self) -> int:
        """How many partitions a topic has that is made by being asked for."""
        return max(self._made_by_metadata(new_prefix() + "partitions"), DEFAULT_PARTITIONS)


def topics_of(script: Iterable[Step]) -> list[str]:
    """The topics that requests of a conversation name in their rows."""
    found = (row[0] for step in script for row in step.body.get("topics") or () if row and isinstance(row[0], str))
    return [name for name in dict.fromkeys(found) if name.startswith(PREFIX_MARK) and name != "@unknown"]


def names_a_broker(step: Step) -> bool:
    """Whether a request names broker 0, as the one that was recorded is called."""
    resources = step.body.get("resources") or ()
    rows = step.body.get("topics") or () if step.api in ("CreateTopics", "CreatePartitions") else ()
    return (
        step.api in BETWEEN_BROKERS
        or any(row[0] == BROKER for row in resources)
        or any(row[3:4] not in ((), ([],)) for row in rows)
    )


def new_prefix() -> str:
    return f"r{random.SystemRandom().randrange(10**6):06d}-"


class Judge:
    """Holds the conversations of a recording with a broker. Use it in a `with` block."""

    def __init__(
        self, host: str, port: int, recording: Recording, *, skip: Collection[str] = (), only: Collection[str] = ()
    ) -> None:
        self._recording = recording
        self._skip, self._only = skip, only
        self._side = Side(host, port)
        self._lanes: SimpleQueue[Side] = SimpleQueue()
        self._broker: Broker | None = None
        self._unanswered: set[str] = set()  # APIs of which the broker left a request without an answer
        self._trials: Counter[Kind] = Counter()
        self.findings: dict[Kind, Finding] = {}
        self.held = 0
        self.held_whole = 0
        self.vanished = 0
        self.lacks = [
            Lack(api, offers, self._side.versions.get(key))
            for api, key in KEYS.items()
            if (offers := recording.versions.get(key)) and api not in {*skip, *BETWEEN_BROKERS}
            if not (self._side.has(key, offers[0]) and self._side.has(key, offers[1]))
        ]
        self._side.await_coordinators()
        self._side.learn_id()
        wanted = {name: str(value) for name, value in recording.settings.items()}
        settings = self._side.settings(wanted)
        # By name, the broker's settings that are not as they were for the recording, each with that one.
        self.other_settings = {
            name: (has, wanted[name]) for name, has in settings.items() if has != wanted.get(name, has)
        }
        for _ in range(LANES):
            lane = Side(host, port, LANE_SECONDS)
            lane.versions = self._side.versions
            lane.peer.learn_id(self._side.peer.node_id)
            self._lanes.put(lane)

    def __enter__(self) -> Judge:
        return self

    def __exit__(self, *_: object) -> None:
        self._side.peer.close()
        while not self._lanes.empty():
            self._lanes.get().peer.close()
        if self._broker is not None:
            self._reference.peer.close()
            self._broker.close()

    @cached_property
    def _reference(self) -> Side:
        """A minibroker that answers in place of Apache Kafka."""
        settings: dict[str, Any] = self._recording.settings | {"broker.id": 0}
        if not self._side.has(ApiKey.CREATE_TOPICS, 2):
            settings["num.partitions"] = self._side.default_partitions()
        self._broker = Broker(settings=settings, act_as=self._recording.act_as).start()
        host, _, port = self._broker.bootstrap_servers.rpartition(":")
        reference = Side(host, int(port))
        reference.await_coordinators()
        if "num.partitions" in settings:
            del reference.versions[ApiKey.CREATE_TOPICS]
        return reference

    def names(self) -> Iterator[Name]:
        """The conversations that are recorded, of the families and books that are asked for."""
        asked = [each for each in self._only if each not in KEYS]
        for name in self._recording.digests:
            family = self._recording.family(name)
            if family not in self._skip and (not asked or family in asked):
                yield name

    def judge_all(self, names: Iterable[Name]) -> Iterator[None]:
        """Judge conversations; yield now and then.

        Several are held at once. What is answered otherwise is asked again, with nothing beside it. It ends with the
        last conversation, or with MOST_FINDINGS. Raises OSError.
        """
        remaining, size = iter(names), FEW
        with ThreadPoolExecutor(LANES) as threads:
            while (chosen := list(islice(remaining, size))) and not self.is_full:
                others = [
                    each for each, same in zip(chosen, threads.map(self._is_alike, chosen), strict=True) if not same
                ]
                self.held += len(chosen) - len(others)
                self.held_whole += len(chosen) - len(others)
                size = FEW if others else min(2 * size, MANY)
                yield
                for name in others:
                    if not self.is_full:
                        self.judge(name)
                        yield

    @property
    def is_full(self) -> bool:
        return len(self.findings) >= MOST_FINDINGS

    def _is_alike(self, name: Name) -> bool:
        script = self._recording.script(name)
        if not all(map(self._can_ask, script)):
            return False
        lane = self._lanes.get()
        try:
            return digest_of(script, lane.hold(script, new_prefix())) == self._recording.digests[name]
        except OSError:
            return False  # `judge` holds the conversation alone then, and reports the error
        finally:
            self._lanes.put(lane)

    def judge(self, name: Name) -> None:
        """Hold a conversation alone; what is answered otherwise becomes a finding, or is counted with one."""
        whole = self._recording.script(name)
        places = [place for place, step in enumerate(whole) if self._can_ask(step)]
        script = [whole[place] for place in places]
        if len(script) < len(whole):  # what waits until a topic is deleted would wait for ever
            script = [step for step in script if 0 not in step.retry]
        if not any(step.kind in ("call", "park") and step.api != "CreateTopics" for step in script):
            return
        self.held += 1
        answers = self._side.hold(script, new_prefix())
        if len(script) == len(whole):
            self.held_whole += 1
            if digest_of(whole, answers) == self._recording.digests[name]:
                return
        deltas = deltas_by_step(whole, self._recording.deltas.get(name, ()))
        found = self._between(script, deltas, answers)
        if not found:
            return
        silent = next((each for each in found if each.kind.other == NO_ANSWER), None)
        if silent is not None:
            again = {each.kind for each in self._differing(script, deltas)}
            if silent.kind not in again:  # the machine was busy
                self.vanished += 1
                return
            # Each request of this API would take as long again.
            self._unanswered.add(silent.step.api)
            cut = script[: position_of(script, silent.number) + 1]
            self.findings.setdefault(silent.kind, Finding(name, cut, silent))
            found = [each for each in found if each.number < silent.number]
        if not all(each.kind in self.findings for each in found):
            found = self._again(script, deltas, found)
        for kind in {each.kind for each in found if each.kind in self.findings}:
            self.findings[kind].count += 1
        for answered in found:
            kind = answered.kind
            if kind not in self.findings and not self.is_full and self._trials[kind] < MOST_TRIALS:
                self._trials[kind] += 1
                self._tell(name, script, deltas, answered)

    def _can_ask(self, step: Step) -> bool:
        if step.kind in ("look", "take", "drop"):
            return True
        if step.api in self._skip or step.api in self._unanswered:
            return False
        if self._side.peer.node_id and names_a_broker(step):
            return False
        return self._side.has(step.key, step.version)

    def _differing(self, script: Script, deltas: dict[int, list[Delta]]) -> list[Answered]:
        return self._between(script, deltas, self._side.hold(script, new_prefix()))

    def _between(self, script: Script, deltas: dict[int, list[Delta]], answers: list[Plain]) -> list[Answered]:
        kafkas = self._reference.hold(script, new_prefix())
        found = []
        asked = [step for step in script if step.kind != "drop"]
        for number, (step, theirs, mine) in enumerate(zip(asked, kafkas, answers, strict=False)):
            expected = theirs
            for delta in deltas.get(id(step), ()):
                expected = patched(expected, delta.path, delta.value)
            if step.kind not in ("look", "take"):
                expected, mine = of_version(step, expected), of_version(step, mine)
            fields = differing(expected, mine)
            if fields and (not self._named_apis or step.api in self._named_apis):
                found.append(Answered(number, step, fields).without(self.findings.keys()))
        return found

    @cached_property
    def _named_apis(self) -> set[str]:
        return {each for each in self._only if each in KEYS}

    def _again(self, script: Script, deltas: dict[int, list[Delta]], found: list[Answered]) -> list[Answered]:
        """The differences that are there each time: a broker leaves some things to chance."""
        self._side.peer.wait_for_settings(SETTINGS_SECONDS)
        kept = found
        for _ in range(HELD_AGAIN):
            kinds = {each.kind for each in self._differing(script, deltas)}
            kept = [each for each in kept if each.kind in kinds]
        self._side.peer.wait_for_settings(0)
        self.vanished += bool(found) and not kept
        return kept

    def _tell(self, name: Name, script: Script, deltas: dict[int, list[Delta]], answered: Answered) -> None:
        """Make the conversation of a new kind small, and keep it, unless it only follows from another kind."""
        until = time.monotonic() + SHRINK_SECONDS

        def shows(candidate: Script) -> bool:
            return time.monotonic() < until and any(
                each.kind == answered.kind for each in self._differing(candidate, deltas)
            )

        cut = script[: position_of(script, answered.number) + 1]
        if is_of_the_whole(answered, deltas):
            small = cut
        else:
            begun = next((each for each in (essential_steps(cut), cut) if shows(each)), script)
            small = fewer_steps(begun, shows)
        found = self._differing(small, deltas)
        shown = next((each for each in found if each.kind == answered.kind), answered)
        if any(each.kind in self.findings and each.number < shown.number for each in found):
            return  # it follows from what is known
        self.findings[answered.kind] = Finding(name, small, shown)


def is_of_the_whole(answered: Answered, deltas: dict[int, list[Delta]]) -> bool:
    """Whether the recording has a number or records there, which would be others after fewer requests."""
    path, value, _ = answered.fields[0]
    is_of_state = isinstance(value, int | list) and not path.endswith("error_code")
    return is_of_state and any(delta.path == path for delta in deltas.get(id(answered.step), ()))


def position_of(script: Script, number: int) -> int:
    """The place of the step with this answer: who hangs up has none."""
    return [place for place, step in enumerate(script) if step.kind != "drop"][number]


def deltas_by_step(script: Script, deltas: Iterable[Delta]) -> dict[int, list[Delta]]:
    """The fields of a recording by the identity of their step, which stays when others are left out."""
    asked = [step for step in script if step.kind != "drop"]
    found: dict[int, list[Delta]] = {}
    for delta in deltas:
        found.setdefault(id(asked[delta.answer]), []).append(delta)
    return found
