"""Conclusions of `make bench` and `make profile` from their samples; and a short round of the first runs."""

from __future__ import annotations

import json
import re
import runpy
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from benchmarks import chart, curves
from benchmarks.chart import CONTENDERS, picture
from benchmarks.goals import MET, MISSED, judge
from benchmarks.measurements import BEFORE, COMPILED, KAFKA, MINIBROKER, Change, Measurement, Run, Spread, interleave
from benchmarks.profile import OTHER, STAGES, Samples, read_samples
from tests.console.contrast import contrast
from tests.recipes import ROOT


def measured(metric: str, now: list[float], before: list[float]) -> Change | None:
    return Measurement("case", metric, "text", "", {MINIBROKER: now, BEFORE: before}).change(MINIBROKER, BEFORE)


def test_rounds_that_disagree_or_are_few_or_of_one_contender_get_no_verdict() -> None:
    assert measured("fetches_per_s", [100, 104, 99, 100, 100], [101, 100, 98, 100, 100]) is None
    assert measured("fetches_per_s", [50, 50, 50, 50], [100, 100, 100, 100]) is None
    assert Measurement("case", "metric", "text", "", {MINIBROKER: [1.0]}).change(MINIBROKER, BEFORE) is None


def test_a_rate_that_is_lower_in_every_round_is_worse() -> None:
    change = measured("fetches_per_s", [90, 95, 108, 90, 90], [100, 105, 110, 100, 100])

    assert change is not None
    assert (change.is_worse, change.is_apart, change.text) == (True, False, "worse in every round")


def test_a_time_that_is_lower_in_every_round_is_better() -> None:
    change = measured("fetch_cpu_us", [10, 11, 12, 10, 10], [20, 22, 24, 20, 20])

    assert change == Change(Spread(0.5, 0.5, 0.5), is_worse=False, is_apart=True)
    assert change.text == "better beyond the spread"


def test_contenders_take_turns_at_being_first_and_warm_ups_are_not_kept() -> None:
    ran: list[str] = []

    def run_of(name: str) -> Run:
        def run() -> dict[str, float]:
            ran.append(name)
            return {"per_s": len(ran)}

        return run

    runs = {name: run_of(name) for name in "ab"}
    samples = interleave(runs, rounds=2, warm_ups=1, on_round=lambda number: None)

    assert "".join(ran) == "ba" + "ab" + "ba"
    assert samples == {"per_s": {"a": [3, 6], "b": [4, 5]}}


# Folders of stages that are no part of the package.
ELSEWHERE = ("<string>", "trio/", "outcome/")


def test_every_stage_of_a_profile_names_files_that_are_there() -> None:
    package = ROOT / "src" / "minibroker"

    missing = [
        path
        for stage in STAGES
        for path in stage.paths
        if not path.startswith(ELSEWHERE) and not (package / path).exists()
    ]

    assert missing == []


def test_a_sample_belongs_to_the_innermost_stage_it_is_in(tmp_path: Path) -> None:
    outer = "trio/_core/_run.py:unrolled_run;broker/network/connection.py:_receive"
    stacks = tmp_path / "stacks"
    stacks.write_text(
        f"{outer};recv_into 4\n"
        f"{outer};broker/way/codec.py:enter;protocol/api.py:decode_request;<string>:decode;<string>:<lambda> 3\n"
        f"{outer};broker/apis/fetch.py:fetch;storage/log/log.py:read;protocol/batches.py:find_offset 2\n"
        "nowhere.py:main 1\n"
    )

    samples = read_samples(stacks)

    found = {name: count for name, count in samples.by_stage().items() if count}
    assert found == {"recv": 4, "decode": 3, "log": 2, OTHER: 1}


def test_a_function_has_its_own_samples_and_those_of_what_it_calls() -> None:
    samples = Samples([(["a.py:outer", "b.py:inner", "send"], 3), (["a.py:outer"], 2)])

    assert samples.by_function() == [("b.py:inner > send", 3, 3), ("a.py:outer", 2, 5)]


def test_the_chart_has_a_bar_for_each_contender_as_long_as_its_median() -> None:
    contenders = {
        name: {"samples": [], "median": median, "low": median, "high": median}
        for name, median in {MINIBROKER: 20_000, COMPILED: 40_000, KAFKA: 50_000}.items()
    }
    run = {"measurements": [{"metric": "produce_per_s", "unit": "1/s", "contenders": contenders}]}

    drawn = picture(run)

    widths = dict(re.findall(r'<rect class="(pure|compiled|kafka|raw)" x="330" y="\d{2,}" width="([\d.]{3,})"', drawn))
    assert {name: float(width) / float(widths["kafka"]) for name, width in widths.items()} == {
        "pure": 0.4,
        "compiled": 0.8,
        "kafka": 1.0,
    }
    assert "Produce of one 100 B batch" in drawn and "40k/s" in drawn


def test_a_run_without_small_requests_has_no_chart() -> None:
    with pytest.raises(ValueError, match="--only requests"):
        picture({"measurements": []})


