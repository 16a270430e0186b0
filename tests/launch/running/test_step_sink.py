"""TensorBoard's own reader on Stepmark's events, and the behaviour if nothing can be written."""

import errno
import os
from pathlib import Path

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from benchmarks.dashboard.events import EVENT_FILES, write_ended
from benchmarks.errors import RunError
from benchmarks.files import failed
from benchmarks.runs.runfolder import RunFolder
from benchmarks.values import Step
from launch.running.execute import StepSink
from tests.launch.dashboards.made_runs import BEGIN, MEASURED, begun, sample, train

GPU = [1000, 350.0, 1500, 2600, 60, 99, 40_000_000_000, 0, 0, 0]
SLOW_GPU = [1000, 700.0, 1200, 2600, 80, 97, 60_000_000_000, 0x40, 0, 0]


def accumulated(folder: RunFolder) -> EventAccumulator:
    events = EventAccumulator(str(folder.path / "tensorboard"), size_guidance={"scalars": 0, "tensors": 0})
    events.Reload()
    return events


def line(folder: RunFolder, tag: str) -> dict[int, float]:
    return {event.step: event.value for event in accumulated(folder).Scalars(tag)}


def followed(folder: RunFolder) -> RunFolder:
    """The run's steps go through the launcher's hands one by one."""
    with StepSink(folder, folder.benchmark()) as sink:
        for number in range(4):
            sink.take([Step(step=number, seconds=0.5, loss=6.0, tokens=None, elapsed_seconds=0.5 * (number + 1))])
    return folder


