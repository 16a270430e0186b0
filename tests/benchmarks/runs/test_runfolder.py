"""A run folder under every misfortune: cut lines, damaged files, a full disk, a second attempt."""

import errno
import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from benchmarks.errors import EXIT_FAILED, RequestError, RunError
from benchmarks.measuring.failures import first_to_fail
from benchmarks.runs.recompute import differences, recompute
from benchmarks.runs.runfolder import (
    BENCHMARK,
    EXITS,
    PLAN,
    PROVENANCE,
    RESULT,
    STEPS,
    RunFolder,
    new_run_id,
    write_atomically,
)
from benchmarks.values import Benchmark
from jax_backend import BACKEND

AddAttempt = Callable[..., Path]


def write_exits(phase_dir: Path, *codes: int) -> None:
    lines = [{"rank": rank, "exit_code": code} for rank, code in enumerate(codes)]
    (phase_dir / EXITS).write_text("".join(json.dumps(line) + "\n" for line in lines))


# --- names ------------------------------------------------------------------------------------------


def test_run_ids_are_readable_unique_and_without_dots(benchmark_value: Benchmark) -> None:
    run_id = new_run_id(benchmark_value)
    assert re.fullmatch(r"\d{8}T\d{6}Z-jax-llama2_tiny-pretrain-bf16-1xcpu-[0-9a-f]{4}", run_id)
    assert len({new_run_id(benchmark_value) for _ in range(20)}) > 15


# --- writing ----------------------------------------------------------------------------------------


def full_disk(*_: Any, **__: Any) -> int:
    raise OSError(errno.ENOSPC, "No space left on device")


def test_a_full_disk_is_refused_before_the_start_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Path, "write_bytes", full_disk)
    with pytest.raises(RequestError, match="No space left on device"):
        RunFolder.create(tmp_path, "run-1")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("number", [errno.EDQUOT, errno.EROFS, errno.ESTALE])
def test_where_all_that_is_tried_fails_the_first_error_is_named(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any, **__: Any) -> Any:
        raise OSError(number, os.strerror(number), "some/other/file")

    for name in ("open", "unlink", "exists", "stat"):
        monkeypatch.setattr(Path, name, fail)
    with pytest.raises(RunError, match=r"^result\.json could not be written: ") as caught:
        write_atomically(tmp_path / "result.json", b"after")
    assert caught.value.where == str(tmp_path)
    assert os.strerror(number) in caught.value.what


def test_a_run_never_gets_the_folder_of_another(tmp_path: Path) -> None:
    (RunFolder.create(tmp_path, "run-1").path / STEPS).write_text("mine")
    with pytest.raises(RequestError, match="File exists"):
        RunFolder.create(tmp_path, "run-1")
    assert (tmp_path / "run-1" / STEPS).read_text() == "mine"


def test_a_file_is_written_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, mine = tmp_path / "result.json", tmp_path / "mine"
    path.with_name(f".result.json.{os.getpid()}").symlink_to(mine)  # planted by the owner of the folder
    write_atomically(path, b"before")
    assert not path.is_symlink()
    assert not mine.exists()
    monkeypatch.setattr(os, "fsync", full_disk)
    with pytest.raises(RunError) as caught:
        write_atomically(path, b"after")
    assert caught.value.exit_code == EXIT_FAILED
    assert "verify.py --repair" in caught.value.next_command
    assert path.read_bytes() == b"before"
    assert list(tmp_path.iterdir()) == [path]


# --- reading ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [BENCHMARK, PLAN, RESULT])
@pytest.mark.parametrize("damage", [b"", b"{", b"[]", b'{"unknown": 1}', b"\xff\xfe", None])
def test_a_damaged_or_missing_file_is_one_clear_error(whole_run: RunFolder, name: str, damage: bytes | None) -> None:
    path = whole_run.path / name
    if damage is None:
        path.unlink()
    else:
        path.write_bytes(damage)
    with pytest.raises(RequestError) as caught:
        recompute(whole_run, BACKEND)
        whole_run.stored_result()
    assert name in caught.value.what
    assert str(whole_run.path) in caught.value.where


@pytest.mark.parametrize("damage", [b'{"step": 1}\n', b"garbage\n", b'{"step":', b"\xff\n"])
def test_a_damaged_line_is_named_by_its_number(whole_run: RunFolder, damage: bytes) -> None:
    path = whole_run.path / STEPS
    path.write_bytes(path.read_bytes() + damage)
    with pytest.raises(RequestError) as caught:
        whole_run.stored_steps()
    assert caught.value.where == f"{path}:13"


def test_damaged_provenance_is_an_error_and_missing_provenance_a_null(whole_run: RunFolder) -> None:
    path = whole_run.path / PROVENANCE
    path.write_text("{")
    with pytest.raises(RequestError, match=r"provenance\.json cannot be read"):
        recompute(whole_run, BACKEND)
    path.unlink()
    result, _ = recompute(whole_run, BACKEND)
    assert result.provenance is None
    assert "provenance" in result.null_because


# --- recomputing ------------------------------------------------------------------------------------


def test_what_is_stored_is_what_the_raw_files_give(whole_run: RunFolder) -> None:
    result, steps = recompute(whole_run, BACKEND)
    steps = list(steps)
    assert (result.status, len(steps)) == ("valid", 12)
    assert whole_run.stored_result() == result
    assert whole_run.stored_steps() == steps
    assert differences(whole_run.stored_result(), result, whole_run.stored_steps(), steps) == []
    assert "a note of the launcher" in result.notes


