"""What people read of a comparison: the first sentence, the names of the sides, the table, the causes."""

import re
from typing import Any

import msgspec
import pytest

from benchmarks.compare.compare import compare
from benchmarks.compare.runs import ComparedRun
from benchmarks.compare.text import MOST_CAUSES, shortened, shown, table_text, value_text
from benchmarks.compare.values import Cause, Comparison
from benchmarks.values import json_text
from tests.benchmarks.compare.made import REAL_RUN, mfu, on_gpu, run, side, sides

FAST, SLOW = (1.0, 1.001, 0.999), (1.05, 1.051, 1.049)
SHORT, LONG = (3.2, 3.21, 3.22), (4.66, 4.68, 4.7)
SAME = (3.2, 3.3, 3.1)
TINY = "for MaxText llama2_tiny on 1 CPU device"


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


# --- the sentence ---------------------------------------------------------------------------------


def test_it_has_the_verdict_both_values_the_work_and_the_runs() -> None:
    h100 = msgspec.structs.replace(REAL_RUN.benchmark.hardware, name="h100", kind="gpu", emulated=[])
    made = {"gpus": 64, "hardware": h100}
    bf16 = [on_gpu(f"a{n}", one, made) for n, one in enumerate(LONG)]
    fp8 = [on_gpu(f"b{n}", one, {**made, "dtype": "fp8"}) for n, one in enumerate(SHORT)]
    found = compare(side("dtype=bf16", *bf16), side("dtype=fp8", *fp8))
    assert found.summary == (
        "better: fp8 takes 3.21 s per step, 31.4% less than bf16 (4.68 s), for MaxText llama2_tiny on 64 H100; "
        "3 runs each, 95% interval -32.01% to -30.80%"
    )
    assert table_text(found).startswith(f"{found.summary}\n")


@pytest.mark.parametrize(
    ("a", "b", "said"),
    [
        (SHORT, LONG, f"worse: B takes 4.68 s per step, 45.8% more than A (3.21 s), {TINY}; 3 runs each, 95% "),
        (SAME, (3.4, 3.2, 3.3), "inconclusive: B takes 3.299 s per step, 3.13% more than A"),
        (SAME[:2], LONG[:1], "inconclusive: B takes 4.66 s per step, 43.4% more than A"),
        ((1.0,) * 3, (1.001,) * 3, "same: B takes 1.001 s per step, 0.1% more than A"),
    ],
)
def test_it_begins_with_the_verdict(a: tuple[float, ...], b: tuple[float, ...], said: str) -> None:
    assert compare(*(chosen._replace(label=f"tag={chosen.label}") for chosen in sides(a, b))).summary.startswith(said)


def test_sides_with_other_batches_are_compared_by_tokens() -> None:
    def runs(letter: str, gpus: int) -> list[ComparedRun]:
        made = {"gpus": gpus, "global_batch_size": 2 * gpus}
        return [on_gpu(f"{letter}{n}", one / gpus**2, made) for n, one in enumerate(SAME)]

    found = compare(side("gpus=1", *runs("a", 1)), side("gpus=2", *runs("b", 2)))
    assert found.summary.startswith("better: 2 H100 reaches ")
    assert "tokens/s, 300% more than 1 H100" in found.summary
    assert (found.a.name, found.b.name) == ("1 H100", "2 H100")
    assert "A: 1 H100" in table_text(found)


def test_other_models_are_compared_by_mfu() -> None:
    other = msgspec.structs.replace(REAL_RUN.benchmark.model, name="llama3_tiny")
    a = [run(f"a{n}", 1.0, result={"mfu": [mfu(40.0)]}) for n in range(3)]
    b = [run(f"b{n}", 1.0, result={"mfu": [mfu(44.0)]}, benchmark={"model": other}) for n in range(3)]
    found = compare(side("A", *a), side("B", *b))
    assert found.summary.startswith("better: llama3_tiny reaches 44% MFU, 10% more than llama2_tiny (40%)")


# --- what the sides are called ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("of_b", "typed", "called"),
    [
        ({"dtype": "fp32"}, ("aa", "bb"), ("bf16", "fp32")),
        ({"dtype": "fp32"}, ("gpus=1,tag=before", "gpus=1,tag=after"), ("before", "after")),
        ({"dtype": "fp32"}, ("tag=x,dtype=bf16", "tag=y,dtype=fp32"), ("bf16", "fp32")),
        ({"engine": "nemo", "dtype": "fp32"}, ("aa", "bb"), ("MaxText bf16", "NeMo fp32")),
        ({}, ("aa", "bb"), ("00aa", "00bb")),
    ],
)
def test_a_side_is_called_by_what_differs(
    of_b: dict[str, Any], typed: tuple[str, str], called: tuple[str, str]
) -> None:
    a, b = run("run-a-00aa", 1.0), run("run-b-00bb", 1.0, benchmark=of_b)
    found = compare(side(typed[0], a), side(typed[1], b))
    assert (found.a.name, found.b.name) == called


# --- what is left out -------------------------------------------------------------------------------


def test_what_neither_side_has_is_left_out_for_people_and_kept_for_programs() -> None:
    found = compare(*sides(SHORT, LONG))
    every, people = (
        {one.name for one in differences} for differences in (found.differences, shown(found.differences))
    )
    assert every - people == {"MFU", "HFU", "tokens/s per GPU"}
    assert "MFU" not in table_text(found)
    one_sided = compare(sides(SHORT, LONG)[0], sides(SHORT, LONG, result={"mfu": [mfu(40.0)]})[1])
    assert "A has none" in table_text(one_sided)


def test_a_reason_that_many_runs_share_is_said_once() -> None:
    left = [one._replace(left_out={"x1": "profiled", "x2": "profiled"}) for one in sides(SHORT, LONG)]
    text = table_text(compare(*left))
    assert text.count("excluded from A") == 1 and "x1, x2: profiled" in text
