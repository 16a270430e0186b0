"""`launch/report.py trace` as a user runs it: a run's trace is found, summarised and compared with its own clock."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from benchmarks.configs import Configs
from benchmarks.request.resolve import ProfilerOptions, Request, resolve
from benchmarks.runs.recompute import recompute
from benchmarks.runs.runfolder import BENCHMARK, EXITS, PLAN, PROVENANCE, RESULT, RunFolder
from benchmarks.trace.report import TraceReport
from jax_backend import BACKEND
from tests import forked
from tests.benchmarks.trace.made import SAMPLE_EVENTS, sample
from tests.benchmarks.trace.test_nccl import GATHER, REDUCE
from tests.benchmarks.trace.test_nsys import Database

REPOSITORY = Path(__file__).resolve().parents[3]
SCRIPT = REPOSITORY / "launch" / "report.py"
NSYS = REPOSITORY / "tests" / "stand_ins" / "nsys"
SESSION = "perf/maxtext/stepmark/tensorboard/plugins/profile/2026_11_21_23_45_43"
PROFILED = {"profile": "xplane", "profiler": ProfilerOptions(start_step=20, stop_step=24)}


def run(*arguments: str | Path, **variables: str) -> "subprocess.CompletedProcess[str]":
    """Without any nsys of this machine."""
    environment = {**os.environ, "PATH": str(Path(sys.executable).parent), "COLUMNS": "100", **variables}
    done = forked.run(SCRIPT, *arguments, env=environment)
    assert "Traceback" not in done.stdout + done.stderr
    return done


def as_json(*arguments: str | Path, **variables: str) -> Any:
    done = run(*arguments, "--json", **variables)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    msgspec.convert(found, TraceReport)
    return found


def refused(*arguments: str | Path, **variables: str) -> str:
    done = run(*arguments, **variables)
    assert done.returncode == 2, done.stdout
    assert done.stdout == ""
    return done.stderr


@pytest.fixture
def make_run(tmp_path: Path) -> Callable[..., RunFolder]:
    """Return an ended run of 30 steps on two devices, without the files of a profiler."""

    def make(
        name: str = "run-1", parent: Path = tmp_path / "results", ended: bool = True, **wanted: Any
    ) -> RunFolder:
        request = Request(backend="jax", model="llama2_tiny", gpus=2, steps=30, **wanted)
        benchmark = resolve(request, Configs(), BACKEND)
        folder = RunFolder.create(parent, name)
        folder.write(BENCHMARK, benchmark)
        folder.write(PLAN, BACKEND.plan(benchmark))
        folder.write(PROVENANCE, {"stepmark": "0.13.0", "notes": []})
        phase = folder.phase_dir("perf")
        phase.mkdir(parents=True)
        shutil.copy(SAMPLE_EVENTS, phase)
        (phase / EXITS).write_text('{"rank": 0, "exit_code": 0, "interrupted": false}\n')
        if ended:
            result, steps = recompute(folder, BACKEND)
            folder.write_steps(steps)
            folder.write(RESULT, result)
        return folder

    return make


def add_trace(folder: RunFolder, data: bytes | None = None, attempt: int = 1, session: str = SESSION) -> Path:
    path = folder.path / f"attempt-{attempt}" / session / "vm.xplane.pb"
    path.parent.mkdir(parents=True)
    path.write_bytes(sample() if data is None else data)
    path.with_name("vm.trace.json.gz").write_bytes(b"")
    return path


@pytest.fixture
def profiled(make_run: Callable[..., RunFolder]) -> RunFolder:
    folder = make_run(**PROFILED)
    add_trace(folder)
    return folder


# --- a profiled run -----------------------------------------------------------------------------


def test_a_profiled_run_is_summarised_and_agrees_with_its_own_clock(profiled: RunFolder) -> None:
    before = profiled.raw_digests(), sorted(profiled.path.rglob("*"))
    report = as_json("trace", profiled.path)
    assert (profiled.raw_digests(), sorted(profiled.path.rglob("*"))) == before
    found = report["comparison"]
    assert abs(found["difference"]) < 0.05
    (file,) = report["files"]
    window = file["summary"]["window"]
    assert (window["first_step"], window["last_step"], window["steps"]) == (21, 22, 2)
    steps = {step.step: step.seconds or 0 for step in profiled.stored_steps()}
    assert found["clock_seconds_per_step"] == pytest.approx((steps[21] + steps[22]) / 2)
    assert sum(report["mean"]["wall_seconds"].values()) == pytest.approx(report["mean"]["seconds_per_step"])
    text = run("trace", profiled.path).stdout
    for word in ("matmul", "attention", "collective", "copies", "idle", "Exposed communication: "):
        assert word in text


def test_the_trace_itself_and_any_folder_within_the_run_may_be_named(profiled: RunFolder) -> None:
    path = profiled.path / "attempt-1" / SESSION / "vm.xplane.pb"
    whole = as_json("trace", profiled.path)["mean"]
    for place in (path, path.parent, profiled.path / "attempt-1"):
        assert as_json("trace", place)["mean"] == whole, place
    moved = profiled.path.parent.parent / "with a blank"
    profiled.path.rename(moved)
    assert as_json("trace", moved)["comparison"]["difference"] is not None
    outside = moved.parent / "outside"
    outside.mkdir()
    (outside / "vm.xplane.pb").write_bytes(sample())
    report = as_json("trace", outside)
    assert (report["comparison"], report["files"][0]["summary"]["window"]["steps"]) == (None, 4)


def test_the_last_of_several_attempts_and_profiles_is_taken(
    make_run: Callable[..., RunFolder], tmp_path: Path
) -> None:
    """The run was cut off in its second attempt; the first wrote no step."""
    folder = make_run(ended=False, **PROFILED)
    shutil.copytree(folder.phase_dir("perf"), folder.phase_dir("perf", 2))
    events = folder.phase_dir("perf") / SAMPLE_EVENTS.name
    events.write_text(events.read_text().splitlines()[0] + "\n")
    add_trace(folder)
    add_trace(folder, attempt=2, session=SESSION.replace("23_45", "23_50"))
    last = add_trace(folder, attempt=2, session=SESSION.replace("23_45", "23_59"))
    (tmp_path / "link").symlink_to(last.parent)
    for place in (folder.path, folder.path / "attempt-2", folder.phase_dir("perf", 2), last, tmp_path / "link"):
        report = as_json("trace", place)
        assert report["attempt"] == 2, place
        assert [Path(file["path"]).resolve() for file in report["files"]] == [last], place
        assert any("the run has no result" in note for note in report["notes"])


# --- Nsight Systems and NCCL --------------------------------------------------------------------


def path_with_nsys(tmp_path: Path) -> str:
    """A PATH on which the stand-in is called nsys."""
    folder = tmp_path / "programs"
    folder.mkdir()
    (folder / "nsys").symlink_to(NSYS)
    return f"{folder}:{Path(sys.executable).parent}:/usr/bin:/bin"


@pytest.mark.parametrize(
    ("stand_in", "message"),
    [(None, "nsys is not on PATH"), ("fail", "nsys export failed (1): ")],
)
def test_a_report_of_nsight_that_can_not_be_exported_is_listed(
    make_run: Callable[..., RunFolder], tmp_path: Path, stand_in: str | None, message: str
) -> None:
    folder = make_run()
    (folder.phase_dir("perf") / "profile_7_node0_rank0.nsys-rep").write_text("{}")
    variables = {"PATH": path_with_nsys(tmp_path), "STAND_IN_NSYS": stand_in} if stand_in else {}
    done = run("trace", folder.path, **variables)
    assert done.returncode == 0
    assert "profile_7_node0_rank0.nsys-rep" in done.stdout
    assert message in done.stdout


PROGRAM = """HloModule jit_train_step, is_scheduled=true

