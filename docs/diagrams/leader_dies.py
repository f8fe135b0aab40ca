"""Draws docs/diagrams/leader-dies.svg: what happens when the leader of a partition dies, and when it returns.

    python docs/diagrams/leader_dies.py --record    # runs a cluster, and writes docs/diagrams/leader-dies.json
    python docs/diagrams/leader_dies.py > docs/diagrams/leader-dies.svg

The times are those of the brokers' logs, of a client, and of Metadata that is asked for all the time.
tests/test_benchmarks.py compares the drawing with the record.
"""

from __future__ import annotations

import json
import re
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple
from xml.sax.saxutils import escape

RECORD = Path(__file__).with_name("leader-dies.json")
TOPIC = "orders"
CONTROLLER, HEIR, KILLED = 1, 2, 3
ROUNDS = 5
POLL_SECONDS = 0.0005
WAIT_SECONDS = 20.0
# What a line of a broker's log means in the picture.
LINES = (
    (r"broker 3 has ended", "the lock of broker 3 is free: it has ended"),
    (r"opened 1 log after an unclean stop", "checks its log, which was not closed"),
    (r"minibroker is ready", "answers requests again, as a follower"),
    (rf"{TOPIC}-0: truncating to offset (\d+)", r"truncates its log to offset \1: what only it had is gone"),
    (rf"{TOPIC}-0: (ISR .*), was (.*)", r"\1: it has caught up"),
)
LINE = re.compile(r"(?P<time>\S+ \S+) \w+ minibroker\S*: (?P<text>.*)")

WIDTH, ROW, TOP, LEFT, LANE, TEXT = 1000, 27, 74, 100, 104, 540
LANES = ("client", "controller", "new leader", "old leader")
STYLE = """
  .page { fill: #ffffff } .lane { stroke: #9aa7b8; stroke-width: 2 } .dead { stroke-dasharray: 2 6 }
  .title { fill: #1d2733; font-weight: 600 } .text { fill: #33404f } .note { fill: #5d6b7c }
  .dot { fill: #33628f } .end { fill: #c2410c } .rule { stroke: #d4dae3 }
  text { font: 13px ui-sans-serif, system-ui, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif }
  .time { text-anchor: end } .middle { text-anchor: middle }
  @media (prefers-color-scheme: dark) {
    .page { fill: #0f141a } .lane { stroke: #56657a } .title { fill: #e8eef6 } .text { fill: #c3cedb }
    .note { fill: #8b9aad } .dot { fill: #7fb0df } .end { fill: #fb923c } .rule { stroke: #2b3644 }
  }"""


class Event(NamedTuple):
    """`after` is "kill" or "start", and `ms` the time since then; `lane` is a number of LANES."""

    after: str
    ms: float
    lane: int
    text: str


# -- the record


