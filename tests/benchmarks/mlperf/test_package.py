"""What is read from the installed mlperf-logging package, held to the package's own computing."""

import pytest

from benchmarks.configs import Configs
from benchmarks.errors import RequestError
from benchmarks.mlperf.definitions import read_definition
from benchmarks.mlperf.package import expected, reference_points

CONFIGS = Configs()
CASES = [
    (name, ruleset)
    for name in ("llama2_70b_lora", "llama31_8b", "flux1")
    for ruleset in read_definition(CONFIGS, name).rulesets
]


@pytest.mark.parametrize(("name", "ruleset"), CASES)
def test_points_are_those_that_the_package_judges_by(name: str, ruleset: str) -> None:
    from mlperf_logging.rcp_checker import rcp_checker

    checker = rcp_checker.RCP_Checker("training", ruleset, name, False)
    theirs = {row["BS"]: (row["RCP Mean"], row["RCP Stdev"]) for row in checker.pruned_rcp_data.values()}
    points = reference_points(read_definition(CONFIGS, name), ruleset)
    ours = {point.batch: (point.samples, point.stdev) for point in points}
    assert ours.keys() == theirs.keys()
    for batch, figures in theirs.items():
        assert ours[batch] == pytest.approx(figures)


def test_interpolation_is_the_packages() -> None:
    from mlperf_logging.rcp_checker import rcp_checker

    checker = rcp_checker.RCP_Checker("training", "5.1.0", "llama2_70b_lora", False)
    low, high = (checker._find_top_min_rcp(9, "pruned_rcps"), checker._find_bottom_max_rcp(9, "pruned_rcps"))
    _, theirs = checker._create_interp_rcp(9, low, high)
    ours = expected(reference_points(read_definition(CONFIGS, "llama2_70b_lora"), "5.1.0"), 9)
    assert ours is not None
    assert (ours.samples, ours.stdev) == pytest.approx((theirs["RCP Mean"], theirs["RCP Stdev"]))


def test_a_ruleset_without_the_benchmark_is_refused_with_those_that_have_it() -> None:
    with pytest.raises(RequestError, match="no reference convergence points of llama31_8b") as refused:
        reference_points(read_definition(CONFIGS, "llama31_8b"), "5.0.0")
    assert "5.1.0, 6.0.0, 6.1.0" in refused.value.why
