"""A broker that is waited for: what a request has changed is in effect before the next one."""

from __future__ import annotations

import time
from typing import Any

from minibroker.conformance.conversation import NO_ANSWER, SocketPeer, Transcript, body_at, first_error
from minibroker.conformance.requests import frame
from minibroker.conformance.steps import PREFIX_MARK, Script, Step
from minibroker.protocol.api import API_TABLE, ApiKey, decode_response
from minibroker.protocol.errors import ErrorCode, KafkaProtocolError

POLL_SECONDS = 0.01
LEADER_SECONDS = 10.0
LIST_OFFSETS_VERSION = 1
UNFINISHED = (
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_FOR_PARTITION,
)


class PatientPeer(SocketPeer):
    """Waits until what a request changed is in effect, as far as a request can tell."""

    def __init__(self, host: str, port: int, *, answer_seconds: float) -> None:
        super().__init__(host, port, answer_seconds=answer_seconds)
        self._settings_seconds = 0.0
        self._prefix = ""

    def hold(self, script: Script, prefix: str) -> list[Any]:
        self._prefix = prefix
        return super().hold(script, prefix)

    def _goes_on(self, transcript: Transcript) -> bool:
        """Stop behind an answer that does not come: what follows it says nothing."""
        return transcript.answers[-1:] != [NO_ANSWER]

    def wait_for_settings(self, seconds: float) -> None:
        """Wait so long whenever configs are altered, since no request tells when they are in effect."""
        self._settings_seconds = seconds

    def asked(self, key: ApiKey, version: int, /, **body: Any) -> Any:
        """The answer to a request beside a conversation; a text if there is none."""
        self.send("admin", frame(key, version, client_id="admin", **body))
        answer = self.receive("admin")
        try:
            return answer if isinstance(answer, str) else decode_response(key, version, answer)[1]
        except KafkaProtocolError as error:
            return f"undecodable: {error}"

    def _settle(self, step: Step, answer: bytes | str) -> None:
        if isinstance(answer, str) or step.raw is not None or step.lie is not None:
            return
        if step.key is ApiKey.ALTER_CONFIGS and self._settings_seconds:
            time.sleep(self._settings_seconds)
        elif step.key is ApiKey.CREATE_TOPICS and not step.body.get("validate_only"):
            try:
                body, _ = API_TABLE[step.key].response.decode(step.version, answer, body_at(step, step.version, answer))
            except KafkaProtocolError:
                return  # the transcript says so
            made = {row.name for row in body.topics if not row.error_code}
            for name, partitions, *_ in step.body["topics"]:
                topic = name.replace(PREFIX_MARK, self._prefix)
                if topic in made:
                    self.await_leaders(topic, partitions)

    def await_leaders(self, topic: str, partitions: int) -> None:
        """Wait until the partitions of a new topic have their leader, or for some seconds."""
        asked = [(number, -1, -1, 1) for number in range(partitions)]
        until = time.monotonic() + LEADER_SECONDS
        while time.monotonic() < until:
            answer = self.asked(ApiKey.LIST_OFFSETS, LIST_OFFSETS_VERSION, replica_id=-1, topics=[(topic, asked)])
            if isinstance(answer, str) or first_error(answer) not in UNFINISHED:
                return
            time.sleep(POLL_SECONDS)
