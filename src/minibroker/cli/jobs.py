"""`minibroker jobs`: the Spark jobs that come with the broker. Each is a program of its own, which this starts."""

from __future__ import annotations

import functools
import os
import sys
from typing import Annotated

import typer

from minibroker.cli.checkpoint import EPILOG as CHECKPOINT_EPILOG
from minibroker.cli.checkpoint import checkpoint, require_spark
from minibroker.cli.options import noun
from minibroker.cli.parameters import OutputOption, showing
from minibroker.cli.shown import Shown
from minibroker.errors import BadValue
from minibroker.protocol.arguments import refuse

RUN_EPILOG = """`minibroker jobs run NAME --help` shows a job's options, `--dry-run` its plan.

Example: minibroker jobs run delays --subscribe flights --output out/delays --checkpoint out/checkpoint"""

app = noun(help="Run Spark jobs that read from Kafka or write to it.")


@app.command("list", epilog="Example: minibroker jobs list -o json")
@showing
def list_jobs() -> Shown:
    """Show the jobs and what each is for."""
    from minibroker.spark_jobs import JOBS

    width = max(map(len, JOBS))
    lines = [f"{name:<{width}}  {job.about}" for name, job in JOBS.items()]
    documents = [{"name": name, "about": job.about} for name, job in JOBS.items()]
    return Shown(documents, lambda: print("\n".join(lines)))


def job_names() -> list[str]:
    from minibroker.spark_jobs import JOBS

    return list(JOBS)


@app.command(
    "run",
    epilog=RUN_EPILOG,
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
)
def run(
    name: Annotated[str, typer.Argument(metavar="NAME", autocompletion=job_names, show_default=False)],
    arguments: Annotated[list[str] | None, typer.Argument(metavar="[OPTION]...", show_default=False)] = None,
    output: OutputOption = "text",
) -> None:
    """Run a job; its options are named as those of Spark's Kafka source and sink."""
    from minibroker.spark_jobs import JOBS
    from minibroker.spark_jobs.command_lines import PARSERS

    job = JOBS.get(name)
    if job is None:
        raise BadValue(f"{name!r} is not one of {', '.join(JOBS)}")
    # Help, and what is wrong with an option, need no Spark.
    parser = PARSERS[name]()
    parser.error = functools.partial(refuse, parser)  # type: ignore[method-assign]
    parser.parse_args(arguments or [])
    require_spark()
    # In place of this process: a signal for the command is one for the job.
    command = [sys.executable, "-m", f"minibroker.spark_jobs.{job.module}", *(arguments or [])]
    os.execv(sys.executable, command + ["--json"] * (output == "json"))


app.command("checkpoint", epilog=CHECKPOINT_EPILOG)(checkpoint)
