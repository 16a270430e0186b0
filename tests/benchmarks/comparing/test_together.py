"""All figures of one comparison together: false verdicts in any of them, and what is said of them."""

import numpy as np
import pytest

from benchmarks.comparing.compare import compare
from benchmarks.comparing.intervals import Estimate, verdict_of
from benchmarks.comparing.text import reasons, table_text
from benchmarks.comparing.together import adjusted
from tests.benchmarks.comparing.made import figure, run, side, sides
from tests.benchmarks.comparing.nights import of_all_figures

FAST, SLOW = (1.0, 1.001, 0.999), (1.05, 1.051, 1.049)


def test_step_time_has_four_fifths_of_the_chance_and_the_others_share_the_rest() -> None:
    found = adjusted({"step time": 0.04, "excess": 0.5, "last loss": 0.9})
    assert found["step time"] == pytest.approx(0.05)
    assert found["last loss"] >= found["excess"] >= found["step time"]
    assert adjusted({"excess": 0.01, "step time": 0.9, "last loss": 0.9})["excess"] == pytest.approx(0.1)
    assert adjusted({"step time": 0.001, "excess": 0.02})["excess"] == pytest.approx(0.02)  # the last one left
    assert adjusted({"excess": 0.02, "last loss": 0.5}) == {"excess": pytest.approx(0.04), "last loss": 0.5}
    assert adjusted({"step time": 0.03}) == {"step time": 0.03}
    assert adjusted({}) == {}


@pytest.mark.parametrize("runs", [3, 10])
def test_two_equal_sides_seldom_differ_in_any_figure(runs: int) -> None:
    found = of_all_figures(np.random.RandomState(8), runs, 400)
    assert found.any_together <= 0.072  # 5%, two standard errors
    assert found.any_alone > 0.12  # the negative control: each figure at 95% by itself


def test_one_percent_in_step_time_is_still_seen() -> None:
    found = of_all_figures(np.random.RandomState(9), 5, 200, effect=0.01)
    assert found.step_together > 0.9


def test_an_interval_without_0_may_be_no_difference_among_many_figures() -> None:
    found = Estimate(0.02, 0.001, 0.039, by="3 and 3 runs")
    assert verdict_of(found, "lower", 0.0)[0] == "worse"
    verdict, why = verdict_of(found, "lower", 0.0, together=0.2)
    assert verdict == "no difference shown"
    assert "too likely by chance" in why


# --- what is said ---------------------------------------------------------------------------------


def test_figures_that_follow_from_step_time_count_once() -> None:
    found = compare(*sides(FAST, SLOW))
    assert found.together == "5 figures compared; with all together at 95%, 2 differ: step time, effective tokens/s"
    assert "none differs" in compare(*sides(FAST, FAST)).together
    chances = {figure(found, name).chance_together for name in ("seconds/step", "tokens/s", "tokens/s per GPU")}
    assert len(chances) == 1
    assert found.together in table_text(found)


def test_a_loss_that_differs_a_little_is_no_change_beside_four_other_figures() -> None:
    def with_losses(letter: str, values: list[float]) -> list[object]:
        loss = run("x").result.loss
        return [
            run(f"{letter}{n}", 1.0, result={"loss": type(loss)(loss.first, one)}) for n, one in enumerate(values)
        ]

    a, b = with_losses("a", [5.0, 5.01, 4.99]), with_losses("b", [5.035, 5.04, 5.02])
    found = compare(side("A", *a), side("B", *b), margin_percent=0)  # type: ignore[arg-type]
    loss = figure(found, "last loss")
    assert (loss.low or 0) > 0
    assert loss.chance is not None
    assert loss.chance_together is not None
    assert loss.chance < 0.05 < loss.chance_together
    assert loss.verdict == "no difference shown"
    assert "too likely by chance" in loss.why


def test_a_reason_that_all_figures_share_is_given_once() -> None:
    text = table_text(compare(*sides([1.0], [1.01])))
    assert text.count("3 runs a side, or 5 other runs") == 1
    assert "no verdict" not in text
    assert text.startswith("No verdict on b0 against a0 ")


def test_what_verdicts_share_is_said_once_beside_what_is_each_ones_own() -> None:
    made = compare(*sides([1.0, 1.1, 0.9], [1.01, 1.12, 0.9]))
    text = "\n".join(reasons(made.differences))
    assert [text.count(words) for words in ("3 and 3 runs, Welch's t", "the interval contains 0")] == [1, 1]
    assert {one.name for one in made.differences if "Welch's t" in one.why} > {"seconds/step", "excess"}
