"""The pictures of the lives of a fetch and of a poll, and of the README, made by the console itself from recorded runs.

    python -m tests.console.pictures           records a run of real clients, then draws
    python -m tests.console.pictures --draw    draws what is recorded

A scene is what the console answered at one moment: the page gets these answers again, and is the same each time. Each
picture is drawn in both themes. A test draws all scenes and compares.
"""

from __future__ import annotations

import argparse
import json
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple
from urllib.parse import quote, unquote, urlsplit

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from minibroker import Broker
from tests.console.conftest import CHROMIUM_OPTIONS, RunningConsole, console_of, find_chromium

if TYPE_CHECKING:
    from playwright.sync_api import Page, Route

ROOT = Path(__file__).parents[2]
PICTURES = ROOT / "docs" / "pictures"
RECORDED = PICTURES / "recorded.json"
TOPIC = "orders"
PARTITIONS = 3
NOWHERE = "127.0.0.1:1"
QUICK_US = 2_000  # a produce that another process has delayed explains nothing
PAGE_SIZE = (1280, 1000)
RECORD_BYTES = 560
FIRST_RECORDS = 1_300
LOG_START = 180
SETTLE_SECONDS = 12.0  # until the group has its assignment

Json = Any
Theme = Literal["light", "dark"]
THEMES: tuple[Theme, ...] = ("light", "dark")


class Picture(NamedTuple):
    """A part of the page in a scene: `panel` is a selector, `query` what the address has beside moment and request."""

    name: str
    scene: str
    panel: str
    query: str = ""

    def path(self, theme: Theme) -> Path:
        return PICTURES / f"{self.name}{'-dark' if theme == 'dark' else ''}.png"


PICTURES_OF_A_FETCH = [
    Picture("fetch-1-arrives", "woken", ".requests-panel"),
    Picture("fetch-2-parked", "waiting", ".request-panel"),
    Picture("fetch-3-wheel", "waiting", ".wheel-panel"),
    Picture("fetch-4-append", "produce", ".request-panel"),
    Picture("fetch-5-woken", "woken", ".request-panel"),
    Picture("fetch-6-log", "woken", ".log-panel"),
    Picture("fetch-7-bytes", "sendfile", ".request-panel"),
    Picture("fetch-8-story", "woken", ".story-panel"),
]
PICTURES_OF_A_POLL = [
    Picture("poll-1-start", "first", ".requests-panel", "&span=1"),
    Picture("poll-2-first-fetch", "first", ".request-panel"),
]
CONSOLE = Picture("console", "woken", "body")
ALL_PICTURES = [*PICTURES_OF_A_FETCH, *PICTURES_OF_A_POLL, CONSOLE]


# Recording


class Clients:
    """Real clients, each in a thread, until the end of the block."""

    def __init__(self, broker: Broker) -> None:
        self._bootstrap = broker.bootstrap_servers
        self._ended = threading.Event()
        self._threads: list[threading.Thread] = []

    def __enter__(self) -> Clients:
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join()

    def _start(self, work: Callable[[], None]) -> None:
        thread = threading.Thread(target=work)
        thread.start()
        self._threads.append(thread)

    def settings(self, client_id: str, **more: object) -> dict[str, Any]:
        return {"bootstrap.servers": self._bootstrap, "client.id": client_id, "log_level": 0, **more}

    def produce(self, client_id: str, every_seconds: float, partition: int, **more: object) -> None:
        def work() -> None:
            producer = Producer(self.settings(client_id, **{"linger.ms": 0, **more}))
            while not self._ended.wait(every_seconds):
                for _ in range(2):
                    producer.produce(TOPIC, b"x" * RECORD_BYTES, partition=partition)
                producer.flush()

        self._start(work)

    def commit(self, client_id: str, every_seconds: float) -> None:
        """Transactions, one after the other, each open for a while."""

        def work() -> None:
            producer = Producer(self.settings(client_id, **{"transactional.id": client_id, "linger.ms": 0}))
            producer.init_transactions()
            while not self._ended.is_set():
                producer.begin_transaction()
                producer.produce(TOPIC, b"x" * RECORD_BYTES, partition=0)
                producer.flush()
                self._ended.wait(every_seconds)
                producer.commit_transaction()

        self._start(work)

    def follow(self, client_id: str, group: str | None, max_wait_ms: int) -> None:
        """Follow the topic with kafka-python, whose fetches have sessions."""
        from kafka import KafkaConsumer
        from kafka import TopicPartition as Place

        def work() -> None:
            consumer = KafkaConsumer(
                bootstrap_servers=self._bootstrap,
                client_id=client_id,
                group_id=group,
                fetch_max_wait_ms=max_wait_ms,
                auto_commit_interval_ms=400,
                auto_offset_reset="earliest",
            )
            if group is None:
                consumer.assign([Place(TOPIC, partition) for partition in range(PARTITIONS)])
                consumer.seek_to_end()
            else:
                consumer.subscribe([TOPIC])
            while not self._ended.is_set():
                consumer.poll(timeout_ms=100)
            consumer.close()

        self._start(work)

    def read_again(self, client_id: str, every_seconds: float) -> None:
        """Read the first segments again and again, as a job that catches up does."""

        def work() -> None:
            catching_up = {"group.id": client_id, "enable.auto.commit": False, "max.partition.fetch.bytes": 300_000}
            consumer = Consumer(self.settings(client_id, **catching_up))
            while not self._ended.wait(every_seconds):
                consumer.assign([TopicPartition(TOPIC, 0, 400)])
                consumer.consume(50, 1.0)
            consumer.close()

        self._start(work)


