"""`python -m tests.nemesis`: rounds of a cluster under faults, whose clients' history is judged in the end.

A round prints its seed, and everything that is drawn from it. A failing one keeps its directory, and is repeated by
`--seed N --rounds 1` with the same other options; threads and processes do not repeat to the millisecond.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.nemesis.plan import KINDS, OURS, Plan, draw
from tests.nemesis.rounds import CLIENTS_LOG, Round

SECONDS = 6.0
BESIDE_KAFKA_SECONDS = 20.0  # its brokers take seconds to start


@contextmanager
def logging_to(path: Path) -> Iterator[None]:
    """Have librdkafka write its log into a file: it knows only stderr."""
    stderr = os.dup(2)
    with path.open("wb") as file:
        os.dup2(file.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(stderr, 2)
        os.close(stderr)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.nemesis", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=10, help="how many (10)")
    parser.add_argument("--seed", type=int, default=int(time.time()), help="of the first round; the next has one more")
    parser.add_argument("--brokers", type=int, choices=range(3, 6), help="drawn for each round, unless given")
    parser.add_argument(
        "--seconds", type=float, help=f"of faults in a round ({SECONDS:g}; {BESIDE_KAFKA_SECONDS:g} beside Kafka)"
    )
    parser.add_argument(
        "--kind", choices=KINDS, default=OURS, help="ours; Apache Kafka 2.0.1; or mixed, two of ours and one of Kafka"
    )
    options = parser.parse_args()
    seconds = options.seconds or (SECONDS if options.kind == OURS else BESIDE_KAFKA_SECONDS)
    if options.rounds == 1:
        return judged_round(draw(options.seed, seconds=seconds, brokers=options.brokers, kind=options.kind))
    failed = []
    for seed in range(options.seed, options.seed + options.rounds):
        # Each in a process of its own: clients of one round must not meet the brokers of the next.
        brokers = () if options.brokers is None else ("--brokers", str(options.brokers))
        arguments = ("--rounds", "1", "--seed", str(seed), "--seconds", str(seconds), "--kind", options.kind, *brokers)
        if subprocess.run([sys.executable, "-m", "tests.nemesis", *arguments], check=False).returncode != 0:
            failed.append(seed)
    print(f"{options.rounds - len(failed)} of {options.rounds} rounds without findings; failed: {failed or 'none'}")
    return 1 if failed else 0


def judged_round(plan: Plan) -> int:
    """Run a round, and print what is wrong; return the exit status."""
    print(plan, flush=True)
    directory = Path(tempfile.mkdtemp(prefix=f"nemesis-{plan.seed}-"))
    began = time.monotonic()
    try:
        with logging_to(directory / CLIENTS_LOG):
            wrong = Round(plan, directory).run()
    except Exception:
        wrong = [traceback.format_exc()]
    print(f"  {'FAILED' if wrong else 'ok'} in {time.monotonic() - began:.1f} s", flush=True)
    if wrong:
        (directory / "wrong").write_text("\n".join(wrong))
        print("\n".join(f"  {each}" for each in wrong), f"  kept: {directory}", sep="\n", flush=True)
    else:
        shutil.rmtree(directory)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
