"""The reference convergence points, pruned and interpolated as rcp_checker does it, and published times to train."""

import pytest

from benchmarks.configs import Configs
from benchmarks.errors import RequestError
from benchmarks.mlperf.reference_points import (
    ReferencePoint,
    expected,
    published_for,
    read_points,
    read_times,
)

CONFIGS = Configs()
TIMES = read_times(CONFIGS.root)
HARDWARE = CONFIGS.names("hardware")


def point(batch: int, samples: float, stdev: float = 1.0) -> ReferencePoint:
    return ReferencePoint(batch=batch, samples=samples, stdev=stdev)


def record(batch: int, samples: list[float], unit: str = "samples to converge") -> dict[str, object]:
    return {"BS": batch, unit: samples}


def test_a_point_leaves_out_the_best_and_the_worst_run() -> None:
    (read,) = read_points({"a": record(8, [100, 1, 4, 2, 3])}, "rcps.json")
    assert (read.batch, read.samples) == (8, 3.0)
    assert read.stdev == pytest.approx(39.0128, abs=1e-4)


def test_samples_are_read_under_both_names_of_the_unit() -> None:
    (read,) = read_points({"a": record(16, [1, 2, 3], "Epochs to converge")}, "rcps.json")
    assert read.samples == 2


def test_what_is_no_file_of_points_is_refused() -> None:
    for records in ({"a": {}}, {"a": record(8, [1, 2])}, {"a": []}):
        with pytest.raises(RequestError, match="not the reference points"):
            read_points(records, "rcps.json")


def test_a_batch_outside_has_no_expectation() -> None:
    points = [point(8, 100), point(16, 200)]
    assert (expected(points, 4).how, expected(points, 32).how) == ("below", "above")
    assert expected(points, 4).samples is None and not expected(points, 32).inside


# --- published times ----------------------------------------------------------------------------


def test_every_published_time_names_what_exists() -> None:
    assert TIMES.source and TIMES.date and len(TIMES.times) > 20
    for row in TIMES.times:
        assert row.benchmark in CONFIGS.names("mlperf") and row.hardware in HARDWARE
        assert row.minutes == sorted(row.minutes) and all(minutes > 0 for minutes in row.minutes)


@pytest.mark.parametrize(
    ("platform", "hardware"),
    [
        ("18xNVIDIA GB200", {"gb200"}),
        ("1xDGX H100", {"h100"}),
        ("8xcpu", {"h100", "h200", "b200", "gb200", "gb300"}),
        (None, {"h100", "h200", "b200", "gb200", "gb300"}),
    ],
)
def test_those_of_the_named_device_stand_beside_a_run(platform: str | None, hardware: set[str]) -> None:
    rows = published_for(TIMES, "llama2_70b_lora", platform, HARDWARE)
    assert {row.hardware for row in rows} == hardware
