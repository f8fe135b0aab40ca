"""Holds a script with one broker: `Transcript` makes requests and keeps the answers, `SocketPeer` carries them.

Whether a request waits is seen without a clock. Both brokers serve requests of all connections in the order in
which they arrive (Apache Kafka with one network and one request thread), so that once two more requests were
answered on another connection, one that was not answered is waiting.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import Any

from minibroker.conformance.answers import Masks, Plain
from minibroker.conformance.raw_connection import RawConnection
from minibroker.conformance.requests import frame
from minibroker.conformance.steps import CORRELATION_ID, PREFIX_MARK, Script, Step, Told
from minibroker.protocol.api import API_TABLE, ApiKey, response_has_tags, skip_header_tags
from minibroker.protocol.errors import KafkaProtocolError
from minibroker.protocol.primitives import ZERO_UUID

CLOSED = "closed"
WAITS = "waits"
SILENT = "silent"
NO_ANSWER = "no answer"
RESTARTED = "restarted"
ANSWER_SECONDS = 30.0
CORRELATION_BYTES = 4
SETTLE_SECONDS = 0.005  # for the last bytes of an answer that is on its way
SYNC_VERSION = 0
RETRY_SECONDS = 0.01
DRAWN_ID = re.compile(r"[\w-]{22}")  # of a member of the classic protocol in a group of the consumer protocol


class Transcript:
    """The conversation with one broker: what was answered so far, masked, and the session ids unmasked."""

    def __init__(self, prefix: str, now_ms: int | None = None, *, node_id: int = 0) -> None:
        self.answers: list[Plain] = []
        self._prefix = prefix
        self._now_ms = time.time_ns() // 1_000_000 if now_ms is None else now_ms
        self._masks = Masks(prefix, self._now_ms, node_id)
        self._sessions: dict[str, Any] = {}

    def frame(self, step: Step) -> bytes:
        return step.frame(self._prefix, self._now_ms, self._sessions)

    def add(self, step: Step, outcome: bytes | bytearray | str) -> None:
        """Keep a response without its size, or one of the words above."""
        self.answers.append(outcome if isinstance(outcome, str) else self._decoded(step, outcome))

    def wants_again(self, step: Step, outcome: bytes | bytearray | str) -> bool:
        """Whether the step asks until the answer is another: Kafka does some things after it has answered."""
        if not step.retry or isinstance(outcome, str):
            return False
        try:
            body, _ = API_TABLE[step.key].response.decode(step.version, outcome, body_at(step, step.version, outcome))
        except KafkaProtocolError:
            return False  # `add` says so
        return first_error(body) in step.retry

    def _decoded(self, step: Step, frame: bytes | bytearray) -> Plain:
        message = API_TABLE[step.key].response
        is_known = message.first_version <= step.version <= message.last_version
        version = step.version if is_known else 0  # ApiVersions of an unknown version
        try:
            body, end = message.decode(version, frame, body_at(step, version, frame))
        except KafkaProtocolError as error:
            return f"undecodable: {error}"
        if int.from_bytes(frame[:CORRELATION_BYTES], "big") != CORRELATION_ID:
            return "another correlation id"
        if end != len(frame):
            return f"{len(frame) - end} bytes behind the answer"
        if step.name and hasattr(body, "session_id"):
            self._sessions[step.name] = body.session_id
        if step.name and hasattr(body, "generation_id"):
            for told in (Told(step.name), Told(step.name, "generation_id")):
                self._sessions[str(told)] = getattr(body, told.name)
        if step.name and hasattr(body, "producer_id"):
            self._sessions[step.name] = body.producer_id
            self._masks.learn_producer(body.producer_id)
        if step.api == "CreateTopics":
            for topic in body.topics:
                if topic.topic_id != ZERO_UUID:
                    name = topic.name.replace(self._prefix, PREFIX_MARK)
                    self._sessions[name] = topic.topic_id
                    self._masks.learn_topic(topic.topic_id, name)
        if step.api == "JoinGroup" and step.name:
            if DRAWN_ID.fullmatch(body.member_id):
                self._masks.learn_member(body.member_id, step.name)
            elif body.member_id and step.client_id and not step.body.get("member_id", ""):
                named = step.body.get("group_instance_id") or step.client_id
                self._masks.learn_member(body.member_id, f"{named}-uuid")
        if step.api == "ConsumerGroupHeartbeat" and not body.error_code:
            self._note_member(step, body)
        if step.api == "ShareGroupHeartbeat" and not body.error_code:
            self._sessions[str(Told(body.member_id, "member_epoch"))] = body.member_epoch
        if step.api in ("ShareFetch", "ShareAcknowledge") and not body.error_code:
            told = Told(step.body["member_id"], "share_epoch")
            epoch = step.body["share_session_epoch"]
            self._sessions[str(told)] = 1 + (self._sessions[str(told)] if isinstance(epoch, Told) else epoch)
        return self._masks.apply(step.api, body)

    def _note_member(self, step: Step, body: Any) -> None:
        """Note what a member was given, by the name that its requests have for it."""
        asked = step.body["member_id"]
        member = asked.step if isinstance(asked, Told) else asked or step.name
        self._masks.learn_member(body.member_id, member)
        self._sessions[f"{member}.member_id"] = body.member_id
        self._sessions[f"{member}.member_epoch"] = body.member_epoch
        if body.assignment is not None:
            self._sessions[f"{member}.assignment"] = body.assignment.topic_partitions
        elif step.body["member_epoch"] == 0:
            self._sessions[f"{member}.assignment"] = ()


def body_at(step: Step, version: int, frame: bytes | bytearray) -> int:
    """The position behind the header of a response."""
    has_tags = response_has_tags(API_TABLE[step.key], version)
    return skip_header_tags(frame, CORRELATION_BYTES) if has_tags else CORRELATION_BYTES


def first_error(body: Any) -> int:
    """The error of an answer, or the first one of a group or a partition in it; 0 if it has none."""
    topics = getattr(body, "topics", ())
    rows = [
        body,
        *getattr(body, "groups", ()),
        *(row for each in topics for row in getattr(each, "partitions", [each])),
    ]
    return next((int(row.error_code) for row in rows if getattr(row, "error_code", 0)), 0)


class SocketPeer:
    """A broker at the other end of sockets, one per name; a name that is an address is where it comes from."""

    def __init__(
        self,
        host: str,
        port: int,
        restart: Callable[[], object] | None = None,
        *,
        answer_seconds: float = ANSWER_SECONDS,
    ) -> None:
        self._address = (host, port)
        self._answer_seconds = answer_seconds
        self._retry_seconds = answer_seconds
        self.time_outs = 0  # how often a step was asked until its time was over
        self._restart = restart
        self.node_id = 0
        self._connections: dict[str, RawConnection] = {}
        self._parked: dict[str, Step] = {}

    def hold(self, script: Script, prefix: str) -> list[Plain]:
        """Every step's answer."""
        transcript = Transcript(prefix, node_id=self.node_id)
        try:
            for step in script:
                self._move(step, transcript)
                if not self._goes_on(transcript):
                    break
        finally:
            for name in list(self._connections):
                if name != "main":
                    self.drop(name)
        return transcript.answers

    def learn_id(self, node_id: int) -> None:
        """Show the id of this broker as 0 from now on."""
        self.node_id = node_id

    def _goes_on(self, transcript: Transcript) -> bool:
        """Whether the next step is asked."""
        return True

    def close(self) -> None:
        for name in list(self._connections):
            self.drop(name)

    def _move(self, step: Step, transcript: Transcript) -> None:
        name = step.connection
        if step.kind == "drop":
            self.drop(name)
        elif step.kind == "restart":
            assert self._restart is not None, "this broker cannot be restarted"
            self.close()
            self._restart()
            transcript.add(step, RESTARTED)
        elif step.kind == "look":
            parked = self._parked.get(name)
            transcript.add(step if parked is None else parked, "nothing asked" if parked is None else self.seen(name))
        elif step.kind == "take":
            parked = self._parked.pop(name, None)
            transcript.add(parked or step, self.receive(name) if parked else "nothing asked")
        elif step.kind == "park":
            self.send(name, transcript.frame(step))
            self._parked[name] = step
            transcript.add(step, self.seen(name))
        else:
            self.send(name, transcript.frame(step))
            if step.is_unanswered:
                transcript.add(step, SILENT if self.sync(name) else CLOSED)
            else:
                answer = self.receive(name)
                answer = self._asked_again(step, answer, transcript)
                self._settle(step, answer)
                transcript.add(step, answer)

    def _asked_again(self, step: Step, answer: bytes | str, transcript: Transcript) -> bytes | str:
        """The answer that the step waits for, or the last one. After one in vain others are awaited less long."""
        if not transcript.wants_again(step, answer):
            return answer
        until = time.monotonic() + self._retry_seconds
        while time.monotonic() < until:
            time.sleep(RETRY_SECONDS)
            self.send(step.connection, transcript.frame(step))
            answer = self.receive(step.connection)
            if not transcript.wants_again(step, answer):
                self._retry_seconds = self._answer_seconds
                return answer
        self._retry_seconds /= 4
        self.time_outs += 1
        return answer

    def _settle(self, step: Step, answer: bytes | str) -> None:
        """Wait until what the answered step changed is in effect; by default it is once the step is answered."""

    def seen(self, name: str) -> bytes | str:
        self.sync("sync")
        self.sync("sync")
        if not self.connection(name).has_answer(within_seconds=SETTLE_SECONDS):
            return WAITS
        self._parked.pop(name, None)
        return self.receive(name)

    def sync(self, name: str) -> bool:
        """Whether the connection still answers, by which time all before it is done."""
        self.send(name, frame(ApiKey.API_VERSIONS, SYNC_VERSION, CORRELATION_ID, "sync"))
        return self.receive(name) not in (CLOSED, NO_ANSWER)

    def connection(self, name: str) -> RawConnection:
        if name not in self._connections:
            source = name if name.startswith("127.") else None
            self._connections[name] = RawConnection(*self._address, answer_seconds=self._answer_seconds, source=source)
            if not self.sync(name):  # or requests on older connections might overtake
                raise ConnectionError("a new connection is closed, or ApiVersions not answered")
        return self._connections[name]

    def drop(self, name: str) -> None:
        self._parked.pop(name, None)
        opened = self._connections.pop(name, None)
        if opened is not None:
            opened.close()

    def send(self, name: str, data: bytes) -> None:
        self.connection(name).send(data)

    def receive(self, name: str) -> bytes | str:
        try:
            data = self.connection(name).receive_frame()
        except TimeoutError:
            self.drop(name)
            return NO_ANSWER
        if data is None:
            self.drop(name)
            return CLOSED
        return data
