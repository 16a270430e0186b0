"""The MLPerf benchmarks as data: what the rules fix, when they evaluate first, and what the reference needs."""

import pytest

from benchmarks.configs import Configs
from benchmarks.errors import RequestError
from benchmarks.mlperf.definitions import Target, first_evaluation, read_definition
from benchmarks.mlperf.package import ReferencePoint, expected
from benchmarks.model.flops import ADAPTED_MATRICES

CONFIGS = Configs()


@pytest.mark.parametrize("name", CONFIGS.names("mlperf"))
def test_every_row_names_its_source_and_what_exists(name: str) -> None:
    row = read_definition(CONFIGS, name)
    assert row.source and row.date
    assert row.rulesets == sorted(row.rulesets) and row.rulesets
    assert row.model is None or row.model in CONFIGS.names("models")
    assert (row.lora is not None) == (row.task == "lora")
    assert set(row.lora.targets if row.lora else []) <= set(ADAPTED_MATRICES)


def test_an_unknown_benchmark_is_refused_with_the_nearest() -> None:
    with pytest.raises(RequestError, match="did you mean 'llama2_70b_lora'"):
        read_definition(CONFIGS, "llama2_70b_loar")


@pytest.mark.parametrize(
    ("name", "batch", "knob", "steps"),
    [
        # MLCommons training_results_v5.1, NVIDIA, theia_ngpu72
        ("llama2_70b_lora", 9, None, (43, 3, 172, 1548)),
        ("llama31_8b", 36, None, (342, 0, 342, 12312)),
        ("flux1", 2304, None, (114, 0, 114, 262656)),
        # the knob counts samples in one and steps in the other
        ("llama2_70b_lora", 1, 1152, (1152, 2, 3456, 3456)),
        ("llama31_8b", 36, 342, (342, 0, 342, 12312)),
    ],
)
def test_the_first_evaluation_is_where_published_logs_have_it(
    name: str, batch: int, knob: int | None, steps: tuple[int, int, int, int]
) -> None:
    found = first_evaluation(read_definition(CONFIGS, name), batch, knob)
    assert (found.steps_apart, found.skipped, found.step, found.samples) == steps


def test_a_loss_of_nothing_reaches_no_target() -> None:
    target = Target(metric="eval_loss", at_most=0.925)
    reached = [target.reached_by(value) for value in (0.925, 0.926, 0.0, -1.0, float("nan"))]
    assert reached == [True, False, False, False, False]


# --- what it is compared with; the installed package's points: test_package.py ----------


def test_a_batch_outside_has_no_expectation() -> None:
    points = [ReferencePoint(batch=8, samples=100, stdev=1.0), ReferencePoint(batch=16, samples=200, stdev=1.0)]
    assert [expected(points, batch) for batch in (4, 32)] == [None, None]
