"""The first sentence of a comparison, what it calls the sides, and what is said where a side is a mixture."""

from typing import Any

import msgspec
import pytest

from benchmarks.comparing.compare import compare
from benchmarks.comparing.narrowing import narrowed
from benchmarks.comparing.runs import ComparedRun
from benchmarks.comparing.text import shown, table_text
from tests.benchmarks.comparing.made import REAL_RUN, mfu, on_gpu, run, side, sides

FAST, SLOW = (3.2, 3.21, 3.22), (4.66, 4.68, 4.7)
SAME = (3.2, 3.3, 3.1)
TINY = " for MaxText llama2_tiny on 1 CPU device"


def tagged(name: str, seconds: float, *tags: str, **changes: Any) -> ComparedRun:
    return run(name, seconds, provenance={**REAL_RUN.provenance, "labels": {"tags": [*tags]}}, **changes)


def names(a: ComparedRun, b: ComparedRun, typed: tuple[str, str] = ("a", "b")) -> tuple[str, str]:
    found = compare(side(typed[0], a), side(typed[1], b))
    return found.a.name, found.b.name


# --- the sentence ---------------------------------------------------------------------------------


def test_a_manager_can_read_it() -> None:
    h100 = msgspec.structs.replace(REAL_RUN.benchmark.hardware, name="h100", kind="gpu", emulated=[])
    made = {"gpus": 64, "hardware": h100}
    bf16 = [on_gpu(f"a{n}", one, made) for n, one in enumerate(SLOW)]
    fp8 = [on_gpu(f"b{n}", one, {**made, "dtype": "fp8"}) for n, one in enumerate(FAST)]
    found = compare(side("dtype=bf16", *bf16), side("dtype=fp8", *fp8))
    assert found.summary == (
        "MaxText fp8 is 31% faster than bf16 for llama2_tiny on 64 H100: 3.21 against 4.68 s/step; "
        "3 runs each, 95% interval 30.8 to 32.0%"
    )
    assert table_text(found).startswith(f"{found.summary}\n")


@pytest.mark.parametrize(
    ("a", "b", "said"),
    [
        (FAST, SLOW, f"B is 46% slower than A{TINY}: 4.68 against 3.21 s/step; 3 runs each, 95% interval 44."),
        ((1.0,) * 3, (2.9, 2.91, 2.89), f"B takes 2.9 times as long as A{TINY}: 2.9 against 1 s/step; 3 runs each, "),
        ((2.0,) * 3, (0.9,) * 3, f"B takes 45% as long as A{TINY}: 0.9 against 2 s/step; 3 runs each, "),
        (SAME, (3.4, 3.2, 3.3), f"No difference shown between B and A{TINY}: 3.299 against 3.199 s/step; "),
        (SAME, SLOW[:1], f"No verdict on B against A{TINY}: 4.66 against 3.199 s/step; 1 and 3 runs"),
        ((1.0,) * 3, (1.001,) * 3, f"B and A are equal within 1%{TINY}: 1.001 against 1 s/step; 3 runs each, "),
    ],
)  # fmt: skip
def test_it_claims_no_more_than_the_verdict(a: tuple[float, ...], b: tuple[float, ...], said: str) -> None:
    assert compare(*(chosen._replace(label=f"tag={chosen.label}") for chosen in sides(a, b))).summary.startswith(said)


def test_sides_with_other_batches_are_compared_by_tokens() -> None:
    def runs(letter: str, seconds: tuple[float, ...], gpus: int) -> list[ComparedRun]:
        made = {"gpus": gpus, "global_batch_size": 2 * gpus}
        return [on_gpu(f"{letter}{n}", one / gpus**2, made) for n, one in enumerate(seconds)]

    found = compare(side("gpus=1", *runs("a", SAME, 1)), side("gpus=2", *runs("b", SAME, 2)))
    assert found.summary.startswith("MaxText on 2 H100 has 4 times as many tokens/s as on 1 H100 for llama2_tiny: ")
    assert (found.a.name, found.b.name) == ("1 H100", "2 H100")
    assert "A: 1 H100" in table_text(found)
    alone = compare(side("gpus=1", *runs("a", SAME[:1], 1)), side("gpus=2", *runs("b", SAME[:1], 2)))
    assert alone.summary.startswith("No verdict on MaxText on 2 H100 against MaxText on 1 H100 for llama2_tiny: ")


def test_other_models_are_compared_by_mfu() -> None:
    other = msgspec.structs.replace(REAL_RUN.benchmark.model, name="llama3_tiny")
    a = [run(f"a{n}", 1.0, result={"mfu": [mfu(40.0)]}) for n in range(3)]
    b = [run(f"b{n}", 1.0, result={"mfu": [mfu(44.0)]}, benchmark={"model": other}) for n in range(3)]
    found = compare(side("A", *a), side("B", *b))
    assert found.summary.startswith(
        "MaxText llama3_tiny has 10% higher MFU than llama2_tiny on 1 CPU device: 44% against"
    )