def test_an_unwritable_folder_is_reported_and_the_run_continues(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = begun(tmp_path, "a_run")
    (folder.path / "tensorboard").write_text("in the way")
    assert len(followed(folder).stored_steps()) == 4
    assert "TensorBoard's events could not be written" in capsys.readouterr().err


def test_of_a_folder_that_went_stale_the_steps_are_named_and_those_before_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> int:
        raise OSError(errno.ESTALE, "Stale file handle")

    folder = begun(tmp_path, "a_run")
    steps = [Step(step=number, seconds=0.5, loss=6.0, tokens=None) for number in range(4)]
    with (
        StepSink(folder, folder.benchmark()) as sink,
        pytest.raises(RunError) as caught,
        monkeypatch.context() as now,
    ):
        sink.take(steps[:3])
        for place, name in ((os, "write"), (Path, "exists"), (Path, "symlink_to")):
            now.setattr(place, name, fail)
        sink.take(steps[3:])
    assert caught.value.what == "steps.jsonl could not be written: Stale file handle"
    assert caught.value.next_command.endswith(f"verify.py --repair {folder.path}")
    assert [one.step for one in folder.stored_steps()] == [0, 1, 2]


def test_ctrl_c_while_the_event_file_is_opened_loses_no_later_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    folder = begun(tmp_path, "a_run")
    first, last = (Step(step=number, seconds=0.5, loss=6.0, tokens=None) for number in range(2))
    with StepSink(folder, folder.benchmark()) as sink:
        with monkeypatch.context() as now, pytest.raises(KeyboardInterrupt):
            now.setattr("benchmarks.dashboard.events.records_of", interrupt)
            sink.take([first])
        sink.take([last])
    assert list(line(folder, "perf/step_seconds")) == [1]
    assert len(folder.stored_steps()) == 2


def test_no_step_is_written_through_a_link(tmp_path: Path) -> None:
    folder, mine = begun(tmp_path, "a_run"), tmp_path / "mine"
    mine.mkdir()
    with StepSink(folder, folder.benchmark()) as sink:
        (folder.path / "tensorboard").symlink_to(mine)  # after the run has started
        sink.take([Step(step=0, seconds=0.5, loss=6.0, tokens=None)])
    steps = folder.path / "steps.jsonl"
    steps.unlink()
    steps.symlink_to(mine / "steps.jsonl")
    with pytest.raises(OSError, match=steps.name) as caught, StepSink(folder, folder.benchmark()):
        pass
    assert failed(caught.value).next_command == f"rm {steps}"
    assert list(mine.iterdir()) == []


def test_quick_steps_are_written_when_the_run_has_ended(tmp_path: Path) -> None:
    folder = begun(tmp_path, "a_run")
    with StepSink(folder, folder.benchmark()) as sink:
        sink.take([Step(step=number, seconds=0.01, loss=6.0, tokens=None) for number in range(6)])
        assert not (folder.path / "tensorboard").exists()
    assert len(line(folder, "perf/step_seconds")) == 6


@pytest.mark.parametrize(
    ("changes", "place"),
    [
        ({}, "perf"),
        ({"profile": "xplane"}, "profiled"),
        ({"inject_slowdown": 0.5}, "slowed"),
        ({"inject_slowdown": 0.5, "profile": "nccl"}, "profiled"),
    ],
)
def test_the_times_of_what_is_not_comparable_have_tags_of_their_own(
    tmp_path: Path, changes: dict[str, object], place: str
) -> None:
    folder = followed(begun(tmp_path, "a_run", **changes))
    speeds = {tag for tag in accumulated(folder).Tags()["scalars"] if not tag.startswith(("train/", "telemetry/"))}
    names = ("step_seconds", "tokens_per_second", "tokens_per_second_per_gpu")
    assert speeds == {f"{place}/{name}" for name in names}


def test_mfu_is_that_of_the_result_at_the_same_seconds(tmp_path: Path) -> None:
    from benchmarks.measuring.utilisation import mfu, workload_of

    folder = followed(begun(tmp_path, "a_run", measured_peaks=MEASURED))
    expected = mfu(workload_of(folder.benchmark()), 0.5, {})
    assert expected is not None
    assert line(folder, "perf/mfu_percent/recipe_measured_bf16") == pytest.approx(
        dict.fromkeys(range(4), expected[0].percent)
    )


# --- telemetry ------------------------------------------------------------------------------------


def test_samples_are_drawn_at_the_step_in_which_they_were_taken(tmp_path: Path) -> None:
    folder = begun(tmp_path, "a_run")
    train(folder, [0.5] * 4)
    sample(folder, [BEGIN + 0.1, BEGIN + 1.2, BEGIN + 1.4, BEGIN + 60.0, BEGIN - 5.0])
    assert line(followed(folder), "telemetry/cpu_utilisation_percent") == {0: 50.0, 2: 50.0}
    assert line(folder, "telemetry/host_memory_gb_highest") == {0: 4.0, 2: 6.0}


def test_samples_of_the_gpus_over_all_nodes(tmp_path: Path) -> None:
    from benchmarks.configs import Configs

    folder = begun(tmp_path, "a_run", hardware=Configs().hardware("h100"))
    train(folder, [0.5] * 4)
    sample(folder, [BEGIN + 0.1], GPU, "node0")
    sample(folder, [BEGIN + 0.2], SLOW_GPU, "node1")
    followed(folder)
    found = {tag: line(folder, tag)[0] for tag in accumulated(folder).Tags()["scalars"] if "/gpu_" in tag}
    assert found == {
        "telemetry/gpu_power_watts": 525.0,
        "telemetry/gpu_power_watts_highest": 700.0,
        "telemetry/gpu_sm_clock_mhz": 1350.0,
        "telemetry/gpu_sm_clock_mhz_lowest": 1200.0,
        "telemetry/gpu_utilization_percent": 98.0,
        "telemetry/gpu_memory_gb_highest": 60.0,
        "telemetry/gpu_temperature_c_highest": 80.0,
        "telemetry/gpu_throttled_percent": 50.0,
    }


def test_a_run_that_nobody_followed_gets_the_same_scalars(tmp_path: Path) -> None:
    def made(name: str) -> RunFolder:
        folder = begun(tmp_path, name, measured_peaks=MEASURED)
        train(folder, [0.5] * 4)
        sample(folder, [BEGIN + 0.1, BEGIN + 1.2])
        return folder

    live, late = followed(made("live")), made("late")
    late.write_steps(live.stored_steps())
    write_ended(late)
    write_ended(late)  # once is enough
    assert len(list((late.path / "tensorboard").glob(EVENT_FILES))) == 1
    tags = accumulated(live).Tags()["scalars"]
    assert accumulated(late).Tags()["scalars"] == tags
    assert [line(late, tag) for tag in tags] == [line(live, tag) for tag in tags]
