"""What people read of a comparison: the first sentence, the names of the sides, the table, the causes."""

import re
from typing import Any

import msgspec
import pytest

from benchmarks.compare.compare import compare
from benchmarks.compare.runs import ComparedRun
from benchmarks.compare.text import MOST_CAUSES, table_text
from benchmarks.compare.values import Cause, Comparison, Difference
from benchmarks.values import json_text
from tests.benchmarks.compare.made import REAL_RUN, on_gpu, run, side, sides

FAST, SLOW = (1.0, 1.001, 0.999), (1.05, 1.051, 1.049)
SHORT, LONG = (3.2, 3.21, 3.22), (4.66, 4.68, 4.7)
SAME = (3.2, 3.3, 3.1)


def compared(**of_b: object) -> Comparison:
    return compare(*sides(FAST, SLOW, **of_b), explained=True)


def test_the_table_says_figures_then_reasons_then_causes() -> None:
    text = table_text(compared(benchmark={"knobs": {"remat_policy": "full"}}))
    assert re.search(r"Step time +1000 ms +1\.05 s +\+5\.00% +\+4\.\d\d% to \+5\.\d\d% +worse", text)
    order = ["Step time", "Differs:", "A  baseline", "Welch's t", "what differs, the most likely cause"]
    assert [text.index(words) for words in order] == sorted(text.index(words) for words in order)
    assert re.search(r"\d+  setting remat_policy: minimal -> full \(weight 90: ", text)
    assert max(map(len, text.splitlines()[1:])) <= 118


def test_the_screen_has_the_verdict_and_no_mirror_of_step_time() -> None:
    sentence, head, *lines = table_text(compared(), whole=False).splitlines()
    assert sentence.startswith("WORSE: ")
    assert head.split()[:4] == ["A:", "baseline", "B:", "candidate"]
    labels = [line.split("  ")[1] for line in lines[:3]]
    assert labels == ["Step time", "Last loss", "Host memory"]
    assert lines[0].endswith("worse") and lines[1].endswith("not tested")
    assert "--verbose" in lines[-1] and not any("tokens/s" in line for line in lines)
    short = table_text(compare(*sides(FAST, SLOW)), whole=False)
    assert "--explain" in short and len(short.splitlines()) <= 12


def test_mfu_is_shown_if_step_time_does_not_imply_it() -> None:
    step = compared().differences[0].percent or 0.0
    mirror = 100 / (1 + step / 100) - 100
    mfu = [Difference(name="MFU", unit="%", a=40.0, b=40.0 / 1.05, percent=percent) for percent in (mirror, 3.0)]
    texts = [
        table_text(msgspec.structs.replace(compared(), differences=[*compared().differences, one]), whole=False)
        for one in mfu
    ]
    assert ["MFU" in text for text in texts] == [False, True]


def test_many_causes_are_cut_and_the_json_has_all() -> None:
    causes = [Cause(rank=n, kind="argument", name=f"n{n}", a="x" * 200, b=None, why="w") for n in range(1, 31)]
    many = msgspec.structs.replace(compared(), causes=causes)
    text = table_text(many)
    assert f"and {30 - MOST_CAUSES} more (--json has all)" in text
    assert "x" * 100 not in text
    assert msgspec.json.decode(json_text(many), type=Comparison) == many


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
    assert table_text(found).startswith("BETTER: fp8 takes")


def test_sides_with_other_batches_are_compared_by_tokens() -> None:
    def runs(letter: str, gpus: int) -> list[ComparedRun]:
        made = {"gpus": gpus, "global_batch_size": 2 * gpus}
        return [on_gpu(f"{letter}{n}", one / gpus**2, made) for n, one in enumerate(SAME)]

    found = compare(side("gpus=1", *runs("a", 1)), side("gpus=2", *runs("b", 2)))
    assert found.summary.startswith("better: 2 H100 reaches ")
    assert "tokens/s, 300% more than 1 H100" in found.summary
    assert (found.a.name, found.b.name) == ("1 H100", "2 H100")
    assert "A  1 H100 (3 runs" in table_text(found)


# --- what the sides are called ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("of_b", "typed", "called"),
    [
        ({"dtype": "fp32"}, ("aa", "bb"), ("bf16", "fp32")),
        ({"dtype": "fp32"}, ("tag=before", "tag=after"), ("before", "after")),
        ({"dtype": "fp32"}, ("tag=x,dtype=bf16", "tag=y,dtype=fp32"), ("bf16", "fp32")),
        ({"engine": "nemo", "dtype": "fp32"}, ("aa", "bb"), ("MaxText bf16", "NeMo fp32")),
        ({}, ("aa", "bb"), ("baseline", "candidate")),
    ],
)
def test_a_side_is_called_by_what_differs(
    of_b: dict[str, Any], typed: tuple[str, str], called: tuple[str, str]
) -> None:
    a, b = run("run-a-00aa", 1.0), run("run-b-00bb", 1.0, benchmark=of_b)
    found = compare(side(typed[0], a), side(typed[1], b))
    assert (found.a.name, found.b.name) == called
