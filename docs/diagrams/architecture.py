"""Draws docs/diagrams/architecture.svg: the parts of minibroker, and a FETCH's way through them.

    python docs/diagrams/architecture.py > docs/diagrams/architecture.svg

tests/test_layering.py compares the two, and looks that every file named here is there.
"""

from __future__ import annotations

from typing import NamedTuple
from xml.sax.saxutils import escape

WIDTH, HEIGHT = 1270, 868
ROW_HEIGHT = 20

STYLE = """
  .page { fill: #ffffff } .band { fill: #f3f5f8; stroke: #d4dae3 } .box { fill: #ffffff; stroke: #9aa7b8 }
  .title { fill: #1d2733; font-weight: 600 } .text { fill: #33404f } .note { fill: #5d6b7c }
  .way { stroke: #c2410c; fill: none; stroke-width: 2 } .head, .stop { fill: #c2410c } .number { fill: #ffffff }
  .on { fill: #fff4ec; stroke: #c2410c } .wait { stroke-dasharray: 5 4 }
  text { font: 13px ui-sans-serif, system-ui, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif }
  .mono { font: 12px ui-monospace, SFMono-Regular, Menlo, 'DejaVu Sans Mono', monospace }
  .number { font-size: 11px; font-weight: 700; text-anchor: middle }
  @media (prefers-color-scheme: dark) {
    .page { fill: #0f141a } .band { fill: #171e27; stroke: #2b3644 } .box { fill: #0f141a; stroke: #56657a }
    .title { fill: #e8eef6 } .text { fill: #c3cedb } .note { fill: #8b9aad }
    .way { stroke: #fb923c } .head, .stop { fill: #fb923c } .number { fill: #10151b }
    .on { fill: #2a1d13; stroke: #fb923c }
  }"""


class Part(NamedTuple):
    """A band of the picture: a folder, and the files in it that a FETCH passes or a reader begins with."""

    x: int
    y: int
    width: int
    folder: str
    says: str
    files: tuple[tuple[str, str], ...]  # name, and what it does
    is_on_the_way: bool = False

    @property
    def height(self) -> int:
        return 34 + ROW_HEIGHT * len(self.files) + (8 if self.files else 0)


PARTS = (
    Part(
        420,
        92,
        450,
        "broker/network/",
        "one epoll, one task a connection",
        (
            ("poller.py", "which connections have bytes"),
            ("connection.py", "frames in, answers out, in order"),
            ("response.py", "send and sendfile"),
        ),
        True,
    ),
    Part(
        420,
        222,
        450,
        "broker/way/, apis/",
        "a list of stages, then a family of handlers",
        (
            ("way/codec.py", "frame -> request -> handler -> response"),
            ("apis/fetch.py", "which partitions, and what to answer"),
        ),
        True,
    ),
    Part(
        420,
        332,
        450,
        "broker/replica/",
        "partitions, and who waits for them",
        (
            ("replica_manager.py", "append, fetch, delete_records"),
            ("fetch_context.py", "the session: rows in, changes out"),
            ("fetch.py", "one byte budget; cases A to E"),
            ("partition_read.py", "the high watermark bounds a reader"),
            ("leading.py", "replicas in sync, high watermark"),
        ),
        True,
    ),
    Part(
        420,
        502,
        450,
        "storage/",
        "files < index < producers < segment < log",
        (
            ("log/log.py", "the log of one partition"),
            ("segment/log_segment.py", "offset -> position -> a FileSlice"),
            ("index/indexes.py", "a sparse index, mapped"),
        ),
        True,
    ),
    Part(
        940,
        92,
        310,
        "protocol/",
        "the wire, pure",
        (
            ("framing.py", "cuts frames"),
            ("api.py", "decode, encode"),
            ("messages/fetch.py", "one declaration"),
            ("record_batch.py", "batches"),
        ),
        True,
    ),
    Part(
        940,
        332,
        310,
        "purgatory/",
        "waiting, without a clock",
        (
            ("purgatory.py", "by key"),
            ("timing_wheel.py", "by deadline"),
        ),
        True,
    ),
    Part(
        940,
        448,
        310,
        "broker/",
        "",
        (
            ("pending.py", "a value to come"),
            ("parts.py", "builds every part"),
        ),
        True,
    ),
    Part(
        20,
        222,
        345,
        "broker/group/, transaction/",
        "coordinate",
        (
            ("group/membership.py", "who is in a group"),
            ("group/offset_manager.py", "what it committed"),
            ("transaction/coordinator.py", "exactly once"),
        ),
    ),
    Part(
        20,
        362,
        345,
        "broker/cluster/, upkeep/",
        "beside the requests",
        (
            ("cluster/controller.py", "topics, leaders"),
            ("upkeep/upkeep.py", "retention, flushes"),
        ),
    ),
    Part(20, 482, 345, "storage/compaction/", "in a thread", (("log_cleaner.py", "the newest of each key"),)),
    Part(
        20,
        92,
        345,
        "src/minibroker/",
        "what users touch",
        (
            ("cli/app.py", "minibroker topics, consume ..."),
            ("pytest_plugin.py", "a broker for a session"),
            ("process.py", "a broker of one's own"),
        ),
    ),
)

