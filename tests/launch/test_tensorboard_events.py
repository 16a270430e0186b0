"""TensorBoard's own reader on what we write, and what happens where nothing can be written."""

from pathlib import Path

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from benchmarks.values import Step
from launch.tensorboard_events import ScalarWriter, scalars


def steps(first: int, last: int, seconds: float = 0.5, rank: int = 0) -> list[Step]:
    return [
        Step(step=n, seconds=seconds, loss=6.0, tokens=256, rank=rank, elapsed_seconds=n * seconds)
        for n in range(first, last + 1)
    ]


def read(folder: Path) -> list[tuple[int, float]]:
    events = EventAccumulator(str(folder), size_guidance={"scalars": 0})
    events.Reload()
    if "perf/tokens_per_second" not in events.Tags()["scalars"]:
        return []
    return [(event.step, event.value) for event in events.Scalars("perf/tokens_per_second")]


def test_slow_steps_are_there_while_the_run_goes_on(tmp_path: Path) -> None:
    writer = ScalarWriter(tmp_path / "tensorboard", profiled=False)
    writer.write(steps(0, 1) + steps(0, 1, rank=1))
    assert read(tmp_path / "tensorboard") == [(0, 512.0), (1, 512.0)]
    writer.write(steps(2, 2))
    writer.close()
    assert [step for step, _ in read(tmp_path / "tensorboard")] == [0, 1, 2]


def test_quick_steps_are_written_when_the_run_has_ended(tmp_path: Path) -> None:
    writer = ScalarWriter(tmp_path / "tensorboard", profiled=False)
    writer.write(steps(0, 5, seconds=0.01))
    assert not (tmp_path / "tensorboard").exists()
    writer.close()
    assert len(read(tmp_path / "tensorboard")) == 6


def test_no_steps_leave_no_file(tmp_path: Path) -> None:
    ScalarWriter(tmp_path / "tensorboard", profiled=False).close()
    assert list(tmp_path.iterdir()) == []


def test_a_place_that_cannot_be_written_is_said_and_costs_nothing_else(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("in the way")
    writer = ScalarWriter(tmp_path / "file", profiled=False)
    writer.write(steps(0, 1))
    writer.close()
    assert "TensorBoard's events could not be written" in capsys.readouterr().err


def test_the_times_of_a_profiled_run_have_tags_of_their_own(tmp_path: Path) -> None:
    writer = ScalarWriter(tmp_path / "tensorboard", profiled=True)
    writer.write(steps(0, 3))
    writer.close()
    events = EventAccumulator(str(tmp_path / "tensorboard"), size_guidance={"scalars": 0})
    events.Reload()
    tags = events.Tags()["scalars"]
    assert set(tags) == {"profiled/step_seconds", "profiled/tokens_per_second", "train/loss"}


@pytest.mark.parametrize(
    ("reason", "place"), [(None, "perf"), ("settling", "perf"), ("profiler", "profiled"), ("pgle", "profiled")]
)
def test_steps_that_were_recorded_are_not_among_those_that_were_not(reason: str | None, place: str) -> None:
    step = Step(step=3, seconds=0.5, loss=6.0, tokens=256, excluded_because=reason)
    assert scalars(step, profiled=False) == {
        f"{place}/step_seconds": 0.5, f"{place}/tokens_per_second": 512.0, "train/loss": 6.0
    }  # fmt: skip
