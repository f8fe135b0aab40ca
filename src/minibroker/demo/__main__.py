"""`python -m minibroker.demo`: broker, replay, Spark job, check, table and picture, then an orderly stop.

The rule: it ends by itself, with status 0 only if Spark's result equals the one computed from the flights, row for row;
each run starts from nothing. With `--bootstrap-servers` it uses another broker, and a new topic there.
"""

from __future__ import annotations

import argparse
import shutil
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path

import pandas as pd
from confluent_kafka import KafkaException
from rich.console import Console
from rich.progress import Progress

from minibroker.demo import chart, flights, processes, replay, report, result
from minibroker.demo.replay import PARTITIONS
from minibroker.process import BrokerError
from minibroker.spark_jobs.session import ConnectorUnavailable, connector_jars

RECORDS_PER_BATCH = 60_000
FAILURES = (
    BrokerError,
    ConnectorUnavailable,
    KafkaException,
    ModuleNotFoundError,
    processes.ProcessFailed,
    replay.ReplayFailed,
    result.WrongResult,
)


class Demo:
    """One run: its paths, its topic, and the time each stage took."""

    def __init__(self, out: Path, *, topic: str, console: Console) -> None:
        self.out = out
        self.topic = topic
        self.console = console
        self.broker_data = out / "broker"
        self.delays = out / "delays"
        self.checkpoint = out / "checkpoint"
        self.logs = out / "logs"
        self.picture = out / "flight-delays.png"
        self.seconds: dict[str, float] = {}

    def prepare(self) -> None:
        """Remove what an earlier run left."""
        for folder in (self.broker_data, self.delays, self.checkpoint, self.logs):
            shutil.rmtree(folder, ignore_errors=True)
        self.logs.mkdir(parents=True)

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        started = time.monotonic()
        yield
        self.seconds[name] = time.monotonic() - started

    def broker(self, bootstrap: str | None) -> AbstractContextManager[str]:
        if bootstrap:
            return nullcontext(bootstrap)
        return processes.broker(self.broker_data, log=self.logs / "broker.log")

    def replay(self, bootstrap: str, table: pd.DataFrame, progress: Progress) -> None:
        with self.stage("replay"):
            task = progress.add_task("replay the flights into Kafka", total=len(table) + PARTITIONS)
            replay.create_topic(bootstrap, self.topic, partitions=PARTITIONS)
            replay.replay(
                bootstrap,
                self.topic,
                flights.messages(table),
                partitions=PARTITIONS,
                acknowledged=lambda: progress.advance(task),
            )

    def spark(self, bootstrap: str, table: pd.DataFrame, progress: Progress) -> None:
        with self.stage("Spark"):
            task = progress.add_task("Spark: delays per day", total=len(table) + PARTITIONS)
            arguments = ["--bootstrap-servers", bootstrap, "--subscribe", self.topic]
            arguments += ["--output", str(self.delays), "--checkpoint", str(self.checkpoint)]
            arguments += ["--max-offsets-per-trigger", str(RECORDS_PER_BATCH)]
            for batch in processes.spark_job(arguments, log=self.logs / "spark.log"):
                progress.update(task, completed=batch["records_so_far"])

    def show(self, delays: pd.DataFrame) -> None:
        with self.stage("table and picture"):
            names = flights.airline_names()
            self.console.print(report.delay_table(delays, names))
            chart.draw(delays, names, self.picture)

    def run(self, table: pd.DataFrame, bootstrap: str | None) -> None:
        self.prepare()
        say = self.console.print
        started = time.monotonic()
        with self.broker(bootstrap) as address:
            self.seconds["broker"] = time.monotonic() - started
            say(f"Broker at [bold]{address}[/], topic [bold]{self.topic}[/], {PARTITIONS} partitions")
            with report.stages(self.console) as progress:
                self.replay(address, table, progress)
                self.spark(address, table, progress)
        with self.stage("check"):
            delays = result.read(self.delays)
            result.check(delays, flights.expected_delays(table))
        self.show(delays)


def main() -> None:
    """Run the demo; exit with status 0, or with 1 and the reason."""
    cli = argparse.ArgumentParser(prog="python -m minibroker.demo", description="A year of flights, Kafka and Spark.")
    cli.add_argument("--out", type=Path, default=Path("out"), help="folder for all output")
    cli.add_argument("--days", type=int, help="only the first days of the year")
    cli.add_argument("--bootstrap-servers", metavar="HOST:PORT", help="use this broker instead of starting one")
    arguments = cli.parse_args()
    bootstrap: str | None = arguments.bootstrap_servers
    topic = f"flights-{time.time_ns() // 1_000_000}" if bootstrap else "flights"
    console = Console()
    demo = Demo(arguments.out.absolute(), topic=topic, console=console)
    # Raise an exception, so that the broker is stopped on the way out.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        with console.status("Spark's Kafka connector: fetched once, then used offline"):
            connector_jars()
        demo.run(flights.load(arguments.days), bootstrap)
    except KeyboardInterrupt:
        sys.exit(128 + signal.SIGINT)
    except FAILURES as reason:
        sys.exit(f"demo: {reason}")
    _say_goodbye(demo, own_broker=bootstrap is None)


def _say_goodbye(demo: Demo, *, own_broker: bool) -> None:
    say = demo.console.print
    say("\nChecked against the flights: none lost, none counted twice.")
    report.places(
        demo.console,
        picture=demo.picture,
        output=demo.delays,
        checkpoint=demo.checkpoint,
        logs=demo.logs,
    )
    took = ", ".join(f"{name} {seconds:.1f} s" for name, seconds in demo.seconds.items())
    say(f"  {'took':<19}{took}", highlight=False, soft_wrap=True)
    if own_broker:
        say("The broker has stopped. `make serve` starts one; with these flights:", highlight=False)
        say(
            f"  minibroker serve --listen 127.0.0.1:9092 --data-dir {report.shown(demo.broker_data)}",
            highlight=False,
            soft_wrap=True,
        )


if __name__ == "__main__":
    main()
