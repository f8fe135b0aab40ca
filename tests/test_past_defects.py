"""Each past defect of docs/testing.md has tests that are there."""

from __future__ import annotations

import re

import pytest

from tests.past_defects import FOUND_BY, main, past_defects
from tests.sources import ROOT


def test_each_past_defect_names_tests_that_are_there() -> None:
    defects = past_defects()

    assert [each.number for each in defects] == list(range(1, len(defects) + 1))
    assert len(defects) >= 15
    for each in defects:
        assert each.found_by in FOUND_BY and each.tests, each
        for test in each.tests:
            path, *names = test.split("::")
            source = (ROOT / path).read_text(encoding="utf-8")
            assert all(re.search(rf"^ *(class|def|async def) {name}\b", source, re.MULTILINE) for name in names), test


def test_a_number_that_no_defect_has_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert [main(["0"]), main([])] == [2, 2]
    assert "make test-issue N=1 to" in capsys.readouterr().err