def recorded() -> dict[str, Any]:
    rounds = [one_round(with_controller=False) for _ in range(ROUNDS)]
    alone = [one_round(with_controller=True) for _ in range(ROUNDS)]
    shown = sorted(rounds, key=gap_ms)[ROUNDS // 2]
    return {
        "events": [each._asdict() for each in shown],
        "median_ms": {
            "the leader dies": round(statistics.median(map(gap_ms, rounds)), 1),
            "the leader dies, which controls too": round(statistics.median(map(gap_ms, alone)), 1),
        },
    }


def gap_ms(events: list[Event]) -> float:
    """How long after the kill the first broker named the new leader."""
    return next(each.ms for each in events if "Metadata" in each.text)


def one_round(*, with_controller: bool) -> list[Event]:
    """Kill the leader and start it again; what happened."""
    from confluent_kafka import Producer

    from minibroker import Cluster

    with tempfile.TemporaryDirectory() as folder, Cluster(brokers=3, log_prefix=f"{folder}/log") as cluster:
        cluster.create_topic(TOPIC)
        cluster.move_leader(TOPIC, 0, KILLED)
        wanted = KILLED if with_controller else CONTROLLER
        cluster.wait_for(lambda: cluster.controller == wanted or cluster.move_controller() == wanted)
        events: list[tuple[float, int, str]] = []
        settings = {"bootstrap.servers": cluster.bootstrap_servers, "linger.ms": 0, "log_level": 0}
        safe, quick = Producer(settings | {"acks": "all"}), Producer(settings | {"acks": 1})
        for producer in (safe, quick):
            producer.produce(TOPIC, b"before", partition=0)
            assert producer.flush(WAIT_SECONDS) == 0
        for follower in (CONTROLLER, HEIR):
            cluster.hold_follower(follower)
        quick.produce(TOPIC, b"lost", partition=0)
        assert quick.flush(WAIT_SECONDS) == 0
        safe.produce(
            TOPIC,
            b"sent once more",
            partition=0,
            on_delivery=lambda error, message: events.append(
                (time.time(), 0, f"acks=all: the waiting record has offset {message.offset()}, from the new leader")
            ),
        )
        safe.poll(0.1)
        asking = [threading.Thread(target=ask_for_leader, args=[cluster, each, events]) for each in (CONTROLLER, HEIR)]
        for each in asking:
            each.start()
        time.sleep(0.1)
        killed_at = time.time()
        cluster.kill(KILLED)
        for each in asking:
            each.join()
        cluster.release_follower()
        assert safe.flush(WAIT_SECONDS) == 0
        started_at = time.time()
        cluster.start(KILLED)
        cluster.until_isr(TOPIC, 0, {CONTROLLER, HEIR, KILLED})
        events += [
            (at, {CONTROLLER: 1, HEIR: 2, KILLED: 3}[broker], text)
            for broker in cluster.broker_ids
            for at, text in lines_of(Path(f"{folder}/log-{broker}.log"), killed_at)
        ]
    found = [Event("kill", 0.0, 3, "kill -9"), Event("start", 0.0, 3, "is started")]
    for at, lane, text in events:
        after, since = ("start", started_at) if at >= started_at else ("kill", killed_at)
        found.append(Event(after, round((at - since) * 1000, 1), lane, text))
    return sorted(found, key=lambda each: (each.after, each.ms))


def ask_for_leader(cluster: Any, broker: int, events: list[tuple[float, int, str]]) -> None:
    """Ask a broker for Metadata until it names another leader."""
    from minibroker.administration import connected
    from minibroker.protocol.api import ApiKey

    deadline = time.monotonic() + WAIT_SECONDS
    with connected(cluster.broker(broker).bootstrap_servers) as connection:
        while time.monotonic() < deadline:
            topics = connection.ask(ApiKey.METADATA, topics=None).topics
            leader = next(each for each in topics if each.name == TOPIC).partitions[0].leader_id
            if leader not in (KILLED, -1):
                events.append((time.time(), 1 if broker == CONTROLLER else 2, f"Metadata: broker {leader} leads"))
                return
            time.sleep(POLL_SECONDS)


def lines_of(path: Path, since: float) -> Iterator[tuple[float, str]]:
    for line in path.read_text().splitlines():
        found = LINE.match(line)
        at = datetime.strptime(found["time"], "%Y-%m-%d %H:%M:%S,%f").timestamp() if found else 0.0
        if found is None or at < since - 0.001:  # the log has whole milliseconds
            continue
        for pattern, text in LINES:
            if match := re.search(pattern, found["text"]):
                yield max(at, since), match.expand(text)


# -- the picture


def drawn(record: dict[str, Any]) -> str:
    events = [Event(**each) for each in record["events"]]
    height = TOP + ROW * (len(events) + 1) + 24
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" '
        'aria-label="What happens when the leader of a partition dies, and when it returns">',
        f"<style>{STYLE}\n</style>",
        f'<rect class="page" width="{WIDTH}" height="{height}"/>',
    ]
    for lane, name in enumerate(LANES):
        x = x_of(lane)
        broker = "" if lane == 0 else f"broker {lane}"
        parts.append(f'<text class="title middle" x="{x}" y="26">{name}</text>')
        parts.append(f'<text class="note middle" x="{x}" y="44">{broker}</text>')
    y_of = {number: TOP + ROW * (number + (each.after == "start")) for number, each in enumerate(events)}
    start = next(number for number, each in enumerate(events) if each.after == "start")
    last = y_of[len(events) - 1] + 14
    for lane in range(len(LANES)):
        ends = ((56, y_of[0], ""), (y_of[0], y_of[start], " dead"), (y_of[start], last, ""))
        for top, bottom, dead in ends if lane == KILLED else ((56, last, ""),):
            parts.append(f'<path class="lane{dead}" d="M{x_of(lane)} {top}V{bottom}"/>')
    rule = y_of[start] - ROW
    parts.append(f'<path class="rule" d="M16 {rule}H{WIDTH - 16}"/>')
    for number, each in enumerate(events):
        y, kind = y_of[number], "end" if each.ms == 0 else "dot"
        parts.append(f'<text class="note time" x="{LEFT - 36}" y="{y + 4}">{each.ms:.0f} ms</text>')
        parts.append(f'<circle class="{kind}" cx="{x_of(each.lane)}" cy="{y}" r="5"/>')
        parts.append(f'<text class="text" x="{TEXT}" y="{y + 4}">{escape(each.text)}</text>')
    return "\n".join([*parts, "</svg>"]) + "\n"


def x_of(lane: int) -> int:
    return LEFT + 20 + LANE * lane


if __name__ == "__main__":
    if sys.argv[1:] == ["--record"]:
        RECORD.write_text(json.dumps(recorded(), indent=1) + "\n")
    else:
        sys.stdout.write(drawn(json.loads(RECORD.read_text())))
