"""Driver of kcat, the command line client on librdkafka: one process an operation.

kcat writes one record a call here (value from a file, key and headers as arguments), so a key or a header
holds text only, and it sets no timestamps. It prints headers as one text, which is reported as the value of a
header called `HEADERS_AS_TEXT`; key and value come with their lengths and are exact.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import threading
from typing import IO, Any

from tests.integration.drivers.library import Acks, Records, Settings, Start
from tests.integration.drivers.librdkafka import translate
from tests.integration.drivers.line_protocol import DeadlineError, JsonRecord, consumed, serve_driver, to_bytes

HEADERS_AS_TEXT = "(as kcat prints them)"
END_OF_RECORD = "end-of-record-5b7c0f"
KEY_DELIMITER = "=>"
RECORD_FORMAT = f"%p %o %T %K %S\n%k%s%h{END_OF_RECORD}\n"
DELIVERED = re.compile(r"Message delivered to partition (\d+) \(offset (\d+)\)")
QUERIED = re.compile(r"\[\d+\] offset (-?\d+)")


def options(settings: Settings) -> list[str]:
    given = translate(settings).items()
    pairs = [f"{name}={str(value).lower() if isinstance(value, bool) else value}" for name, value in given]
    return [word for pair in pairs for word in ("-X", pair)]


def read_record(stream: IO[bytes]) -> JsonRecord | None:
    """Read one record as RECORD_FORMAT prints it; None when the stream has ended."""
    line = stream.readline()
    if not line:
        return None
    partition, offset, timestamp_ms, key_size, value_size = (int(field) for field in line.split())
    key = stream.read(max(key_size, 0))
    value = stream.read(max(value_size, 0))
    headers = b""
    end = END_OF_RECORD.encode() + b"\n"
    while not headers.endswith(end):
        more = stream.readline()
        if not more:
            raise EOFError("kcat stopped inside a record")
        headers += more
    headers = headers[: -len(end)]
    return consumed(
        partition=partition,
        offset=offset,
        timestamp_ms=timestamp_ms,
        key=key if key_size >= 0 else None,
        value=value if value_size >= 0 else None,
        headers=[(HEADERS_AS_TEXT, headers)] if headers else [],
    )


class KcatDriver:
    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._followed: subprocess.Popen[bytes] | None = None

    def produce(self, topic: str, partition: int | None, records: Records, codec: str, settings: Settings) -> Acks:
        command = ["-P", "-t", topic, "-z", codec, "-vv", "-X", "message.timeout.ms=25000", *options(settings)]
        if partition is not None:
            command += ["-p", str(partition)]
        return [self._produce_one(record, command) for record in records]

    def _produce_one(self, record: JsonRecord, command: list[str]) -> list[Any]:
        if record["timestamp_ms"] is not None:
            raise ValueError("kcat cannot set a timestamp")
        for name, value in record["headers"]:
            command = [*command, "-H", f"{name}={os.fsdecode(to_bytes(value) or b'')}"]
        key, value = to_bytes(record["key"]), to_bytes(record["value"])
        if not value:  # kcat skips an empty file, but takes an empty value after a key on its standard input
            command = [*command, "-K", KEY_DELIMITER, *(["-Z"] if value is None else [])]
            said = self._run(command, standard_input=(key or b"") + KEY_DELIMITER.encode() + b"\n").stderr.decode()
        else:
            command = command if key is None else [*command, "-k", os.fsdecode(key)]
            with tempfile.NamedTemporaryFile() as value_file:
                value_file.write(value)
                value_file.flush()
                said = self._run([*command, value_file.name]).stderr.decode()
        delivered = DELIVERED.search(said)
        if delivered is None:
            raise RuntimeError(f"kcat did not say where the record went: {said}")
        return [int(delivered[1]), int(delivered[2]), None]

    def consume(
        self, topic: str, partitions: list[int], start: Start, settings: Settings, count: int, seconds: float
    ) -> Records:
        where = ["-p", str(partitions[0])] if len(partitions) == 1 else []
        reader = self._start(["-C", "-t", topic, *where, "-o", str(start), "-c", str(count), *options(settings)])
        return self._read(reader, count, seconds)

    def follow(self, topic: str, partition: int, settings: Settings) -> int:
        end = self._query(topic, partition, -1)
        self._followed = self._start(["-C", "-t", topic, "-p", str(partition), "-o", str(end), *options(settings)])
        return end

    def next(self, count: int, seconds: float) -> Records:
        assert self._followed is not None
        return self._read(self._followed, count, seconds)

    def offsets_for_times(self, topic: str, partition: int, timestamps_ms: list[int]) -> list[Any]:
        found = [self._query(topic, partition, timestamp_ms) for timestamp_ms in timestamps_ms]
        return [None if offset == -1 else [offset, None] for offset in found]

    def watermarks(self, topic: str, partition: int) -> list[int]:
        return [self._query(topic, partition, -2), self._query(topic, partition, -1)]

    def _query(self, topic: str, partition: int, timestamp_ms: int) -> int:
        said = self._run(["-Q", "-t", f"{topic}:{partition}:{timestamp_ms}"]).stdout.decode()
        answer = QUERIED.search(said)
        if answer is None:
            raise RuntimeError(f"kcat did not say the offset: {said}")
        return int(answer[1])

    def _run(self, arguments: list[str], standard_input: bytes = b"") -> subprocess.CompletedProcess[bytes]:
        command = ["kcat", "-b", self._bootstrap, *arguments]
        done = subprocess.run(command, input=standard_input, capture_output=True, timeout=30, check=False)
        if done.returncode:
            raise RuntimeError(f"{' '.join(command)}: {done.stderr.decode(errors='replace')}")
        return done

    def _start(self, arguments: list[str]) -> subprocess.Popen[bytes]:
        if self._followed is not None:
            self._followed.kill()
            self._followed.communicate()
            self._followed = None
        command = ["kcat", "-b", self._bootstrap, "-q", "-u", "-f", RECORD_FORMAT, *arguments]
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)

    def _read(self, reader: subprocess.Popen[bytes], count: int, seconds: float) -> Records:
        assert reader.stdout is not None
        expire = threading.Timer(seconds, reader.kill)
        expire.start()
        found: Records = []
        try:
            while len(found) < count:
                record = read_record(reader.stdout)
                if record is None:
                    raise DeadlineError(f"kcat ended with {len(found)} of {count} records")
                found.append(record)
        finally:
            expire.cancel()
        if reader is not self._followed:
            reader.kill()
            reader.communicate()
        return found


if __name__ == "__main__":
    serve_driver(KcatDriver(sys.argv[1]))