def test_a_difference_that_is_not_of_the_two_figures_alone_is_said_to_be_adjusted() -> None:
    def at(name: str, minute: int, seconds: float) -> ComparedRun:
        noise = 0.002 * (minute % 3)
        return run(f"20261122T06{minute:02}00Z-{name}-{minute:04}", seconds * 1.01**minute + noise)

    a = [at("a", minute, 1.0) for minute in (0, 1, 2, 3, 5)]
    b = [at("b", minute, 1.2) for minute in (4, 6, 7, 8, 9)]
    assert "; 5 runs each, adjusted for when they ran, 95% interval " in compare(side("A", *a), side("B", *b)).summary
    assert "adjusted" not in compare(*sides(FAST, SLOW)).summary


# --- what the sides are called ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("of_a", "of_b", "typed", "called"),
    [
        ({}, {"dtype": "fp32"}, ("aa", "bb"), ("bf16", "fp32")),
        ({}, {"dtype": "fp32"}, ("gpus=1,tag=before", "gpus=1,tag=after"), ("before", "after")),
        ({}, {"dtype": "fp32"}, ("tag=x,dtype=bf16", "tag=y,dtype=fp32"), ("bf16", "fp32")),
        ({}, {"engine": "nemo", "dtype": "fp32"}, ("aa", "bb"), ("MaxText bf16", "NeMo fp32")),
        ({"knobs": {"remat": "full"}}, {"knobs": {"remat": "none"}}, ("aa", "bb"), ("remat=full", "remat=none")),
        ({}, {"xla_flags": {"xla_x": "1"}}, ("aa", "bb"), ("default", "xla_x=1")),
        ({}, {}, ("gpus=1,commit=abc", "gpus=1,commit=def"), ("commit=abc", "commit=def")),
        ({}, {}, ("aa", "bb"), ("00aa", "00bb")),
    ],
)
def test_a_side_is_called_by_what_differs(
    of_a: dict[str, Any], of_b: dict[str, Any], typed: tuple[str, str], called: tuple[str, str]
) -> None:
    a, b = run("run-a-00aa", 1.0, benchmark=of_a), run("run-b-00bb", 1.0, benchmark=of_b)
    assert names(a, b, typed) == called


def test_where_nothing_else_differs_a_tag_of_all_runs_of_a_side_names_it() -> None:
    assert names(tagged("a", 1.0, "x", "before"), tagged("b", 1.0, "x", "after")) == ("before", "after")
    assert names(tagged("a", 1.0, "x"), tagged("b", 1.0, "x")) == ("a", "b")


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


# --- mixtures ---------------------------------------------------------------------------------------


def test_a_mixture_is_narrowed_to_what_both_sides_have() -> None:
    a = [run("a-0001", 1.0), run("a-0002", 1.0, benchmark={"dtype": "fp32"}), run("a-0003", 1.0)]
    b = [run("b-0004", 1.0, benchmark={"dtype": "fp32", "gpus": 4})]
    assert narrowed(("gpus=1", "gpus=4"), (a, b)) == ["gpus=1,dtype=fp32", "gpus=4"]
    assert narrowed(("a", "b"), (a, b)) == ["0002", "0004"]
    assert narrowed(("gpus=1", "gpus=4"), (a[::2], b)) == []


def test_a_part_that_no_condition_names_is_told_by_its_runs() -> None:
    a = [run(f"a-000{n}", 1.0, benchmark={"micro_batch_size": size}) for n, size in enumerate((1, 2, 2))]
    assert narrowed(("gpus=1", "tag=x"), (a, [run("b-0004", 1.0)])) == ["0001,0002", "tag=x"]


def test_sides_chosen_by_their_nights_are_called_by_them() -> None:
    def night(day: int, seconds: float) -> ComparedRun:
        labels = {"nightly": {"night": f"202611{day}T023000Z"}}
        return run(f"a{day}", seconds, provenance={**REAL_RUN.provenance, "labels": labels})

    before = [night(day, seconds) for day, seconds in ((21, 1.0), (22, 1.01), (23, 0.99))]
    found = compare(side("cell=x,night<20261124T023000Z", *before), side("cell=x,night=20261124", night(24, 1.5)))
    assert (found.a.name, found.b.name) == (
        "3 nights from 20261121T023000Z to 20261123T023000Z",
        "night 20261124T023000Z",
    )


def test_a_reason_that_many_runs_share_is_said_once() -> None:
    chosen = sides(FAST, SLOW, notes=["it was changed"])
    left = [one._replace(left_out={"x1": "profiled", "x2": "profiled"}) for one in chosen]
    text = table_text(compare(*left))
    assert "b0 and 2 more: it was changed" in text
    assert text.count("left out of A") == 1 and "x1, x2: profiled" in text