# Number, place, what happens there.
STEPS = (
    (1, 392, 74, "bytes arrive: the poller calls the connection, framing cuts a frame out of its buffer"),
    (2, 392, 204, "the codec decodes the request by its declaration; the stages lead it to its handler"),
    (3, 392, 314, "the session gives the rows: an incremental request names only what it changes"),
    (4, 392, 414, "the rows are read in order under one byte budget, each up to the high watermark"),
    (5, 392, 484, "the log finds the segment, the sparse index a position: the records are a slice of a file"),
    (6, 905, 384, "too little, and time to wait: a DelayedFetch is watched; nothing runs for it"),
    (7, 905, 474, "an append completes it: its Pending is resolved in the call of the producer"),
    (8, 895, 314, "the session keeps what was answered, and only what has changed is"),
    (9, 905, 144, "the answer is encoded: [bytes, FileSlice, bytes, ...]"),
    (10, 895, 74, "bytes leave by send, records by sendfile from the page cache, without a copy"),
)


def text(x: float, y: float, content: str, kind: str) -> str:
    return f'<text x="{x}" y="{y}" class="{kind}">{escape(content)}</text>'


def part(each: Part) -> list[str]:
    name = "band on" if each.is_on_the_way else "band"
    lines = [f'<rect x="{each.x}" y="{each.y}" width="{each.width}" height="{each.height}" rx="8" class="{name}"/>']
    lines.append(text(each.x + 12, each.y + 22, each.folder, "title mono"))
    if each.says:
        lines.append(text(each.x + 24 + 7.3 * len(each.folder), each.y + 22, each.says, "note"))
    for number, (file, does) in enumerate(each.files):
        y = each.y + 46 + ROW_HEIGHT * number
        lines.append(text(each.x + 24, y, file, "text mono"))
        lines.append(text(each.x + 36 + 7.3 * len(file), y, does, "note"))
    return lines


def way(points: str, kind: str = "way") -> str:
    return f'<path d="{points}" class="{kind}" marker-end="url(#head)"/>'


def stop(number: int, x: int, y: int) -> list[str]:
    return [f'<circle cx="{x}" cy="{y}" r="9" class="stop"/>', text(x, y + 4, str(number), "number")]


def picture() -> str:
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        'aria-label="The parts of minibroker, and a FETCH\'s way through them">',
        f"<style>{STYLE}\n</style>",
        '<defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        '<path d="M0 0 L8 4 L0 8 z" class="head"/></marker></defs>',
        f'<rect width="{WIDTH}" height="{HEIGHT}" class="page"/>',
        '<rect x="420" y="20" width="450" height="34" rx="8" class="box"/>',
        text(432, 42, "a consumer: FETCH, session 7, epoch 3, wait 500 ms", "title"),
        '<rect x="420" y="632" width="450" height="34" rx="8" class="box"/>',
        text(432, 654, "00000000000000000000.log  .index  .timeindex", "text mono"),
        '<rect x="20" y="20" width="345" height="34" rx="8" class="box"/>',
        text(32, 42, "kafka-python, librdkafka, Java, Spark, ...", "text"),
    ]
    for each in PARTS:
        lines += part(each)
    lines += [
        way("M367 38 L418 38"),
        way("M392 54 L392 110 L418 110"),
        way("M392 120 L392 240 L418 240"),
        way("M392 250 L392 350 L418 350"),
        way("M392 360 L392 520 L418 520"),
        way("M392 530 L392 649 L418 649"),
        way("M870 384 L938 384", "way wait"),
        way("M1095 424 L1095 446", "way wait"),
        way("M938 474 L872 474", "way wait"),
        way("M895 520 L895 144 L938 144"),
        way("M895 130 L895 38 L872 38"),
    ]
    for number, x, y, _ in STEPS:
        lines += stop(number, x, y)
    for place, (number, _, _, says) in enumerate(STEPS):
        column, row = divmod(place, 5)
        x, y = 30 + column * 620, 706 + row * 30
        lines += stop(number, x, y)
        lines.append(text(x + 18, y + 4, says, "text"))
    return "\n".join([*lines, "</svg>"])


if __name__ == "__main__":
    print(picture())
