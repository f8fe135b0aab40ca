"""`python -m benchmarks`: minibroker beside Apache Kafka 2.0.1 and raw sockets, in one run on one machine.

It measures and does not judge: the exit status is 1 only if an error prevents a measurement, and 0 even if goals fail.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from confluent_kafka import KafkaException
from rich.console import Console

from benchmarks.cases import (
    cluster,
    consumer_groups,
    consumers,
    counted,
    fetches,
    followers,
    groups,
    latency,
    parked,
    requests,
    scale,
    spark,
    start,
    throughput,
    watched,
)
from benchmarks.goals import judge
from benchmarks.installed import PYTHON
from benchmarks.lab import CaseUnavailableError, Lab, Plan
from benchmarks.measurements import Measurement
from benchmarks.report import environment, new_console, show_changes, show_measurements, show_verdicts, write_json

CASES: dict[str, Callable[[Lab], list[Measurement]]] = {
    "start": start.measure,
    "consume": throughput.measure_consume,
    "produce": throughput.measure_produce,
    "tls": throughput.measure_tls,
    "latency": latency.measure,
    "requests": requests.measure,
    "consumers": consumers.measure,
    "watched": watched.measure,
    "metrics": counted.measure,
    "fetches": fetches.measure,
    "parked": parked.measure,
    "groups": groups.measure,
    "consumer groups": consumer_groups.measure,
    "cluster": cluster.measure,
    "followers": followers.measure,
    "scale": scale.measure,
    "spark": spark.measure,
    "spark real-time": spark.measure_real_time,
    "spark jobs": spark.measure_jobs,
}
ONLY_IF_NAMED = {"cluster", "followers", "scale"}  # nine brokers at once; counts, not speed, as long as all others
EXIT_OK = 0
EXIT_NOT_MEASURED = 1
EXIT_INTERRUPTED = 130
ROUNDS = 5
QUICK_ROUNDS = 3
QUICK_VOLUME = 0.2
DEFAULT_JSON = Path("out/benchmarks.json")
BUSY_LOAD = 0.5
DESCRIPTION = (
    "Measure minibroker beside Apache Kafka 2.0.1 and raw sockets, interleaved, and mark every goal. "
    "A quarter of an hour on two cores; --quick takes five minutes."
)
FAILURES = (RuntimeError, OSError, KafkaException)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=DESCRIPTION)
    parser.add_argument("--only", action="append", choices=list(CASES), help="this case; may be repeated")
    parser.add_argument("--rounds", type=int, help=f"interleaved rounds of each case (default {ROUNDS})")
    parser.add_argument(
        "--quick", action="store_true", help=f"a fifth of the volume, {QUICK_ROUNDS} rounds; a look, not a proof"
    )
    parser.add_argument(
        "--against",
        type=checkout,
        metavar="DIR",
        help="another checkout of minibroker beside this one, in place of Apache Kafka: what is slower, what faster",
    )
    parser.add_argument(
        "--compiled", action="store_true", help="the compiled form beside it, as `make wheel` builds it"
    )
    parser.add_argument("--no-kafka", action="store_true", help="without Apache Kafka beside it")
    parser.add_argument("--json", type=Path, default=DEFAULT_JSON, help=f"all samples (default {DEFAULT_JSON})")
    return parser.parse_args()


def checkout(text: str) -> Path:
    path = Path(text).resolve()
    if not (path / "benchmarks" / "installed.py").exists():
        raise argparse.ArgumentTypeError(f"{text} is not a checkout of minibroker")
    if not (path / PYTHON).exists():
        raise argparse.ArgumentTypeError(f"{text} has no .venv to install minibroker from: run `make .venv/.dev` there")
    return path


def main() -> int:
    """Run the cases and report; return the exit status."""
    options = parse_arguments()
    cases = [name for name in CASES if name in (options.only or CASES.keys() - ONLY_IF_NAMED)]
    rounds = options.rounds or (QUICK_ROUNDS if options.quick else ROUNDS)
    with_kafka = not options.no_kafka and options.against is None
    plan = Plan(rounds, QUICK_VOLUME if options.quick else 1.0, with_kafka=with_kafka, against=options.against)
    plan = replace(plan, with_compiled=options.compiled)
    console = new_console()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    began = time.monotonic()
    measurements: list[Measurement] = []
    not_measured: dict[str, str] = {}
    status_code = EXIT_OK
    run = {"cases": cases, "rounds": rounds, "volume": plan.volume, "before": environment()}
    with console.status("preparing") as status, Lab(plan, say=lambda text: status.update(f"{text} ...")) as lab:
        introduce(console, lab, rounds)
        run |= {"apache_kafka": lab.kafka_reason or "present", "request_loop": lab.loop_language}
        run |= {"against": str(options.against) if options.against else None}
        for name in cases:
            case_began = time.monotonic()
            try:
                measurements += CASES[name](lab)
                console.print(f"{name}: measured in {time.monotonic() - case_began:.0f} s")
            except CaseUnavailableError as reason:
                not_measured[name] = str(reason)
                console.print(f"{name}: skipped, {reason}", style="yellow", markup=False)
            except FAILURES as error:
                status_code = EXIT_NOT_MEASURED
                not_measured[name] = repr(error)
                console.print(f"{name}: not measured, {error!r}", style="red", markup=False)
                lab.close_brokers()
            except KeyboardInterrupt:
                status_code = EXIT_INTERRUPTED
                console.print(f"{name}: interrupted", style="red")
                break
    verdicts = judge(measurements, cases)
    show_measurements(console, measurements)
    if options.against is None:
        show_verdicts(console, verdicts)
    else:
        show_changes(console, measurements)
    write_json(options.json, measurements, verdicts, run=run, not_measured=not_measured)
    console.print(f"every sample is in {options.json}; {time.monotonic() - began:.0f} s")
    return status_code


def introduce(console: Console, lab: Lab, rounds: int) -> None:
    """Say what takes part and under which conditions."""
    other = "Apache Kafka 2.0.1" if lab.has_kafka else f"no Apache Kafka ({lab.kafka_reason})"
    if lab.plan.against is not None:
        other = f"minibroker of {lab.plan.against}"
    if lab.plan.with_compiled:
        other = f"its compiled form, {other}"
    console.print(f"minibroker, {other}, raw sockets; {rounds} rounds; request loop in {lab.loop_language}")
    load = os.getloadavg()[0]
    if load > BUSY_LOAD * (os.cpu_count() or 1):
        console.print(f"the machine is busy (load {load:.1f}): expect wide spreads", style="yellow")


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(EXIT_INTERRUPTED)
