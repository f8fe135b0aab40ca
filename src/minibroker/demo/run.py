"""One run of the demo: a broker, a replay at the flights' own pace, a Spark job beside it, and the check of its result.

The job is killed half way and started again with the same checkpoint, while the replay goes on. The rule: each run
starts from nothing, and Spark's result must equal the one computed from the flights, row for row.
"""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, nullcontext, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaException
from rich.console import Console

from minibroker.demo import processes, readers, replay
from minibroker.demo.player import DAYS_PER_SECOND, Player
from minibroker.demo.processes import ProcessFailed, RunningBroker, SparkJob
from minibroker.demo.replay import PARTITIONS
from minibroker.demo.view import DAY, View
from minibroker.errors import BrokerError

FIRST_DAY = datetime(2013, 1, 1, 5, tzinfo=UTC)  # New York's midnight
DAYS_OF_YEAR = 365
TRIGGER_SECONDS = 0.5
# A backlog is read in bites, so that there is something to see.
RECORDS_PER_BATCH = 40_000
STAGES = {
    "connector": "fetches its Kafka connector, once",
    "session": "starts its JVM, in about 5 s",
    "query": "plans the query and reads the first micro-batch, in about 15 s",
}


class DemoFailed(RuntimeError):
    """The demo did not reach its end; the message has the reason."""