ENTRY %main.1 (p: f32[8]) -> f32[8] {
  %p = f32[8]{0} parameter(0)
  %all-gather.1 = f32[16]{0} all-gather(%p), dimensions={0}
  ROOT %loop_add_fusion = f32[8]{0} fusion(%p), kind=kLoop, calls=%c
}
"""


def test_where_nsys_is_a_report_is_exported_elsewhere_and_summarised(
    make_run: Callable[..., RunFolder], tmp_path: Path
) -> None:
    folder = make_run()
    phase = folder.phase_dir("perf")
    (phase / "hlo").mkdir()
    (phase / "hlo" / "module_0012.jit_train_step.gpu_after_optimizations.txt").write_text(PROGRAM)
    (phase / "r.nsys-rep").write_text("{}")
    before = sorted(folder.path.rglob("*"))
    report = as_json("trace", folder.path, PATH=path_with_nsys(tmp_path))
    (file,) = report["files"]
    assert file["path"].endswith("r.nsys-rep")
    assert file["summary"]["window"]["steps"] == 2, "three were recorded, the first has no beginning"
    assert file["summary"]["mean"]["wall_seconds"]["collective"] > 0
    assert sorted(folder.path.rglob("*")) == before


def test_nccls_calls_are_a_table(make_run: Callable[..., RunFolder]) -> None:
    folder = make_run(profile="none")
    phase = folder.phase_dir("perf")
    (phase / "nccl-n1-1.log").write_text(f"{REDUCE}\n{REDUCE}\n{GATHER}\n")
    (phase / "nccl-n1-2.log").write_text("h015:2:2 [0] NCCL INFO Bootstrap: using eth0\n")
    report = as_json("trace", folder.path)
    assert report["files"] == []
    assert [row["collective"] for row in report["nccl"]["rows"]] == ["AllGather", "AllReduce"]
    text = run("trace", folder.path).stdout
    assert "NCCL calls: 3 by 2 ranks" in text
    assert ["AllReduce", "float32", "16", "75.3", "kB", "2", "150.5", "kB"] in [
        line.split() for line in text.splitlines()
    ]


# --- phases, ranks and attempts -----------------------------------------------------------------


def add_report(folder: RunFolder, name: str, phase: str = "perf", steps: int = 4, attempt: int = 1) -> Path:
    """Add an export, as of a report of that name."""
    path = folder.phase_dir(phase, attempt) / f"{name}.sqlite"
    path.parent.mkdir(parents=True, exist_ok=True)
    database = Database(path).steps(steps).ranges(steps)
    database.insert("TARGET_INFO_SYSTEM_ENV", devStateName="x", name="Hostname", nameEnum=1, value="n1")
    return path


def test_another_phase_that_is_named_is_summarised_without_our_clock(make_run: Callable[..., RunFolder]) -> None:
    folder = make_run()
    profile = add_report(folder, "tiny-bf16_2g_7_0_0-prof", "profile")
    measured = add_report(folder, "tiny-bf16_2g_7_0_0-perf")
    assert [file["path"] for file in as_json("trace", folder.path)["files"]] == [str(measured)]
    for place in (profile, profile.parent):
        report = as_json("trace", place)
        assert [(file["path"], file["summary"] is None) for file in report["files"]] == [(str(profile), False)]
        assert report["comparison"] is None
        assert report["notes"][0].startswith("phase profile: ")


def test_the_ranks_of_a_node_are_known_by_the_names_of_their_reports(make_run: Callable[..., RunFolder]) -> None:
    folder = make_run()
    names = ("tiny_7_0_0-perf", "profile_7_node1_rank12")
    for name in names:
        add_report(folder, name)
    hosts = {file["summary"]["host"] for file in as_json("trace", folder.path)["files"]}
    assert hosts == {f"n1 {name}" for name in names}


# --- refusals -----------------------------------------------------------------------------------


@pytest.mark.parametrize("data", [b"", b"junk" * 100, None])
def test_a_trace_that_was_cut_or_is_none_is_one_clear_message(profiled: RunFolder, data: bytes | None) -> None:
    path = profiled.path / "attempt-1" / SESSION / "vm.xplane.pb"
    path.write_bytes(path.read_bytes()[:-1000] if data is None else data)
    for place in (path, profiled.path):
        message = refused("trace", place)
        assert "vm.xplane.pb cannot be read as an xplane trace" in message
        assert "next:" in message


def test_hosts_are_summarised_together_and_one_whose_trace_was_cut_is_named(profiled: RunFolder) -> None:
    path = profiled.path / "attempt-1" / SESSION / "vm.xplane.pb"
    shutil.copy(path, path.with_name("node2.xplane.pb"))
    report = as_json("trace", profiled.path)
    assert [Path(file["path"]).name for file in report["files"]] == ["node2.xplane.pb", "vm.xplane.pb"]
    assert report["mean"]["devices"] == 4
    path.with_name("node2.xplane.pb").write_bytes(path.read_bytes()[:5000])
    report = as_json("trace", profiled.path)
    assert [file["summary"] is None for file in report["files"]] == [True, False]
    assert "incomplete" in report["files"][0]["why_not"]


def test_two_runs_at_once_are_refused(profiled: RunFolder, make_run: Callable[..., RunFolder]) -> None:
    add_trace(make_run("run-2", **PROFILED))
    assert "several runs" in refused("trace", profiled.path.parent)


def test_places_without_a_trace_are_refused(tmp_path: Path, make_run: Callable[..., RunFolder]) -> None:
    assert "the run had --profile=xplane" in refused("trace", make_run("cut", ended=False, **PROFILED).path)
    folder = make_run()
    message = refused("trace", folder.path)
    for word in ("the run has no trace", "--profile=none"):
        assert word in message
    (folder.phase_dir("perf") / "nccl-n1-1.log").write_text("h015:2:2 [0] NCCL INFO Bootstrap: using eth0\n")
    assert "the trace has no NCCL" in refused("trace", folder.path)
    add_report(folder, "tiny_7_0_0-prof", "profile")
    (folder.phase_dir("perf") / "nccl-n1-1.log").unlink()
    assert "the run has no trace" in refused("trace", folder.path)
    (tmp_path / "notes.txt").write_text("nothing")
    assert "file or folder does not exist" in refused("trace", tmp_path / "absent")
    (tmp_path / "empty").mkdir()
    for place in ("empty", "notes.txt"):
        assert "found no trace" in refused("trace", tmp_path / place)
