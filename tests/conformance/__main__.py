"""python -m tests.conformance: the same conversations with Apache Kafka 2.0.1 and minibroker, until they differ.

Scripted conversations first, then one for every seed. What differs is shrunk and printed as a script, which
`--script FILE` holds again. `--release 4.4.0` holds the conversations of the consumer protocol, which that release
brought; there `--only` may be a seed. `python -m tests.books` records the answers to the scripted ones.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.apache_kafka import KafkaUnavailable
from minibroker.conformance.generator import FAMILIES, generated
from minibroker.conformance.shrinking import shrunk
from minibroker.conformance.steps import Script, read_script, script_text
from minibroker.protocol.text import counted
from tests.conformance import consumer_groups, recordings
from tests.conformance.pair import Pair, running_pair
from tests.conformance.recordings import Subject
from tests.conformance.scripts import OF_KAFKA_2_0, OF_KAFKA_4_4

MAX_REPORTED = 10
CONVERSATIONS = 100


def main(arguments: list[str] | None = None) -> int:
    options = parser().parse_args(arguments)
    try:
        if options.release == consumer_groups.RELEASE or options.only in OF_KAFKA_4_4:
            names = [options.only] if options.only else [*OF_KAFKA_4_4, *map(str, consumer_groups.SEEDS)]
            found = Subject("", lambda seeds: consumer_groups.compared(names))
            return recordings.compare(consumer_groups.RELEASE, found, is_recorded=False)
        with tempfile.TemporaryDirectory() as directory, running_pair(Path(directory)) as pair:
            return compare(pair, options)
    except KafkaUnavailable as reason:
        print(f"Apache Kafka cannot be had: {reason}", file=sys.stderr)
        return 2


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.conformance", description=__doc__)
    parser.add_argument("--seeds", type=int, help="how many generated conversations")
    parser.add_argument("--seed", type=int, default=1, help="the first of them")
    parser.add_argument("--family", default="", choices=FAMILIES, help="only conversations of this family")
    parser.add_argument("--release", default="2.0.1", choices=("2.0.1", consumer_groups.RELEASE))
    parser.add_argument("--only", help="one scripted conversation, by its title")
    parser.add_argument("--script", type=Path, help="a conversation from a file, as this program prints them")
    return parser


def compare(pair: Pair, options: argparse.Namespace) -> int:
    if options.script:
        return report(pair, str(options.script), read_script(options.script.read_text()), is_shrunk=False)
    begun, failed = time.monotonic(), 0
    names = [options.only] if options.only else [] if options.family else list(OF_KAFKA_2_0)
    for name in names:
        failed += report(pair, name, OF_KAFKA_2_0[name](), is_shrunk=False)
    seeds = range(0) if options.only else range(options.seed, options.seed + (options.seeds or CONVERSATIONS))
    for number, seed in enumerate(seeds):
        failed += report(pair, f"seed {seed}", generated(seed, options.family), is_shrunk=True)
        if failed >= MAX_REPORTED:
            break
        if number % 100 == 99:
            print(f"{number + 1} seeds, {failed} differences, {time.monotonic() - begun:.0f} s", flush=True)
    print(
        f"{counted(len(names), 'script')} and {counted(len(seeds), 'seed')}, {counted(failed, 'difference')}, "
        f"{len(pair.vanished)} more that were not "
        f"there when held again, {time.monotonic() - begun:.0f} s"
    )
    return 1 if failed else 0


def report(pair: Pair, title: str, script: Script, *, is_shrunk: bool) -> int:
    """Print how the conversation differs; 1 if it does."""
    known = len(pair.vanished)
    found = pair.difference(script)
    for each in pair.vanished[known:]:
        print(f"-- {title} was answered differently once, and alike when held again: {each}", flush=True)
    if found is None:
        return 0
    if is_shrunk:
        script = shrunk(script, lambda candidate: pair.difference(candidate) is not None)
        found = pair.difference(script) or found
    print(f"-- {title} is answered differently\n{found}", flush=True)
    if is_shrunk:
        print(f"-- as a script:\n{script_text(script)}", flush=True)
    return 1


if __name__ == "__main__":
    sys.exit(main())
