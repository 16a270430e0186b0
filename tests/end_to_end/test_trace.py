"""A run of real MaxText with --profile=xplane: its trace is summarised and agrees with its clock."""

import gzip
import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from benchmarks.configs import DEFAULT_ROOT
from benchmarks.trace.kinds import read_kinds
from benchmarks.trace.xplane import read_xplane
from tests.end_to_end.runs import JAX, TINY, Run, Start, finish, script

pytestmark = pytest.mark.slow

FLAGS = ("--gpus=2", "--steps=70", "--profile=xplane", "--profile_start_step=20", "--profile_stop_step=60")
# jax's own, independent reading of the file: (name, begin ns) of every operation.
JAX_READS = """
import json, sys
from jax.profiler import ProfileData
found = {}
for plane in ProfileData.from_file(sys.argv[1]).planes:
    if plane.name == "/host:CPU":
        for line in plane.lines:
            for event in line.events:
                stats = dict(event.stats)
                if "hlo_op" in stats:
                    key = f"{stats['hlo_module']}/{stats['hlo_op']}"
                    calls, total = found.get(key, (0, 0.0))
                    found[key] = (calls + 1, total + event.start_ns)
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def profiled(start: Start, tmp_path_factory: pytest.TempPathFactory) -> Run:
    output_dir = tmp_path_factory.mktemp("profiled")
    run = finish(start(output_dir, JAX, TINY, *FLAGS), output_dir)
    assert run.code == 0, run.err
    return run


@pytest.fixture(scope="module")
def xplane(profiled: Run) -> Path:
    (path,) = profiled.folder.rglob("*.xplane.pb")
    return path


def report_of(place: Path) -> Any:
    done = script("report", "trace", "--json", place)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_the_summary_of_a_real_run_adds_up_to_its_step_time_within_5_percent(profiled: Run) -> None:
    report = report_of(profiled.folder)
    window = report["files"][0]["summary"]["window"]
    steps = {step["step"]: step for step in profiled.steps if step["rank"] == 0}
    chosen = [steps[number] for number in range(window["first_step"], window["last_step"] + 1)]
    assert len(chosen) >= 30
    assert {step["excluded_because"] for step in chosen} == {"profiler"}
    ours = sum(step["seconds"] for step in chosen) / len(chosen)
    # A busy machine wakes the waiting clock late, at either end of the window: by less than the longest step.
    late = max(step["seconds"] for step in chosen) / len(chosen) / ours
    assert sum(report["mean"]["wall_seconds"].values()) == pytest.approx(ours, rel=0.05 + late)
    assert report["comparison"]["difference"] == pytest.approx(0, abs=0.05 + late)
    for kind in ("matmul", "attention", "other", "collective", "copy", "idle"):
        assert report["mean"]["wall_seconds"][kind] > 0, kind


def test_jax_reads_the_same_operations_at_the_same_times(xplane: Path, jax_python: Path) -> None:
    done = subprocess.run(
        [str(jax_python), "-I", "-c", JAX_READS, str(xplane)],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
        env={**os.environ, "JAX_PLATFORMS": "cpu"},
    )
    theirs = json.loads(done.stdout)
    trace = read_xplane(xplane.read_bytes(), xplane)
    ours: dict[str, list[float]] = {}
    for device in trace.devices:
        for number, begin in zip(device.operation, device.begins, strict=True):
            one = trace.operations[number]
            ours.setdefault(f"{one.module}/{one.hlo_op}", []).append(begin / 1000)
    assert {name: len(begins) for name, begins in ours.items()} == {
        name: calls for name, (calls, _) in theirs.items()
    }
    for name, (_, total) in theirs.items():
        assert sum(ours[name]) == pytest.approx(total, rel=1e-6)


def test_the_kinds_of_the_real_program_come_from_its_hlo(xplane: Path) -> None:
    trace = read_xplane(xplane.read_bytes(), xplane)
    kinds = read_kinds(DEFAULT_ROOT)
    training = [
        (one, known)
        for one, known in zip(trace.operations, trace.instructions, strict=True)
        if one.module == "jit_train_step"
    ]
    assert all(known is not None for _, known in training)
    held = {
        kinds.of(one, known) for one, known in training if known is not None and "dot" in known.holds | {known.opcode}
    }
    assert held <= {"matmul", "attention", "none"}


def test_what_perfetto_opens_is_there(profiled: Run) -> None:
    (path,) = profiled.folder.rglob("*.trace.json.gz")
    with gzip.open(path) as stream:
        trace = json.load(stream)
    names = {event.get("name") for event in trace["traceEvents"]}
    assert "train" in names
    assert len(trace["traceEvents"]) > 1000
