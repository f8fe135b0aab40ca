"""`minibroker conform`: judges any broker that speaks Kafka by what Apache Kafka answers to the same requests.

Exit status: 0 without a difference, 1 with one, 2 for a broker that cannot be judged, 130 if it is interrupted.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Mapping, Sequence
from itertools import islice

from minibroker.client.address import parse_address
from minibroker.conformance.generator import FAMILIES
from minibroker.conformance.judge import BrokerUnusableError, Judge
from minibroker.conformance.recordings import NAMES, Name, books, name_of, read_recording
from minibroker.conformance.report import Report
from minibroker.conformance.steps import KEYS
from minibroker.protocol.arguments import Arguments
from minibroker.protocol.text import counted

CONVERSATIONS = 2000
PROGRESS_SECONDS = 5.0
INTERRUPTED = 130
EPILOG = """examples:
  minibroker conform localhost:9092 --as 2.0
  minibroker conform localhost:9092 --as 3.9 --only Fetch --skip transactions
  minibroker conform localhost:9092 --as 4.4 -o html > report.html

Start the broker with the settings that `minibroker conform --settings` prints:
records of 2017 stay, and groups do not wait."""


def name_of_part(text: str) -> str:
    families = {*FAMILIES, *books()}
    known = {each.lower(): each for each in (*families, *KEYS)}
    if text.lower() not in known:
        raise argparse.ArgumentTypeError(
            f"{text!r} is no API and no family; an API is Fetch or Produce, a family {', '.join(sorted(families))}"
        )
    return known[text.lower()]


def seed_number(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 1 on")
    return int(text)


def arguments() -> argparse.ArgumentParser:
    parser = Arguments(
        prog="minibroker conform",
        description="Hold conversations with a broker whose answers of Apache Kafka are recorded, and print what it"
        " answers otherwise: the fewest requests that show it, and both answers field by field.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("address", nargs="?", metavar="HOST:PORT", help="a listener without TLS and login")
    parser.add_argument("--as", dest="release", choices=NAMES, default="2.0", help="the release to compare with (2.0)")
    parser.add_argument(
        "--only", action="append", type=name_of_part, default=[], metavar="NAME",
        help="an API, or a family or book of conversations: records, groups, sessions ...; may be repeated",
    )  # fmt: skip
    parser.add_argument(
        "--skip", action="append", type=name_of_part, default=[], metavar="NAME", help="leave out such a one"
    )
    parser.add_argument("--seeds", type=seed_number, default=CONVERSATIONS, metavar="N", help="how many (2000)")
    parser.add_argument(
        "--seed",
        type=name_of,
        metavar="NAME",
        help="hold this conversation alone: a seed, or the title of one of a book",
    )
    parser.add_argument("-o", "--output", choices=("text", "json", "html"), default="text", help="what to print (text)")
    parser.add_argument(
        "--settings", action="store_true", help="print the settings that the broker is to have, and end"
    )
    return parser


def main(argv: Sequence[str]) -> int:
    """Judge; return the exit status."""
    parser = arguments()
    options = parser.parse_args(argv)
    if options.settings:
        settings = read_recording(options.release).settings
        print("".join(f"{name}={value}\n" for name, value in settings.items()), end="")
        return 0
    if options.address is None:
        parser.error("name the broker, as in `minibroker conform localhost:9092`")
    try:
        address = parse_address(options.address)
    except ValueError as error:
        parser.error(str(error))
    recording = read_recording(options.release)
    if options.seed is not None and options.seed not in recording.digests:
        parser.error(f"seed {options.seed} is not recorded for {options.release}; --seed takes one that a report names")
    begun, status = time.monotonic(), 1
    try:
        with Judge(*address, recording, only=options.only, skip=options.skip) as judge:
            if judge.other_settings:
                print(
                    settings_told(options.address, options.release, judge.other_settings), file=sys.stderr, flush=True
                )
            names = [options.seed] if options.seed is not None else list(islice(judge.names(), options.seeds))
            try:
                ended = judged(judge, names)
            except KeyboardInterrupt:
                ended, status = "interrupted", INTERRUPTED
            report = Report(options.address, recording.release, judge, time.monotonic() - begun, ended)
    except (BrokerUnusableError, OSError) as error:
        print(f"minibroker conform: {options.address} cannot be judged: {error}", file=sys.stderr)
        return 2
    print({"text": report.text, "json": report.json, "html": report.html}[options.output]())
    return 0 if report.is_alike else status


def settings_told(address: str, release: str, others: Mapping[str, tuple[str | None, str]]) -> str:
    lines = [f"  {name}={'' if has is None else has}, not {wanted}" for name, (has, wanted) in others.items()]
    return "\n".join(
        [
            f"{address} has other settings than what was recorded; differences and long waits follow from them:",
            *lines,
            f"Start it with the settings that `minibroker conform --as {release} --settings` prints.",
        ]
    )


def judged(judge: Judge, names: Sequence[Name]) -> str:
    """Judge these conversations, and show how far it is now and then; return why that ended early, or nothing."""
    begun = shown = time.monotonic()
    try:
        for _ in judge.judge_all(names):
            now = time.monotonic()
            if now - shown >= PROGRESS_SECONDS:
                shown = now
                differences = counted(len(judge.findings), "difference")
                print(
                    f"{judge.held} of {len(names)} held, {differences}, {now - begun:.0f} s",
                    file=sys.stderr,
                    flush=True,
                )
    except OSError as error:
        return f"ended since the broker takes no more connections: {error}"
    return "ended with so many; --skip what is known" if judge.is_full else ""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