def fill(broker: Broker) -> None:
    """Several segments, of which the first ones lie below the log start offset in part."""
    settings = {"segment.bytes": "262144", "index.interval.bytes": "4096"}
    broker.create_topic(TOPIC, partitions=PARTITIONS, configs=settings)
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "linger.ms": 0, "batch.num.messages": 2})
    for _ in range(FIRST_RECORDS):
        producer.produce(TOPIC, b"x" * RECORD_BYTES, partition=0)
        producer.poll(0)
    producer.flush()
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    deleted = admin.delete_records([TopicPartition(TOPIC, 0, LOG_START)])
    for future in deleted.values():
        future.result()


class Recorder:
    """Asks a console as a page does."""

    def __init__(self, console: RunningConsole) -> None:
        self._url = console.url

    def get(self, path: str) -> Json:
        with urllib.request.urlopen(self._url + path) as response:
            return json.load(response)

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Keep a stream open, as a page would; the broker records meanwhile."""
        ended = threading.Event()
        with urllib.request.urlopen(self._url + "/api/stream/inside") as stream:

            def read() -> None:
                while not ended.is_set() and stream.readline():
                    pass

            reader = threading.Thread(target=read)
            reader.start()
            try:
                yield
            finally:
                ended.set()
                reader.join()

    def scene(self, choose: Callable[[Json], Json | None]) -> Json:
        """The moment at which `choose` finds a row in what is kept, with all that the page asks for then."""
        for _ in range(600):
            kept = self.get("/api/inside/exchanges")
            row = choose(kept)
            moment = None if row is None else self._moment(choose.__name__, kept, row)
            if moment is not None:
                return moment
            time.sleep(0.05)
        raise SystemExit("the run had no such request; record again")

    def one_fetch(self) -> dict[str, Json]:
        """The scenes of one fetch: while it waits, the produce that wakes it, and when it was woken."""
        for _ in range(100):
            waits = self.scene(waiting)
            ended = self._ended(waits["seq"])
            if ended is None or not is_woken(*ended):
                continue
            kept, row, waker = ended
            scenes = {"woken": self._moment("woken", kept, row), "produce": self._moment("produce", kept, waker)}
            if all(scenes.values()):
                return {"waiting": waits, **scenes}
        raise SystemExit("no fetch was woken as the document tells it; record again")

    def _ended(self, seq: int) -> tuple[Json, Json, Json] | None:
        """Return a fetch that has ended, its row, and that of what woke it; None if that is not kept."""
        for _ in range(40):
            kept = self.get("/api/inside/exchanges")
            rows = {row["seq"]: row for row in rows_in(kept)}
            if seq in rows:
                waker = rows.get(rows[seq]["woken_by"])
                return None if waker is None else (kept, rows[seq], waker)
            time.sleep(0.05)
        return None

    def _moment(self, name: str, kept: Json, row: Json) -> Json | None:
        """All that the page asks for then; None if a request that waited has ended meanwhile."""
        seq, waits = row["seq"], row["outcome"] == "waits"
        took_us = max(row["handled"], row["answered"], row["sent"])
        at_us = kept["now_us"] if waits else row["arrived"] + took_us + 450_000
        answers = {
            "/api/inside/purgatory": self.get("/api/inside/purgatory"),
            f"/api/inside/exchanges/{seq}": self.get(f"/api/inside/exchanges/{seq}"),
        }
        explained = answers[f"/api/inside/exchanges/{seq}"]
        if waits and explained["outcome"] != "waits":
            return None
        partitions = (explained["fetch"] or explained["produce"])["partitions"]
        chosen = next((each for each in partitions if each["bytes"]), partitions[0] if partitions else None)
        if chosen is not None:
            offset = chosen.get("asked_offset", chosen["base_offset"])
            path = f"/api/inside/log/{quote(chosen['topic'])}/{chosen['partition']}"
            answers[path] = self.get(f"{path}?offset={offset}")
        if not SUITS.get(name, lambda _: True)(answers):
            return None
        if not waits:
            while (kept := self.get("/api/inside/exchanges"))["now_us"] < at_us + 200_000:
                time.sleep(0.05)
        rows = [each for each in rows_in(kept) if at_us - 2_500_000 <= each["arrived"] <= at_us]
        answers["/api/inside/exchanges"] = kept | {"exchanges": [list(each.values()) for each in rows]}
        return {"at": at_us, "seq": seq, "answers": answers}


def rows_in(kept: Json, kind: str = "exchanges") -> list[Json]:
    return [dict(zip(kept["fields"], row, strict=True)) for row in kept[kind]]


def parked_at(row: Json, client: str) -> bool:
    return bool(row["client"] == client and row["api"] == "Fetch")


def is_woken(_: Json, row: Json, waker: Json) -> bool:
    """Whether one produce to the partition of a fetch woke it after a while, and both took as long as they need."""
    by_appending = (row["outcome"], row["case"]) == ("woken", "D") and waker["client"] == "orders-api"
    return bool(by_appending and waker["woke"] and 120_000 < row["woken"] < 400_000 and waker["answered"] < QUICK_US)


def waiting(kept: Json) -> Json | None:
    for row in rows_in(kept, "waiting"):
        since_us = kept["now_us"] - row["arrived"]
        if parked_at(row, "billing-1") and row["outcome"] == "waits" and 100_000 < since_us < 350_000:
            return row
    return None


def sendfile(kept: Json) -> Json | None:
    rows = reversed(rows_in(kept))
    return next((row for row in rows if row["client"] == "archive" and row["bytes_out"] > 100_000), None)


def first(kept: Json) -> Json | None:
    rows = rows_in(kept)
    return next((row for row in rows if parked_at(row, "billing-1") and row["bytes_out"] > 3 * RECORD_BYTES), None)


def has_its_flags(answers: Json) -> bool:
    """Whether an open transaction keeps the last stable offset below the high watermark, among the batches shown."""
    log = answers.get(f"/api/inside/log/{TOPIC}/0")
    if log is None or not log["batches"]:
        return False
    return bool(log["batches"][0]["base_offset"] < log["last_stable_offset"] < log["high_watermark"])


SUITS: dict[str, Callable[[Json], bool]] = {"woken": has_its_flags}


@contextmanager
def recorded(prepare: Callable[[Broker], object]) -> Iterator[tuple[Recorder, Clients]]:
    """A broker, and its console that is watched from when `prepare` is done."""
    with ExitStack() as at_end:
        broker = at_end.enter_context(Broker(control=True, settings={"group.initial.rebalance.delay.ms": 0}))
        prepare(broker)
        console = at_end.enter_context(console_of(broker.bootstrap_servers, "--control", broker.control_path))
        recorder = Recorder(console)
        at_end.enter_context(recorder.watching())
        yield recorder, at_end.enter_context(Clients(broker))


def three_orders(broker: Broker) -> None:
    broker.create_topic(TOPIC)
    broker.produce(TOPIC, [b"x" * RECORD_BYTES] * 3)


def record() -> None:
    """Run a broker, its console and real clients, once for each life; keep what the console answers."""
    with recorded(fill) as (recorder, clients):
        clients.produce("orders-api", 0.39, 0)
        clients.produce("sensors", 0.13, 2)
        clients.commit("ledger", 0.9)
        clients.follow("billing-1", "billing", 500)
        clients.follow("billing-2", "billing", 500)
        clients.follow("audit", None, 300)
        clients.read_again("archive", 0.35)
        time.sleep(SETTLE_SECONDS)
        scenes = {**recorder.one_fetch(), "sendfile": recorder.scene(sendfile)}
    with recorded(three_orders) as (recorder, clients):
        clients.follow("billing-1", "billing", 500)
        scenes["first"] = recorder.scene(first)
    RECORDED.write_text(compact(scenes) + "\n", encoding="utf-8")


def compact(value: Json, depth: int = 0) -> str:
    """JSON with an exchange a line, so that a new recording can be read as a change."""
    margin, after = " " * (depth + 1), "\n" + " " * depth
    if isinstance(value, dict) and depth < 4:
        rows = [f"{margin}{json.dumps(name)}: {compact(each, depth + 1)}" for name, each in value.items()]
        return "{\n" + ",\n".join(rows) + after + "}"
    if isinstance(value, list) and value and isinstance(value[0], list | dict):
        return "[\n" + ",\n".join(margin + json.dumps(each) for each in value) + after + "]"
    return json.dumps(value)


# Drawing


def fulfil(page: Page, scene: Json) -> None:
    """Give `page` the answers of a scene."""
    others = {
        "/api/cluster": {"control": True, "changes": True, "bootstrap": "127.0.0.1:9092", "version": "2.0"},
        "/api/faults": {"faults": []},
    }

    def answer(route: Route) -> None:
        path = unquote(urlsplit(route.request.url).path)
        answers = others | scene["answers"]
        if path in answers:
            route.fulfill(json=answers[path])
        else:
            route.fulfill(status=404, json={"error": f"{path} was not recorded"})

    page.route("**/api/**", answer)


def address_of(scene: Json, query: str = "", *, with_request: bool = True) -> str:
    """The address of the page at the scene's moment, with its request chosen."""
    chosen = f"&seq={scene['seq']}" if with_request else ""
    return f"/inside?at={scene['at']}{chosen}{query}"


