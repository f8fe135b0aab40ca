"""`minibroker.spark` without Spark: its actions, the faults that a seed draws, and how rows are compared."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime
from typing import Any
from unittest.mock import Mock

import pytest

from minibroker import spark
from minibroker.spark import (  # fmt: skip
    add,
    check,
    drawn,
    expect_failure,
    kill_broker,
    restart_query,
    start_broker,
    stop_query,
    stream_test,
)
from minibroker.spark_answers import Came, Place, differences, rows_of
from tests.recipes import recipe_text

AT = [Place("t", 0, offset) for offset in range(3)]
ACTIONS = [name for name, each in vars(spark).items() if hasattr(each, "__wrapped__")]


@pytest.mark.parametrize(
    ("expected", "came", "lines"),
    [
        ([], [], []),
        ([Came((1,)), Came((2,))], [Came((2,), AT[0]), Came((1,), AT[1])], []),
        ([Came((1,))], [], ["lost: 1, of t-0 offset 2"]),
        ([Came((1,), AT[0])], [Came((1,), AT[1], 3)],
         ["lost: 1, of t-0 offset 0", "unexpected: 1, of t-0 offset 1, in batch 3"]),
        ([Came((1, "a"))] * 2, [Came((1, "a"), AT[2])], ["lost: (1, 'a'), 1 times instead of 2"]),
        ([Came((1,))], [Came((1,), AT[0], 4), Came((1,), AT[0], 7)],
         ["doubled: 1, of t-0 offset 0, 2 times instead of 1, in batch 4 and 7"]),
        ([Came((1,))], [Came((1,), AT[0]), Came((1,), AT[1])],
         ["unexpected: 1, of t-0 offset 0 or t-0 offset 1, 2 times instead of 1"]),
        ([Came((1,))], [Came((1,))] * 2, ["doubled: 1, of t-0 offset 2, 2 times instead of 1"]),
        ([Came((n,)) for n in range(25)], [], [*(f"lost: {n}, of t-0 offset 2" for n in range(20)), "and 5 rows more"]),
    ],
)  # fmt: skip
def test_rows_that_differ_are_named_with_their_records(
    expected: list[Came], came: list[Came], lines: list[str]
) -> None:
    searched = Mock(return_value=AT[2:])

    assert differences(expected, came, searched) == lines
    assert searched.call_count <= 20


def test_rows_are_compared_without_the_place_of_their_record() -> None:
    noon = datetime(2030, 1, 1, 12, tzinfo=UTC)

    assert rows_of(["offset", "value", "topic", "partition"], [(7, bytearray(b"a"), "t", 2)], 5) == [
        Came((b"a",), Place("t", 2, 7), 5)
    ]
    assert rows_of(["topic", "partition", "offset"], [("t", 2, 7)]) == [Came(("t", 2, 7))]
    assert rows_of(["offset", "value"], [(7, {"b": [1], "a": []})]) == [Came((7, (("a", ()), ("b", (1,)))))]
    assert rows_of(["at"], [(noon,)]) == [Came((noon.astimezone().replace(tzinfo=None),))]


STEPS = [
    *(add("a"), check("a"), stop_query(), add("b"), restart_query(), check("a", "b")),
    *(kill_broker(restart=False), add("c"), start_broker(), expect_failure("x"), add("d")),
]  # fmt: skip
PAUSED = {0, 3, 4, 7, 8, 10}  # the first, and those before which query or broker are stopped


def test_a_seed_draws_the_same_faults_where_query_and_broker_run() -> None:
    plans = [[(at, str(fault)) for at, fault in drawn(STEPS, seed)] for seed in range(200)]

    assert plans == [[(at, str(fault)) for at, fault in drawn(STEPS, seed)] for seed in range(200)]
    assert {at for plan in plans for at, _ in plan} == set(range(len(STEPS))) - PAUSED
    assert {fault for plan in plans for _, fault in plan} == {
        *("kill_broker()", "kill_broker(in_batch=True)", "restart_query()"),
        *("crash_query('before write')", "crash_query('after write')"),
    }
    assert {len(plan) for plan in plans} == {1, 2, 3}
    assert drawn([add("a")], 1) == []


def test_an_action_shows_its_call_and_refuses_arguments_that_it_does_not_take() -> None:
    untyped: Any = add

    assert str(add("a", topic="t")) == "add('a', topic='t')"
    assert str(restart_query(drawn)) == "restart_query(drawn)"  # type: ignore[arg-type]
    assert len(str(add(*"a" * 1000))) < 120
    with pytest.raises(TypeError, match="unexpected keyword argument 'tipic'"):
        untyped("a", tipic="t")


def test_write_and_read_come_together() -> None:
    with pytest.raises(ValueError, match="write and read belong together"):
        stream_test(lambda records: records, write=lambda batch, number: None)


def test_importing_it_imports_no_spark_and_a_test_says_what_to_install() -> None:
    program = (
        "import sys, minibroker.spark\n"
        "assert 'pyspark' not in sys.modules\n"
        "sys.modules['pyspark.sql'] = sys.modules['pyspark'] = None\n"
        "minibroker.spark.stream_test(lambda records: records)"
    )

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)

    assert done.stderr.splitlines()[-1] == (
        "ModuleNotFoundError: stream_test needs pyspark: install minibroker with its extra `spark`"
    )


def test_the_recipe_has_each_action() -> None:
    text = recipe_text("spark-stream-test", "")

    assert len(ACTIONS) == 19
    assert [name for name in ACTIONS if f"`{name}(" not in text] == []
