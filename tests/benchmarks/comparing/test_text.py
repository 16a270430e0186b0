"""What people read of a comparison: the table on the screen, and Markdown for a pull request."""

import json
import re

import msgspec
import pytest

from benchmarks.comparing.compare import compare
from benchmarks.comparing.text import MOST_CAUSES, markdown_text, table_text, value_text
from benchmarks.comparing.values import Cause, Comparison
from benchmarks.values import json_text
from tests.benchmarks.comparing.made import run, side, sides

FAST, SLOW = (1.0, 1.001, 0.999), (1.05, 1.051, 1.049)


def found(**of_b: object) -> Comparison:
    return compare(*sides(FAST, SLOW, **of_b), explained=True)


def test_the_table_says_figures_then_reasons_then_causes() -> None:
    text = table_text(found(benchmark={"knobs": {"remat_policy": "full"}}))
    assert re.search(r"seconds/step +1000 ms +1\.05 s +\+5\.00% +\+4\.\d\d% to \+5\.\d\d% +worse", text)
    assert text.index("asked otherwise:") < text.index("seconds/step")
    assert text.index("Welch's t") < text.index("what differs, the most likely cause first:")
    assert "remat_policy: minimal -> full" in text
    assert "   1  setting " in text
    assert re.search(r"alike: slowdown on purpose", text)


def test_reasons_that_several_figures_share_are_said_once() -> None:
    lines = table_text(found()).splitlines()
    assert sum("Welch's t" in line for line in lines) < 6
    assert any(line.startswith("  seconds/step, tokens/s, tokens/s per GPU, effective tokens/s: ") for line in lines)


def test_runs_that_differ_in_nothing_say_so() -> None:
    text = table_text(found())
    assert "nothing that is recorded of these runs differs" in text
    assert "most likely" not in text
    assert "Nothing that is recorded" in markdown_text(found())


def test_without_a_shown_difference_the_causes_are_of_none() -> None:
    equal = compare(*sides(FAST, FAST, benchmark={"data": "c4"}), explained=True)
    assert "what differs, the most likely cause first, were there a difference in speed:" in table_text(equal)


def test_without_explain_no_word_of_causes() -> None:
    text = table_text(compare(*sides(FAST, SLOW)))
    assert "differs" not in text
    assert "alike" not in text


@pytest.mark.parametrize("form", [table_text, markdown_text])
def test_what_is_refused_has_reasons_and_no_figures(form: object) -> None:
    assert callable(form)
    refused = compare(
        side("A", run("x", result={"status": "failed", "reasons": ["rank 0 died"]})), sides(FAST, SLOW)[1]
    )
    text = form(refused)
    assert "ot comparable" in text
    assert text.count("rank 0 died") == 2
    assert "seconds/step" not in text


def test_what_is_left_out_is_named_on_both_forms() -> None:
    a, b = sides(FAST, SLOW)
    some = compare(side("A", *a.runs, gone="it has no result.json"), b)
    assert "left out of A: gone: it has no result.json" in table_text(some)
    assert "left out of A: `gone`: it has no result.json" in markdown_text(some)


def test_no_text_of_a_run_becomes_markup() -> None:
    causes = [Cause(rank=1, kind="setting", name="a|b`c", a="<b>x</b>", b="1\n2", why="a_b|c <script>")]
    text = markdown_text(msgspec.structs.replace(found(), causes=causes, notes=["[x](http://y) | *z*"]))
    assert "`a|b'c`: `<b>x</b>` -> `1 2`: a\\_b\\|c \\<script\\>" in text
    assert "- \\[x\\](http://y) \\| \\*z\\*" in text


def test_no_line_of_the_screen_is_longer_than_a_reader_bears() -> None:
    lines = table_text(found(benchmark={"data": "c4"})).splitlines()
    assert max(map(len, lines)) <= 118
    assert sum(len(line) > 100 for line in lines) > 3


def test_every_row_of_the_markdown_table_has_all_columns() -> None:
    rows = [line for line in markdown_text(found()).splitlines() if line.startswith("|")]
    assert len(rows) == 2 + len(found().differences)
    assert {row.count("|") - row.count("\\|") for row in rows} == {7}


def test_many_causes_are_cut_and_that_is_said() -> None:
    causes = [Cause(rank=n, kind="argument", name=f"n{n}", a="x" * 200, b=None, why="w") for n in range(1, 31)]
    many = msgspec.structs.replace(found(), causes=causes, asked=[f"k{n}: 1 -> 2" for n in range(40)])
    for text in (table_text(many), markdown_text(many)):
        assert f"and {30 - MOST_CAUSES} less likely ones" in text
        assert "and 28 more (--format=json has all)" in text
        assert "x" * 100 not in text
        assert "not set" in text
    assert len(json.loads(json_text(many))["causes"]) == 30


def test_the_json_reads_back() -> None:
    once = found()
    assert msgspec.json.decode(json_text(once), type=Comparison) == once


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [(0.0152, "s", "15.2 ms"), (12345.6, "tokens/s", "12,346"), (38.123, "%", "38.1%"), (2e9, "bytes", "2.00 GB"),
     (5.84471, "", "5.8447"), (-1.25, "%", "-1.25%")],
)  # fmt: skip
def test_values_have_the_digits_that_suit(value: float, unit: str, text: str) -> None:
    assert value_text(value, unit) == text
