"""What people read of a comparison."""

import re

import msgspec
import pytest

from benchmarks.compare.compare import compare
from benchmarks.compare.text import MOST_CAUSES, shortened, table_text, value_text
from benchmarks.compare.values import Cause, Comparison
from benchmarks.values import json_text
from tests.benchmarks.compare.made import run, side, sides

FAST, SLOW = (1.0, 1.001, 0.999), (1.05, 1.051, 1.049)


def found(**of_b: object) -> Comparison:
    return compare(*sides(FAST, SLOW, **of_b), explained=True)


def test_the_table_says_figures_then_reasons_then_causes() -> None:
    text = table_text(found(benchmark={"knobs": {"remat_policy": "full"}}))
    assert re.search(r"seconds/step +1000 ms +1\.05 s +\+5\.00% +\+4\.\d\d% to \+5\.\d\d% +worse", text)
    order = ["requested differences:", "seconds/step", "Welch's t", "what differs, the most likely cause first:"]
    assert [text.index(words) for words in order] == sorted(text.index(words) for words in order)
    assert re.search(r"\d+  setting remat_policy: minimal -> full \(weight 90: ", text)
    assert max(map(len, text.splitlines()[1:])) <= 118


def test_causes_are_told_where_they_were_asked_for_and_are_some() -> None:
    assert "nothing that is recorded of these runs differs" in table_text(found())
    assert "differs" not in table_text(compare(*sides(FAST, SLOW)))


def test_what_is_refused_has_reasons_and_no_figures() -> None:
    failed = run("x", result={"status": "failed", "reasons": ["rank 0 died"]})
    profiled = run("y", result={"not_comparable": ["profiled"]})
    b = sides(FAST, SLOW)[1]
    text = table_text(compare(side("A", failed), b))
    assert text.startswith("A and B cannot be compared: ")
    assert text.count("rank 0 died") == text.splitlines()[0].count("rank 0 died") == 1
    assert "seconds/step" not in text
    text = table_text(compare(side("A", failed, profiled), b))
    assert (text.count("rank 0 died"), text.count("y: profiled")) == (1, 1)


def test_runs_have_the_names_that_they_are_called_by() -> None:
    failed = run("x-0009", result={"status": "failed", "reasons": ["rank 0 died"]})
    a, b = side("tag=x", run("x-0001"), failed), side("tag=y", run("x-0002"))
    text = table_text(shortened(compare(a, b), {"x-0001": "01", "x-0002": "02", "x-0009": "09"}))
    assert "A  x (01)" in text
    assert "excluded from A: 09: failed" in text


def test_many_causes_are_cut_and_the_json_has_all() -> None:
    causes = [Cause(rank=n, kind="argument", name=f"n{n}", a="x" * 200, b=None, why="w") for n in range(1, 31)]
    many = msgspec.structs.replace(found(), causes=causes)
    text = table_text(many)
    assert f"and {30 - MOST_CAUSES} more (--json has all)" in text
    assert "x" * 100 not in text
    assert msgspec.json.decode(json_text(many), type=Comparison) == many


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [(0.0152, "s", "15.2 ms"), (12345.6, "tokens/s", "12,346"), (38.123, "%", "38.1%"), (2e9, "bytes", "2.00 GB"),
     (5.84471, "", "5.8447")],
)  # fmt: skip
def test_values_have_the_digits_that_suit(value: float, unit: str, text: str) -> None:
    assert value_text(value, unit) == text
