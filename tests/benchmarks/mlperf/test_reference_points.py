"""The reference convergence points, pruned and interpolated as rcp_checker does it, and published times to train."""

import pytest

from benchmarks.configs import Configs
from benchmarks.errors import RequestError
from benchmarks.mlperf.reference_points import (
    ReferencePoint,
    expected,
    prune,
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


def test_a_point_above_the_line_of_its_neighbours_is_pruned() -> None:
    kept = prune([point(8, 100), point(16, 190), point(32, 220), point(64, 400)])
    assert [one.batch for one in kept] == [8, 32, 64]


def test_batches_smaller_than_the_fastest_are_pruned() -> None:
    assert [one.batch for one in prune([point(8, 120), point(16, 100), point(32, 200)])] == [16, 32]


def test_a_batch_between_two_points_is_interpolated() -> None:
    found = expected([point(8, 100, 10), point(16, 200, 30)], 10)
    assert (found.how, found.samples, found.stdev, found.between) == ("interpolated", 125, 15, [8, 16])


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


def test_no_published_time_is_there_twice() -> None:
    keys = [(row.benchmark, row.round, row.hardware, row.gpus) for row in TIMES.times]
    assert len(set(keys)) == len(keys)


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


def test_a_small_copy_has_none() -> None:
    assert published_for(TIMES, "llama31_8b_tiny", "1xcpu", HARDWARE) == []


def test_a_published_time_says_its_round() -> None:
    (row,) = [one for one in TIMES.times if (one.hardware, one.gpus) == ("b200", 8) and len(one.minutes) == 2][:1]
    assert row.text() == "8.6 to 10.1 min on 8 b200 (v5.1)"
