"""The end of a job: tables of text."""

from minibroker.spark_jobs.report import table


def test_numbers_stand_to_the_right_and_have_commas() -> None:
    text = table(["topic", "records", "share"], [["a", 1234567, 0.25], ["longer", 7, None]])

    assert text.splitlines() == [
        "topic     records  share",
        "a       1,234,567    0.2",
        "longer          7      -",
    ]
