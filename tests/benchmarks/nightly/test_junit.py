"""JUnit XML, held to the schema of Jenkins' xUnit plugin (its elements, their order, their attributes)."""

import re
import xml.etree.ElementTree as ET
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.nightly.junit import junit_xml
from benchmarks.nightly.night import Memory, judge_cell, unjudged
from benchmarks.nightly.values import CellReport
from tests.benchmarks.nightly.nights_made import CELL, GATED, history, judged, report, tonight

SLOW, _ = judged(1.5, history(), [1.5, 1.5, 1.5])
SHORT, _ = judged(1.0, history()[:3])
SAME, _ = judged(1.0, history())
BROKEN = unjudged(CELL, "run-1", "failed", ["out of memory"])

# For each element: its required attributes, its optional ones, and its children, in this order.
NAME, NUMBER, DECIMAL = r"(?s).+", r"\d+", r"\d+(\.\d+)?"
SCHEMA: dict[str, tuple[dict[str, str], set[str], list[str]]] = {
    "testsuites": ({}, {"name", "time", "tests", "failures", "disabled", "errors"}, ["testsuite"]),
    "testsuite": (
        {"name": NAME, "tests": NUMBER, "failures": NUMBER, "errors": NUMBER, "skipped": NUMBER, "time": DECIMAL,
         "timestamp": r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d"},
        {"hostname", "id", "package", "disabled"},
        ["properties", "testcase", "system-out", "system-err"],
    ),
    "properties": ({}, set(), ["property"]),
    "property": ({"name": NAME, "value": r"(?s).*"}, set(), []),
    "testcase": (
        {"name": NAME, "classname": NAME, "time": DECIMAL},
        {"assertions", "status"},
        ["skipped", "error", "failure", "system-out", "system-err"],
    ),
    "skipped": ({"message": NAME}, set(), []),
    "error": ({"message": NAME, "type": NAME}, set(), []),
    "failure": ({"message": NAME, "type": NAME}, set(), []),
    "system-out": ({}, set(), []),
}  # fmt: skip


def check(element: ET.Element) -> None:
    needed, allowed, children = SCHEMA[element.tag]
    assert set(element.attrib) - allowed == set(needed), element.tag
    for name, form in needed.items():
        assert re.fullmatch(form, element.attrib[name]), (element.tag, name, element.attrib[name])
    order = [children.index(child.tag) for child in element]
    assert order == sorted(order), element.tag
    for child in element:
        check(child)


def suite(*cells: CellReport, **fields: Any) -> ET.Element:
    root = ET.fromstring(junit_xml(report(cells, **fields)))
    check(root)
    return root[0]


def outcomes(element: ET.Element) -> list[str]:
    words = ("failure", "error", "skipped")
    return [
        next((word for word in words if case.find(word) is not None), "passed") for case in element.iter("testcase")
    ]


def test_each_verdict_is_what_a_ci_makes_of_it() -> None:
    found = suite(SLOW, SHORT, SAME, BROKEN)
    assert outcomes(found) == ["failure", "passed", "skipped", "passed", "passed", "passed", "error"]
    counts = {name: found.get(name) for name in ("tests", "failures", "errors", "skipped")}
    assert counts == {"tests": "7", "failures": "1", "errors": "1", "skipped": "1"}
    assert found.get("time") == "90.000"


@pytest.mark.parametrize(("must_detect", "outcome"), [(5.0, "failure"), (None, "skipped")])
def test_a_night_that_cannot_see_is_a_test_of_its_own(must_detect: float | None, outcome: str) -> None:
    found = suite(SAME, blind_below_percent=20.0, must_detect=must_detect)
    assert outcomes(found)[0] == outcome
    assert found[1].get("name") == "sensitivity"
    assert "BLIND" in found[1][0].get("message", "")


def test_a_valid_run_that_may_not_be_compared_is_no_error_of_type_valid() -> None:
    found, _ = judge_cell(tonight(1.0, history(), not_comparable=["profiled"]), GATED, Memory())
    (error,) = suite(found).iter("error")
    assert error.get("type") == "not comparable"


@given(st.lists(st.text(), min_size=1, max_size=3))
def test_any_words_of_a_log_make_valid_xml(reasons: Sequence[str]) -> None:
    suite(unjudged(CELL, "run-1", "failed", ["a", *reasons]))
