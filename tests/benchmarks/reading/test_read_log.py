"""Attempts, logging intervals and outlines of foreign logs. Whole logs are in tests/launch/test_ingest.py."""

import pytest

from benchmarks.reading.read_log import AttemptTracker, gaps, stride

# --- attempts ---------------------------------------------------------------------------------


@pytest.mark.parametrize("source", [None, 0, 7])
def test_a_job_starts_whoever_reported_before_and_a_process_where_its_own_source_did(source: int | None) -> None:
    tracker = AttemptTracker()
    tracker.job_started()
    assert tracker.report(source, 5)
    tracker.started(3)
    assert tracker.attempt == 1
    tracker.job_started()
    tracker.job_started()  # a second line of the same start
    assert tracker.attempt == 2
    assert tracker.report(source, 6)
    tracker.started(source)
    assert tracker.attempt == 3


# --- logging intervals ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("numbers", "every"),
    [
        ([], 1),
        ([5], 1),
        ([0, 1, 2], 1),
        ([10, 20, 30], 10),
        ([1, 10, 20, 30, 50, 60], 10),  # the first line may come early, one is missing
        ([0, 1, 2, 10, 11, 12], 1),
        ([0, 5, 7, 20], 1),  # no distance that most have
    ],
)
def test_stride(numbers: list[int], every: int) -> None:
    assert stride(numbers) == every


def test_gaps_are_the_lines_that_are_missing() -> None:
    assert gaps([10, 20, 30, 60, 70, 80, 100]) == [(40, 50), (90, 90)]
    assert gaps([0, 1, 2, 5, 6, 7, 9]) == [(3, 4), (8, 8)]