def leader_dies(record: Any) -> str:
    drawn: str = runpy.run_path(str(ROOT / "docs" / "diagrams" / "leader_dies.py"))["drawn"](record)
    return drawn.removesuffix("\n")


@pytest.mark.parametrize(
    ("name", "draw"), [("speed", picture), ("scale", curves.picture), ("leader-dies", leader_dies)]
)
def test_a_drawing_of_the_documents_is_that_of_its_run(name: str, draw: Callable[[Any], str]) -> None:
    folder = ROOT / "docs" / "diagrams"
    run = json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))

    assert draw(run) + "\n" == (folder / f"{name}.svg").read_text(encoding="utf-8")


@pytest.mark.parametrize("styles", [(chart.STYLE,), (chart.STYLE, curves.CURVES)], ids=["speed", "scale"])
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_each_contender_stands_out_in_both_themes(styles: tuple[str, ...], theme: str) -> None:
    """By 3 to 1, which WCAG asks of graphics (1.4.11); the product more than what it is compared with."""
    rules = "".join(each.partition("@media (prefers-color-scheme: dark)")[2 * (theme == "dark")] for each in styles)
    colours = dict(re.findall(r"(?<!circle)\.(page|pure|compiled|kafka|raw) \{ (?:fill|stroke): (#[0-9a-f]{6})", rules))
    ground = colours.pop("page")

    assert {name for name, colour in colours.items() if contrast(colour, ground) >= 3} == set(CONTENDERS.values())
    assert contrast(colours["pure"], ground) > contrast(colours["kafka"], ground)


@pytest.mark.parametrize(("name", "says"), [("speed", "a scale of its own"), ("scale", "are logarithmic")])
def test_a_drawing_names_its_scale(name: str, says: str) -> None:
    assert says in (ROOT / "docs" / "diagrams" / f"{name}.svg").read_text(encoding="utf-8")


def test_goals_of_the_compiled_form_are_judged_where_it_took_part() -> None:
    def verdicts(**samples: list[float]) -> dict[str, str]:
        names = {"pure": MINIBROKER, "compiled": COMPILED, "kafka": KAFKA}
        found = Measurement("requests", "produce_per_s", "", "1/s", {names[each]: row for each, row in samples.items()})
        marks = judge([found], ["requests"])
        return {each.goal.text: each.mark for each in marks if each.goal.metric == "produce_per_s"}

    text = "Produce of one 100 B batch"
    assert verdicts(pure=[11.0], kafka=[10.0]) == {text: MET}
    assert verdicts(pure=[11.0], compiled=[11.0], kafka=[10.0]) == {text: MET, f"compiled: {text}": MISSED}
    assert verdicts(pure=[9.0], compiled=[12.0], kafka=[10.0]) == {text: MISSED, f"compiled: {text}": MET}


def test_curves_have_a_point_for_each_size_and_what_is_level_looks_level() -> None:
    def row(partitions: int, cpu_us: float) -> dict[str, object]:
        found = {"samples": [], "median": cpu_us, "low": cpu_us, "high": cpu_us}
        return {"metric": f"partitions_{partitions}_produces_cpu_us", "unit": "us", "contenders": {MINIBROKER: found}}

    drawn = curves.picture({"measurements": [row(1000, 40.0), row(1, 40.0), row(10, 44.0)]})

    places = re.findall(r'<circle class="pure" cx="([\d.]+)" cy="([\d.]+)"', drawn)
    (x1, y1), (x10, y10), (x1000, y1000) = ((float(x), float(y)) for x, y in places)
    assert (x1000 - x10) / (x10 - x1) == pytest.approx(2, abs=0.01)
    assert y1 == y1000
    assert 0 < y1 - y10 < 10
    assert "CPU of a produce" in drawn
    assert "fetch" not in drawn


def test_a_run_without_curves_has_no_picture_of_them() -> None:
    with pytest.raises(ValueError, match="--only scale"):
        curves.picture({"measurements": []})


@pytest.mark.nightly
@pytest.mark.integration
def test_consumers_are_measured_against_another_checkout(tmp_path: Path) -> None:
    if shutil.which("cc") is None:
        pytest.skip("the consumers are a C program: apt install gcc libc6-dev")
    if not (ROOT / ".venv").exists():
        pytest.skip("this checkout has no .venv to install minibroker from: run `make .venv/.dev`")
    found = tmp_path / "benchmarks.json"
    command = [sys.executable, "-m", "benchmarks", "--quick", "--rounds", "1", "--only", "consumers"]

    done = subprocess.run(
        [*command, "--against", str(ROOT), "--json", str(found)], cwd=ROOT, capture_output=True, text=True, timeout=200
    )

    assert done.returncode == 0, done.stdout + done.stderr
    rows = {row["metric"]: row["contenders"] for row in json.loads(found.read_text())["measurements"]}
    assert {"session_per_s", "appended_per_s", "woken_p50_us", "moving_per_s"} <= rows.keys()
    assert all({MINIBROKER, BEFORE} <= contenders.keys() for contenders in rows.values())
