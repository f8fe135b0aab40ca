"""`minibroker simulate`: runs a cluster, its clients and their faults in this process, each run from a seed.

Exit status: 0 without findings, 1 with some, 2 for what cannot be run.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import signal
import sys
import time
import traceback
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import TYPE_CHECKING, Any, NamedTuple

from minibroker.protocol.arguments import Arguments

if TYPE_CHECKING:
    from minibroker.simulation.plan import Plan

SHRINK_SECONDS = 60.0
SHOWN = 5  # findings of a run
EPILOG = """examples:
  minibroker simulate --brokers 3 --seeds 200
  minibroker simulate --zookeeper --seeds 200
  minibroker simulate --brokers 3 --seed 17 -o json
  minibroker simulate --brokers 3 --seed 17 --shrink
  minibroker simulate --brokers 3 --seed 17 --only 1,4 --cause
  minibroker simulate --history kip-101 --seeds 500"""


class Cluster(NamedTuple):
    """The cluster of a run, as the options of the command that name it."""

    brokers: int
    is_beside_zookeeper: bool

    def __str__(self) -> str:
        return f"--brokers {self.brokers}{' --zookeeper' if self.is_beside_zookeeper else ''}"

    def draw(self, seed: int) -> Plan:
        from minibroker.simulation.plan import draw

        return draw(seed, self.brokers, is_beside_zookeeper=self.is_beside_zookeeper)


def at_least_one(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 1 on")
    return int(text)


def places(text: str) -> list[int]:
    """Read the places of events in a plan; none in an empty text. Raises ArgumentTypeError."""
    if not text:
        return []
    if not all(each.isdecimal() for each in text.split(",")):
        raise argparse.ArgumentTypeError(f"{text!r} is not N,N as --shrink prints it")
    return [int(each) for each in text.split(",")]


def arguments() -> argparse.ArgumentParser:
    parser = Arguments(
        prog="minibroker simulate",
        description="Look for lost, repeated and reordered records in a simulated cluster: real brokers and clients in"
        " one process, over a network, disks and clocks that fail as a seed says.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--brokers", type=int, choices=(1, 3), default=None, help="1, or 3 with their shared state (3)")
    parser.add_argument("--zookeeper", action="store_true", help="their state is in ZooKeeper's nodes, as beside Kafka")
    parser.add_argument(
        "--seeds", type=at_least_one, default=10, metavar="N", help="how many runs, from --first-seed on (10)"
    )
    parser.add_argument("--first-seed", type=int, default=1, metavar="N", help="the seed of the first run (1)")
    parser.add_argument("--seed", type=int, metavar="N", help="run this one, and print what it drew")
    parser.add_argument(
        "--only", type=places, metavar="N,N", help="with --seed: these of its events alone, as --shrink names them"
    )
    parser.add_argument("--shrink", action="store_true", help="find the fewest events that lead to the same finding")
    parser.add_argument(
        "--cause", action="store_true", help="with --seed: find the event after which the finding was inevitable"
    )
    parser.add_argument(
        "--history", metavar="NAME", help="plant an old rule of Kafka's, and find what was wrong with it"
    )
    parser.add_argument("--mutate", metavar="NAME", help="plant a mutant, which must be noticed")
    parser.add_argument(
        "--workers", type=at_least_one, default=os.cpu_count() or 1, metavar="N", help="processes (one a core)"
    )
    parser.add_argument("-o", "--output", choices=("text", "json"), default="text", help="json: runs whole, one a line")
    return parser


def main(argv: list[str]) -> int:
    """Run; return the exit status."""
    parser = arguments()
    options = parser.parse_args(argv)
    if options.only is not None and options.seed is None:
        parser.error("--only needs --seed")
    if options.cause and options.seed is None:
        parser.error("--cause needs --seed")
    if options.history is not None and options.mutate is not None:
        parser.error("give one of --history and --mutate")
    if os.environ.get("PYTHONHASHSEED") != "0":
        # The order of sets follows from it: a run is equal in each process only with the same one.
        program = [sys.executable, "-m", "minibroker.simulation", *argv]
        os.execve(sys.executable, program, {**os.environ, "PYTHONHASHSEED": "0"})
    from minibroker.simulation.planting import PlantError, plant

    planted: dict[str, Any] = {}
    try:
        for kind, name in (("history", options.history), ("mutants", options.mutate)):
            if name is not None:
                planted = plant(kind, name)
    except PlantError as error:
        parser.error(str(error))
    is_beside_zookeeper = options.zookeeper or planted.get("zookeeper", False)
    cluster = Cluster(options.brokers or planted.get("brokers", 3), is_beside_zookeeper)
    if options.seed is not None:
        return run_one(options, cluster)
    return run_many(options, cluster, ends_at_first=bool(planted))


def run_one(options: argparse.Namespace, cluster: Cluster) -> int:
    from minibroker.simulation.run import run
    from minibroker.simulation.shrinking import only

    plan = cluster.draw(options.seed)
    if options.only is not None:
        plan = only(plan, options.only)
    result = run(plan)
    if options.output == "json":
        print(json.dumps(result.document()))
    else:
        print(plan)
        show("  ", result.findings)
        print(f"  {result.events} events in {result.seconds:.1f} s of its time, {result.digest}")
    if result.findings and options.shrink:
        print_shrunk(plan, result.findings, cluster)
    if result.findings and options.cause:
        from minibroker.simulation.shrinking import cause_of

        kind = result.findings[0].kind
        print(f"{kind} comes though the faults end after the last of these events, and not after the one before:")
        for line in cause_of(plan, kind, result.events):
            print(f"  {line}")
    return 1 if result.findings else 0


def print_shrunk(plan: Any, findings: Sequence[Any], cluster: Cluster) -> None:
    """Shrink a plan with findings to one with a kind of theirs, and print it with the command that runs it."""
    from minibroker.simulation.run import run
    from minibroker.simulation.shrinking import places_of, shrink

    kinds = {each.kind for each in findings}

    def fails(smaller: Any) -> bool:
        return any(each.kind in kinds for each in run(smaller).findings)

    shrunk = shrink(plan.until(findings[0].at), fails, SHRINK_SECONDS)
    places = ",".join(map(str, places_of(shrunk, cluster.draw(plan.seed)))) or "''"
    print(f"shrunk to {len(shrunk.events)} events; again, with what is planted:")
    print(f"  minibroker simulate {cluster} --seed {plan.seed} --only {places}")
    print(shrunk)
    show("  ", run(shrunk).findings)


def show(head: str, findings: Sequence[Any]) -> None:
    """Print the first findings of a run."""
    for finding in findings[:SHOWN]:
        print(f"{head}{finding}", flush=True)
    if len(findings) > SHOWN:
        print(f"{head}{len(findings) - SHOWN} more; -o json has all", flush=True)


def judged(task: tuple[int, Cluster]) -> tuple[int, dict[str, Any]]:
    """Run a seed in a worker. Raises RuntimeError for any error: the parent may be unable to read another one."""
    from minibroker.simulation.run import run

    seed, cluster = task
    try:
        return seed, run(cluster.draw(seed)).document()
    except BaseException:
        raise RuntimeError(f"seed {seed} of {cluster}: {traceback.format_exc()}") from None


def ignore_interrupts() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends its workers


def run_many(options: argparse.Namespace, cluster: Cluster, *, ends_at_first: bool) -> int:
    """Run seeds in workers; print each finding. With something planted, end with the first."""
    from minibroker.simulation.run import Finding

    began = time.monotonic()
    tasks = [(seed, cluster) for seed in range(options.first_seed, options.first_seed + options.seeds)]
    failed: list[int] = []
    done, simulated = 0, 0.0
    context = multiprocessing.get_context("fork")
    # A pool of this kind ends with an error if a worker dies; multiprocessing's waits for its answer for ever.
    pool = ProcessPoolExecutor(min(options.workers, len(tasks)), context, ignore_interrupts)
    try:
        for seed, document in pool.map(judged, tasks):
            done += 1
            simulated += document["seconds"]
            if options.output == "json":
                print(json.dumps(document), flush=True)
            if not document["findings"]:
                continue
            failed.append(seed)
            if options.output == "text":
                show(f"seed {seed}: ", [Finding(**each) for each in document["findings"]])
            if ends_at_first:
                break
    finally:
        pool.shutdown(cancel_futures=True)
    took = time.monotonic() - began
    what = f"{len(failed)} of {done} seeds with findings" if failed else f"no findings in {done} seeds"
    print(f"{what}, {simulated / took:.0f} times real time ({took:.0f} s)", file=sys.stderr)
    if failed and options.output == "text":
        name = options.history or options.mutate
        with_plant = "" if name is None else f" --{'history' if options.history else 'mutate'} {name}"
        print(f"again: minibroker simulate{with_plant} {cluster} --seed {failed[0]} --shrink")
    if failed and options.shrink:
        from minibroker.simulation.run import run

        plan = cluster.draw(failed[0])
        print_shrunk(plan, run(plan).findings, cluster)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
