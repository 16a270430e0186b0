"""Published times to train: rows that name what exists, and which of them stand beside a run."""

import pytest

from benchmarks.configs import Configs
from benchmarks.mlperf.published_times import beside, read_times

CONFIGS = Configs()
TIMES = read_times(CONFIGS.root)
HARDWARE = CONFIGS.names("hardware")


def test_every_row_names_what_exists() -> None:
    assert TIMES.source and TIMES.date and len(TIMES.times) > 20
    for row in TIMES.times:
        assert row.benchmark in CONFIGS.names("mlperf") and row.hardware in HARDWARE
        assert row.minutes == sorted(row.minutes) and all(minutes > 0 for minutes in row.minutes)


def test_no_row_is_there_twice() -> None:
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
    rows = beside(TIMES, "llama2_70b_lora", platform, HARDWARE)
    assert {row.hardware for row in rows} == hardware


def test_a_small_copy_has_none() -> None:
    assert beside(TIMES, "llama31_8b_tiny", "1xcpu", HARDWARE) == []


def test_a_row_says_its_round() -> None:
    (row,) = [one for one in TIMES.times if (one.hardware, one.gpus) == ("b200", 8) and len(one.minutes) == 2][:1]
    assert row.text() == "8.6 to 10.1 min on 8 b200 (v5.1)"
