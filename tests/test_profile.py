"""What `make profile` makes of its samples; that it runs, tests/test_tooling.py tries with the rest of debugging."""

from __future__ import annotations

from pathlib import Path

from benchmarks.profile import OTHER, STAGES, Samples, read_samples
from tests.recipes import ROOT

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
        f"{outer};broker/apis/registry.py:dispatch;protocol/api.py:decode_request;<string>:decode;<string>:<lambda> 3\n"
        f"{outer};broker/apis/fetch.py:fetch;storage/log/log.py:read;protocol/batches.py:find_offset 2\n"
        "nowhere.py:main 1\n"
    )

    samples = read_samples(stacks)

    found = {name: count for name, count in samples.by_stage().items() if count}
    assert found == {"recv": 4, "decode": 3, "log": 2, OTHER: 1}


def test_a_function_has_its_own_samples_and_those_of_what_it_calls() -> None:
    samples = Samples([(["a.py:outer", "b.py:inner", "send"], 3), (["a.py:outer"], 2)])

    assert samples.by_function() == [("b.py:inner > send", 3, 3), ("a.py:outer", 2, 5)]
