"""A run of real MaxText with --profile=xplane: its trace is summarised, agrees with its clock, opens elsewhere."""

import gzip
import importlib.util
import json
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from benchmarks.configs import DEFAULT_ROOT
from benchmarks.trace.kinds import read_kinds
from benchmarks.trace.summary import Wanted, summarise
from benchmarks.trace.xplane import read_xplane
from launch.environments import uv
from tests.end_to_end.runs import JAX, REPOSITORY, TINY, Run, Start, finish

pytestmark = pytest.mark.slow

PLUGIN = ("xprof==2.24.2", f"tensorboard=={version('tensorboard')}")
FLAGS = ("--gpus=2", "--steps=50", "--profile=xplane", "--profile_start_step=20", "--profile_stop_step=35")
# What jax itself reads in the file, which is another reader than ours: (name, begin ns) of every operation.
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
    done = subprocess.run(
        [sys.executable, str(REPOSITORY / "launch/report.py"), "trace", "--format=json", str(place)],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_the_summary_of_a_real_run_adds_up_to_its_step_time_within_5_percent(profiled: Run) -> None:
    report = report_of(profiled.folder)
    window = report["files"][0]["summary"]["window"]
    steps = {step["step"]: step for step in profiled.steps if step["rank"] == 0}
    chosen = [steps[number] for number in range(window["first_step"], window["last_step"] + 1)]
    assert len(chosen) >= 8
    assert {step["excluded_because"] for step in chosen} == {"profiler"}
    ours = sum(step["seconds"] for step in chosen) / len(chosen)
    assert sum(report["mean"]["wall_seconds"].values()) == pytest.approx(ours, rel=0.05)
    assert report["comparison"]["difference"] == pytest.approx(0, abs=0.05)
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


def test_the_kinds_of_the_real_program_are_told_by_its_hlo(xplane: Path) -> None:
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
    summary = summarise(trace, kinds, Wanted())
    assert not any(one.name.startswith("while") for one in summary.operations)


def test_what_perfetto_opens_is_there(profiled: Run) -> None:
    (path,) = profiled.folder.rglob("*.trace.json.gz")
    with gzip.open(path) as stream:
        trace = json.load(stream)
    names = {event.get("name") for event in trace["traceEvents"]}
    assert "train" in names
    assert len(trace["traceEvents"]) > 1000


# --- TensorBoard's profile plugin ---------------------------------------------------------------


@pytest.fixture(scope="module")
def viewer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Python with TensorBoard and its profile plugin: this one, or one made for it (the plugin is large)."""
    if importlib.util.find_spec("xprof") is not None:
        return Path(sys.executable)
    python = tmp_path_factory.mktemp("viewer") / "venv/bin/python"
    subprocess.run(uv.command("venv", "--quiet", f"--python={sys.executable}", str(python.parents[1])), check=True)
    install = uv.command("pip", "install", "--quiet", f"--python={python}", *PLUGIN)
    settings = uv.variables(uv.pip_settings())
    done = subprocess.run(install, env=settings, capture_output=True, text=True, timeout=600, check=False)
    if done.returncode:
        pytest.skip(f"TensorBoard's profile plugin cannot be installed here: {done.stderr.strip()[-300:]}")
    return python


@pytest.fixture(scope="module")
def server(viewer: Path, profiled: Run, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    log = (tmp_path_factory.mktemp("tensorboard") / "log").open("wb")
    command = [str(viewer), "-m", "tensorboard.main", "--logdir", str(profiled.folder), "--port", str(port)]
    with subprocess.Popen(command, stdout=log, stderr=log) as process:
        try:
            yield f"http://localhost:{port}/data/plugin/profile"
        finally:
            process.terminate()
            process.wait(30)


def ask(url: str, seconds: float = 90) -> Any:
    """The answer in JSON, once the server has one."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            with urllib.request.urlopen(url, timeout=60) as answer:
                data = answer.read()
            found = json.loads(gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data)
            if found:
                return found
        except (urllib.error.URLError, ConnectionError):
            pass
        assert time.monotonic() < deadline, f"no answer from {url}"
        time.sleep(0.5)


def test_the_trace_opens_in_tensorboards_profile_plugin(server: str, xplane: Path) -> None:
    (name,) = ask(f"{server}/runs")
    assert name.endswith(xplane.parent.name)
    quoted = urllib.parse.quote(name, safe="")
    tools = ask(f"{server}/run_tools?run={quoted}")
    assert {"overview_page", "trace_viewer@", "hlo_stats"} <= set(tools)
    host = xplane.name.removesuffix(".xplane.pb")
    stats = ask(f"{server}/data?run={quoted}&tag=framework_op_stats&host={host}")
    assert len(json.dumps(stats)) > 1000
    view = ask(f"{server}/data?run={quoted}&tag=trace_viewer%40&host={host}")
    assert len(view["traceEvents"]) > 1000, "of the part it shows first"
    assert f"{host} /host:CPU" in {event.get("args", {}).get("name") for event in view["traceEvents"]}