class Demo:
    """One run: its paths, its topic, and what it shows."""

    def __init__(
        self,
        out: Path,
        *,
        topic: str,
        days: int | None,
        console: Console,
        days_per_second: float = DAYS_PER_SECOND,
        listen: str | None = None,
    ) -> None:
        """`listen`: where a web page shows it, until a signal; None for no page."""
        self.out = out
        self.topic = topic
        self.days_per_second = days_per_second
        self.listen = listen
        self.days = min(days or DAYS_OF_YEAR, DAYS_OF_YEAR)
        self.console = console
        self.view = View(console, FIRST_DAY, self.days)
        self.broker_data = out / "broker"
        self.delays = out / "delays"
        self.checkpoint = out / "checkpoint"
        self.logs = out / "logs"
        self.work = out / "work"
        self.picture = out / "flight-delays.png"

    def run(self, bootstrap: str | None) -> None:
        """Do all of it; use the broker at `bootstrap`, if given. Raises DemoFailed."""
        self._prepare()
        try:
            with self._broker(bootstrap) as broker, ExitStack() as at_end:
                address = broker.address
                self.view.say(f"Broker at [bold]{address}[/], topic [bold]{self.topic}[/], {PARTITIONS} partitions")
                flights = f"The flights take {self.days / self.days_per_second:.0f} s"
                self.view.say(f"{flights}; Spark starts twice, which takes half a minute or more")
                replay.create_topic(address, self.topic)
                page = None if self.listen is None else self._show_on_a_page(broker, self.listen, at_end)
                with self.view.live():
                    self._stream(address)
                if page is not None:
                    self._check_and_show(own_broker=False)
                    self._wait_for_a_signal(page)
        except (BrokerError, KafkaException, ModuleNotFoundError, ProcessFailed, replay.ReplayFailed) as reason:
            raise DemoFailed(str(reason)) from reason
        if page is None:
            self._check_and_show(own_broker=bootstrap is None)
        else:
            self.view.say("The demo has ended")

    def _prepare(self) -> None:
        """Remove what an earlier run left."""
        for folder in (self.broker_data, self.delays, self.checkpoint, self.logs, self.work):
            shutil.rmtree(folder, ignore_errors=True)
        self.logs.mkdir(parents=True)

    def _broker(self, bootstrap: str | None) -> AbstractContextManager[RunningBroker]:
        if bootstrap:
            return nullcontext(RunningBroker(bootstrap))
        return processes.broker(self.broker_data, log=self.logs / "broker.log", control=self.listen is not None)

    def _show_on_a_page(self, broker: RunningBroker, listen: str, at_end: ExitStack) -> str:
        """Start a console, and a group of consumers for it to show; return the page's address."""
        log = self.logs / "console.log"
        page = at_end.enter_context(processes.console(broker.address, broker.control, listen=listen, log=log))
        at_end.enter_context(readers.readers(broker.address, self.topic))
        self.view.say(f"Console at [bold]{page}[/]")
        self.view.say(f"Group {readers.GROUP}: {len(readers.NAMES)} consumers read the flights, too")
        return page

    def _wait_for_a_signal(self, page: str) -> None:
        self.console.print()
        self.view.say(
            f"The year is over, and all is read. Ctrl-C ends the demo; until then, look around at [bold]{page}[/]"
        )
        with suppress(SystemExit):
            threading.Event().wait()

    def _spark_job(self, address: str) -> AbstractContextManager[SparkJob]:
        arguments = ["--bootstrap-servers", address, "--subscribe", self.topic]
        arguments += ["--output", str(self.delays), "--checkpoint", str(self.checkpoint)]
        arguments += ["--max-offsets-per-trigger", str(RECORDS_PER_BATCH), "--continuous", str(TRIGGER_SECONDS)]
        arguments += ["--until", (FIRST_DAY + self.days * DAY).isoformat()]
        return processes.spark_job(arguments, log=self.logs / "spark.log", work_dir=self.work)

    def _stream(self, address: str) -> None:
        """Replay the flights beside the Spark job; kill the job half way, and start it again."""
        say = self.view.say
        with ExitStack() as at_end:
            job = at_end.enter_context(self._spark_job(address))
            pace = self.days_per_second
            # It loads while Spark starts.
            player = at_end.enter_context(Player(address, self.topic, self.days, say, days_per_second=pace))
            self.view.replayed = lambda: player.sent
            read = 0
            for facts in self._facts(job, player):
                if facts.get("stage") == "query":
                    player.begin()
                read = facts.get("records_so_far", 0)
                if read:
                    player.is_read.set()
                if 2 * read >= player.flights:
                    break
            job.kill()
            say(
                f"[bold]Spark killed[/] (kill -9), half way: {read:,} of {player.flights:,} flights read, "
                f"{self.view.days_written} of {self.days} days written"
            )
            say("Spark started again, with the same checkpoint; meanwhile the topic keeps what comes")
            job.end()
            job = at_end.enter_context(self._spark_job(address))
            player.may_end.set()
            self._watch_to_the_end(job, player)

    def _watch_to_the_end(self, job: SparkJob, player: Player) -> None:
        is_back = False
        for facts in self._facts(job, player):
            if "batch" in facts and not is_back:
                is_back = True
                self.view.say(f"Spark is back, and goes on at micro-batch {facts['batch']}")
        self.view.say(f"Spark has written all {self.days} days")

    def _facts(self, job: SparkJob, player: Player) -> Iterator[dict[str, Any]]:
        """Show what the job does, and yield it; a replay that fails ends the job. Raises as that, or ProcessFailed."""
        player.on_failure = job.end
        player.raise_failure()
        try:
            for facts in job.facts():
                if "stage" in facts:
                    self.view.stage(STAGES[facts["stage"]])
                else:
                    self.view.batch(facts)
                yield facts
        except ProcessFailed:
            player.raise_failure()
            raise

    def _check_and_show(self, *, own_broker: bool) -> None:
        from minibroker.demo import chart, flights, report, result

        delays = result.read(self.delays)
        try:
            result.check(delays, flights.expected_delays(flights.load(self.days)))
        except result.WrongResult as reason:
            raise DemoFailed(str(reason)) from reason
        result.remove_uncommitted(self.delays)
        self.view.say(
            f"Equal to the flights in all {len(delays):,} rows of a day, airport and carrier: "
            "none lost, none counted twice"
        )
        names = flights.airline_names()
        chart.draw(delays, names, self.picture)
        self.console.print()
        self.console.print(report.delay_table(delays, names))
        self.console.print()
        report.places(
            self.console,
            {
                "picture": self.picture,
                "Parquet files": self.delays,
                "Spark's checkpoint": self.checkpoint,
                "logs": self.logs,
            },
        )
        if own_broker:
            self.console.print(
                f"\nThe broker has stopped, after {self.view.seconds:.0f} s in all. To serve the flights again:"
            )
            print(f"  {report.serve_command(self.broker_data)}")