def wait_until_drawn(page: Page, *, with_request: bool = True) -> None:
    page.locator("a.exchange").first.wait_for(state="attached")
    page.locator(".wheel").wait_for()
    if with_request:
        page.locator(".steps").wait_for()


def drawn(page: Page, console: RunningConsole, picture: Picture, scenes: Json, theme: Theme) -> bytes:
    """The PNG of one picture."""
    scene = scenes[picture.scene]
    page.emulate_media(color_scheme=theme)
    page.unroute_all()
    fulfil(page, scene)
    page.goto(f"{console.url}{address_of(scene, picture.query)}#token={console.token}")
    page.wait_for_function("document.fonts.ready.then(() => true)")
    wait_until_drawn(page)
    if picture.panel == "body":
        return page.screenshot(animations="disabled")
    return page.locator(picture.panel).screenshot(animations="disabled")


def draw() -> None:
    """Draw all pictures of what is recorded."""
    from playwright.sync_api import sync_playwright

    scenes = json.loads(RECORDED.read_text(encoding="utf-8"))
    with console_of(NOWHERE, "--allow-changes") as console, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=find_chromium(), args=CHROMIUM_OPTIONS)
        page = browser.new_page(viewport={"width": PAGE_SIZE[0], "height": PAGE_SIZE[1]}, reduced_motion="reduce")
        for picture, theme in product(ALL_PICTURES, THEMES):
            picture.path(theme).write_bytes(drawn(page, console, picture, scenes, theme))
        browser.close()


def main() -> None:
    cli = argparse.ArgumentParser(prog="python -m tests.console.pictures")
    cli.add_argument("--draw", action="store_true", help="draw what is recorded, record nothing")
    if not cli.parse_args().draw:
        record()
    draw()


if __name__ == "__main__":
    main()