def test_a_run_that_never_started_a_worker(empty_run: RunFolder) -> None:
    result, steps = recompute(empty_run, BACKEND)
    steps = list(steps)
    assert result.status == "failed"
    assert steps == []
    assert "before its first step" in result.reasons[0]


@pytest.mark.parametrize("cut", [1, 20, 200])
def test_events_that_end_in_the_middle_of_a_line_lose_that_line_alone(
    empty_run: RunFolder, add_attempt: AddAttempt, cut: int
) -> None:
    path = add_attempt(empty_run, exit_code=-9, end=None)
    path.write_bytes(path.read_bytes()[: -1 - cut])
    result, steps = recompute(empty_run, BACKEND)
    steps = list(steps)
    assert result.status == "failed"
    assert result.reasons == ["rank 0 was killed by signal 9 after step 10"]
    assert [step.step for step in steps] == list(range(11))
    assert any(note.startswith("events-rank0.jsonl:13 ") for note in result.notes)


def test_attempts_are_never_merged(empty_run: RunFolder, add_attempt: AddAttempt) -> None:
    add_attempt(empty_run, 1, exit_code=-9, steps=5, end=None, slower=1.0)
    add_attempt(empty_run, 2)
    alone = [0.25 + 0.001 * (step * 7 % 5) for step in range(1, 12)]
    result, steps = recompute(empty_run, BACKEND)
    steps = list(steps)
    assert result.status == "valid"
    assert result.window.counted == 11
    assert result.seconds_per_step.mean == pytest.approx(sum(alone) / 11)
    assert [(s.attempt, s.step, s.excluded_because) for s in steps[:5]] == [
        (1, n, "earlier_attempt") for n in range(5)
    ]
    assert [(s.attempt, s.step) for s in steps[5:]] == [(2, n) for n in range(12)]
    assert {s.tokens for s in steps} == {256}


# --- the chain of digests -----------------------------------------------------------------------------


def sealed(folder: RunFolder) -> RunFolder:
    (folder.path / PROVENANCE).write_text(json.dumps({"files": folder.raw_digests(), "notes": []}))
    return folder


def test_what_is_only_called_like_an_attempt_is_none(whole_run: RunFolder) -> None:
    before = whole_run.attempts()
    for name in ("attempt-x", "attempt-", "attempt-0", "attempt-02", "attempt-²", "attempt-1.bak"):
        (whole_run.path / name).mkdir()
    (whole_run.path / "attempt-7").write_text("a note")
    (whole_run.path / "attempt-8").symlink_to("nowhere")
    assert whole_run.attempts() == before
    assert whole_run.changed_since_sealed() == []


def test_what_a_run_left_is_sealed_and_any_change_is_named(whole_run: RunFolder) -> None:
    sealed(whole_run)
    assert whole_run.changed_since_sealed() == []
    events = whole_run.phase_dir("perf") / "events-rank0.jsonl"
    events.write_bytes(events.read_bytes().replace(b"5.", b"4."))
    (whole_run.path / BENCHMARK).unlink()
    (whole_run.phase_dir("perf") / "events-rank7.jsonl").write_text("")
    assert whole_run.changed_since_sealed() == [
        "attempt-1/perf/events-rank0.jsonl was changed after the run",
        "attempt-1/perf/events-rank7.jsonl was added after the run",
        "benchmark.json is missing after the run",
    ]


def test_the_phase_that_failed_is_the_one_that_is_named(empty_run: RunFolder, benchmark_value: Benchmark) -> None:
    """A plan of several phases whose first fails: the measured one was never started."""
    plan = BACKEND.plan(benchmark_value)
    warm = msgspec.structs.replace(plan.phases[0], name="warm", writes_steps=False)
    empty_run.write(PLAN, msgspec.structs.replace(plan, phases=[warm, *plan.phases]))
    empty_run.phase_dir("warm").mkdir(parents=True)
    write_exits(empty_run.phase_dir("warm"), 7)
    result, _ = recompute(empty_run, BACKEND)
    assert result.status == "failed"
    assert result.reasons[0] == "phase warm: rank 0 ended with exit code 7"
    end = {"event": "end", "rank": 0, "status": "error", "message": "the profile has no cost", "failures": []}
    (empty_run.phase_dir("warm") / "events-rank0.jsonl").write_bytes(msgspec.json.encode(end) + b"\n")
    result, _ = recompute(empty_run, BACKEND)
    assert result.reasons[0] == "phase warm: rank 0 failed (the profile has no cost)"


def test_a_renamed_folder_keeps_the_name_its_run_was_given(whole_run: RunFolder) -> None:
    whole_run.write(PROVENANCE, {"run_id": "as-it-was", "notes": []})
    assert recompute(whole_run, BACKEND)[0].run_id == "as-it-was"
    whole_run.write(PROVENANCE, {"notes": []})
    assert recompute(whole_run, BACKEND)[0].run_id == whole_run.path.name


def test_the_rank_that_failed_first_is_known_whatever_the_clocks_of_the_nodes_say(tmp_path: Path) -> None:
    """Rank 9's clock is 3 s ahead: by the times rank 0 failed first."""
    folder = RunFolder(tmp_path)
    place = folder.phase_dir("perf")
    place.mkdir(parents=True)
    for rank, time in ((0, 100.0), (9, 102.5)):
        line = {"rank": rank, "exit_code": 1, "time": time, "host": f"n{rank}", "binding": None}
        (place / f"exits-rank{rank}.jsonl").write_text(json.dumps(line) + "\n")
    ended = folder.ended("perf")
    assert first_to_fail(ended, None) == ended[0]
    (place / "first-failure").symlink_to("1 rank 9")
    ended = folder.ended("perf")
    assert first_to_fail(ended, None) == ended[1]
