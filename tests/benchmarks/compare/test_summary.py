"""The first sentence of a comparison, what it calls the sides, and what people do not see."""

from typing import Any

import msgspec
import pytest

from benchmarks.compare.compare import compare
from benchmarks.compare.runs import ComparedRun
from benchmarks.compare.text import shown, table_text
from tests.benchmarks.compare.made import REAL_RUN, mfu, on_gpu, run, side, sides

FAST, SLOW = (3.2, 3.21, 3.22), (4.66, 4.68, 4.7)
SAME = (3.2, 3.3, 3.1)
TINY = "for MaxText llama2_tiny on 1 CPU device"


# --- the sentence ---------------------------------------------------------------------------------


def test_it_has_the_verdict_both_values_the_work_and_the_runs() -> None:
    h100 = msgspec.structs.replace(REAL_RUN.benchmark.hardware, name="h100", kind="gpu", emulated=[])
    made = {"gpus": 64, "hardware": h100}
    bf16 = [on_gpu(f"a{n}", one, made) for n, one in enumerate(SLOW)]
    fp8 = [on_gpu(f"b{n}", one, {**made, "dtype": "fp8"}) for n, one in enumerate(FAST)]
    found = compare(side("dtype=bf16", *bf16), side("dtype=fp8", *fp8))
    assert found.summary == (
        "better: fp8 takes 3.21 s per step, 31.4% less than bf16 (4.68 s), for MaxText llama2_tiny on 64 H100; "
        "3 runs each, 95% interval -32.01% to -30.80%"
    )
    assert table_text(found).startswith(f"{found.summary}\n")


@pytest.mark.parametrize(
    ("a", "b", "said"),
    [
        (FAST, SLOW, f"worse: B takes 4.68 s per step, 45.8% more than A (3.21 s), {TINY}; 3 runs each, 95% "),
        (SAME, (3.4, 3.2, 3.3), "inconclusive: B takes 3.299 s per step, 3.13% more than A"),
        (SAME[:2], SLOW[:1], "inconclusive: B takes 4.66 s per step, 43.4% more than A"),
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
        ({}, ("gpus=1,commit=abc", "gpus=1,commit=def"), ("commit=abc", "commit=def")),
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
    found = compare(*sides(FAST, SLOW))
    every, people = (
        {one.name for one in differences} for differences in (found.differences, shown(found.differences))
    )
    assert every - people == {"MFU", "HFU", "tokens/s per GPU"}
    assert "MFU" not in table_text(found)
    one_sided = compare(sides(FAST, SLOW)[0], sides(FAST, SLOW, result={"mfu": [mfu(40.0)]})[1])
    assert "A has none" in table_text(one_sided)


def test_a_reason_that_many_runs_share_is_said_once() -> None:
    chosen = sides(FAST, SLOW, notes=["it was changed"])
    left = [one._replace(left_out={"x1": "profiled", "x2": "profiled"}) for one in chosen]
    text = table_text(compare(*left))
    assert "b0 and 2 more: it was changed" in text
    assert text.count("excluded from A") == 1 and "x1, x2: profiled" in text
