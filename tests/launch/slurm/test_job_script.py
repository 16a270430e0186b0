"""job.sbatch: whole scripts as recorded in golden_jobs/, what cannot be said in one, and how they are quoted.

After an intended change, record the golden jobs again and read the diff:

    STEPMARK_RECORD_GOLDEN=1 python -m pytest tests/launch/slurm/test_job_script.py
"""

import itertools
import re
import shutil
import subprocess
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

import jax_backend
import nemo_backend
from benchmarks import VERSION
from benchmarks.backend import Backend
from benchmarks.configs import Configs
from benchmarks.errors import RequestError
from benchmarks.request import images
from benchmarks.request.resolve import Request, resolve
from benchmarks.values import Benchmark, JobOptions, Phase, Plan
from launch.machine.processes import NOT_INHERITED, NOT_INHERITED_PREFIXES
from launch.slurm.job_script import JobPlace, directives, job_plan, render, shell_word
from tests.recorded import assert_recorded

CONFIGS = Configs()
GOLDEN = Path(__file__).parent / "golden_jobs"
REPOSITORY = Path(__file__).resolve().parents[3]
JAX, NEMO = jax_backend.BACKEND, nemo_backend.BACKEND
JOBS = yaml.safe_load(Path(__file__).with_name("jobs.yml").read_text())


def resolved(backend: Backend = JAX, model: str = "llama2_70b", **wanted: Any) -> Benchmark:
    wanted = {"site": "example_pyxis", **wanted}
    return resolve(Request(backend=backend.name, model=model, **wanted), CONFIGS, backend)


def place_of(benchmark: Benchmark, backend: Backend) -> JobPlace:
    spec = backend.environment(benchmark.engine)
    image = images.image_of(benchmark, spec.image)
    python = spec.image_python if image else f"/scratch/stepmark/environments/{spec.name}/bin/python"
    run_id = "20261121T120000Z-golden"
    return JobPlace(
        repository=Path("/lustre/stepmark"),
        run=Path("/lustre/results") / run_id,
        run_id=run_id,
        python=python,
        image=str(image) if image else None,
        sampler_python=python,
    )


def options_of(benchmark: Benchmark) -> JobOptions:
    assert benchmark.site.slurm is not None
    return benchmark.site.slurm.options


def script(backend: Backend = JAX, plan: Plan | None = None, hang: float | None = None, **wanted: Any) -> str:
    """The script of a benchmark with the site's own options; `options` and `place` change theirs."""
    changes, moved = wanted.pop("options", {}), wanted.pop("place", {})
    secrets = wanted.pop("secrets", {})
    benchmark = resolved(backend, **wanted)
    options = msgspec.structs.replace(options_of(benchmark), **changes)
    place = msgspec.structs.replace(place_of(benchmark, backend), **moved)
    planned = plan or job_plan(benchmark, backend, options, container=place.image is not None)
    return render(benchmark, planned, place, options, hang, secrets=secrets)


def directives_of(text: str) -> list[str]:
    return [line.removeprefix("#SBATCH ") for line in text.splitlines() if line.startswith("#SBATCH ")]


def phase(name: str, command: list[str], nodes: int, tasks: int, **changes: Any) -> Phase:
    own = {"environment": {}, "devices_per_task": 1, "writes_steps": False, **changes}
    return Phase(name=name, command=command, nodes=nodes, tasks_per_node=tasks, **own)


THREE_PHASES = Plan(
    backend="jax",
    environment_name="toy",
    phases=[
        phase("profile", ["{python}", "-c", "print('a step')"], 8, 8, environment={"WHICH": "it's the {phase_dir}"}),
        phase("convert", ["{python}", "{repository}/convert.py", "--out={phase_dir}/x.pbtxt", "", "*"], 1, 1),
        phase("perf", ["{python}", "--pgle={phase_dir}/../convert/x.pbtxt", "$HOME ü"], 8, 4, writes_steps=True),
    ],
)


def golden_texts() -> dict[str, Callable[[], str]]:
    found: dict[str, Callable[[], str]] = {}
    for name, row in JOBS["golden"].items():
        asked = {key: value for key, value in row.items() if key != "backend"}
        found[name] = partial(script, NEMO if "backend" in row else JAX, **asked)
    found["three_phases"] = lambda: script(plan=THREE_PHASES, hang=90, dtype="bf16", gpus=64)
    return found


@pytest.mark.parametrize("name", sorted(golden_texts()))
def test_the_job_is_as_recorded(name: str) -> None:
    text = golden_texts()[name]().replace(f"Stepmark {VERSION}", "Stepmark VERSION")
    assert_recorded(text, GOLDEN / f"{name}.sbatch")


@pytest.mark.parametrize("path", sorted(GOLDEN.glob("*.sbatch")), ids=lambda path: path.stem)
def test_bash_can_read_a_recorded_job(path: Path) -> None:
    assert path.stem in golden_texts()
    done = subprocess.run(["bash", "-n", str(path)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    text = path.read_text(encoding="utf-8")
    assert not re.search("hf_|TOKEN=|[{][{]|[{]%", text)
    lines = text.splitlines()
    assert not [line for line in lines if line.endswith(" ") or "\\ \\" in line]
    # A continued line that is followed by nothing, or a #SBATCH after the first command, would be lost in silence.
    assert not [one for one, two in itertools.pairwise(lines) if one.endswith("\\") and not two.strip()]
    last = max(number for number, line in enumerate(lines) if line.startswith("#SBATCH"))
    assert all(line.startswith("#") for line in lines[:last])


@pytest.mark.skipif(shutil.which("shellcheck") is None, reason="shellcheck is not installed")
def test_shellcheck_finds_nothing() -> None:
    scripts = [*GOLDEN.glob("*.sbatch"), *REPOSITORY.glob("launch/slurm/*.sh"), *REPOSITORY.glob("nemo_backend/*.sh")]
    command = ["shellcheck", "--shell=bash", "--severity=warning", "--external-sources", *map(str, scripts)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=REPOSITORY)
    assert done.stdout == ""


# --- what a job asks for ------------------------------------------------------------------------


@pytest.mark.parametrize(("options", "lines"), JOBS["asked"])
def test_options_are_directives(options: dict[str, Any], lines: str) -> None:
    text = script(dtype="bf16", gpus=64, options=options)
    assert set(lines.split()) <= set(directives_of(text))
    words = f" {options['comment']}" if "comment" in options else ""
    (comment,) = [line for line in directives_of(text) if line.startswith("--comment=")]
    assert comment.endswith(words.replace('"', '\\"') + ('"' if words else "golden"))


def test_gpus_are_never_asked_for_on_a_cpu() -> None:
    none = directives_of(script(dtype="bf16", gpus=64, options={"gpus": "none"}))
    on_a_cpu = script(model="llama2_tiny", site="example_venv", options={"gpus": "gres"})
    assert not [line for line in [*none, *directives_of(on_a_cpu)] if "gpu" in line]
    assert "cpu-bind" not in on_a_cpu


@pytest.mark.parametrize(("gpus", "segment"), [(4, None), (8, 2), (72, 18), (80, 10), (512, 16)])
def test_a_job_lies_within_racks_that_nvlink_joins(gpus: int, segment: int | None) -> None:
    """All nodes of up to a rack together; otherwise equal parts, each in a rack. The user's option wins."""
    benchmark = resolved(NEMO, model="llama3_70b", task="lora", dtype="bf16", gpus=8)
    benchmark = msgspec.structs.replace(benchmark, hardware=CONFIGS.hardware("gb200"), gpus=gpus, nodes=gpus // 4)
    place, plan = place_of(benchmark, NEMO), NEMO.plan(benchmark)
    found = [line for line in directives(benchmark, plan, place, options_of(benchmark)) if "segment" in line]
    assert found == ([f"--segment={segment}"] if segment else [])
    asked = msgspec.structs.replace(options_of(benchmark), segment=1)
    assert "--segment=1" in directives(benchmark, plan, place, asked)
    none = msgspec.structs.replace(options_of(benchmark), segment="none")
    assert not [line for line in directives(benchmark, plan, place, none) if "segment" in line]
    assert not [line for line in directives_of(script(dtype="bf16", gpus=64)) if "segment" in line]


def test_a_hang_is_watched_for_where_a_phase_can_be_watched_and_refused_elsewhere() -> None:
    """nsys is busy with its report after the last step; a job that watches nothing would not even be bash."""
    assert "case $1 in perf)" in script(dtype="bf16", gpus=64, pgle="nsys", hang=90)
    with pytest.raises(RequestError, match="cannot watch a phase"):
        script(dtype="bf16", gpus=64, profile="nsys", hang=90)


def test_what_the_shell_would_steer_past_the_plan_is_unset() -> None:
    text = script(dtype="bf16")
    for name in NOT_INHERITED:
        assert re.search(rf"^unset .*\b{name}\b", text, re.MULTILINE)
    for prefix in (*NOT_INHERITED_PREFIXES, "SRUN_"):
        assert f'"${{!{prefix}@}}"' in text


@pytest.mark.parametrize(("site", "kept"), [("example_pyxis", []), ("example_venv", ["NVIDIA_VISIBLE_DEVICES=void"])])
def test_which_gpus_a_container_sees_is_up_to_its_image(site: str, kept: list[str]) -> None:
    """Enroot's hook takes a job's variable over the image's: a login node's `void` would leave it without GPUs."""
    model = "llama2_70b" if site == "example_pyxis" else "llama2_tiny"
    head = script(model=model, site=site).partition("# --- the phases ---")[0]
    shell = {"NVIDIA_VISIBLE_DEVICES": "void", "NVIDIA_DRIVER_CAPABILITIES": "utility", "XLA_FLAGS": "--x"}
    done = subprocess.run(["bash", "-c", f"{head}\nenv"], env=shell, capture_output=True, text=True, check=True)
    assert [line for line in done.stdout.splitlines() if line.startswith(("NVIDIA_VIS", "XLA"))] == kept


def test_a_dataset_is_mounted() -> None:
    benchmark = msgspec.structs.replace(resolved(dtype="bf16"), data="/data/my set")
    place, options = place_of(benchmark, JAX), options_of(benchmark)
    assert ",'/data/my set:/data/my set'" in render(benchmark, JAX.plan(benchmark), place, options)


# --- what cannot be said ------------------------------------------------------------------------


@pytest.mark.parametrize("job", JOBS["never"])
def test_what_no_job_can_say(job: dict[str, Any]) -> None:
    moved = {name: Path(it) if name in ("run", "repository") else it for name, it in job.get("place", {}).items()}
    with pytest.raises(RequestError):
        script(dtype="bf16", place=moved, options=job.get("options", {}))


TOKEN = "hf_" + "a1B2" * 6


@pytest.mark.parametrize(
    ("wanted", "secrets", "where"),
    [
        ({"options": {"comment": f"tok {TOKEN}"}}, (), "--comment (line "),
        ({"options": {"comment": "https://me:pass@example.com"}}, (), "--comment (line "),
        ({"options": {"arguments": [f"--mail-user={TOKEN}"]}}, (), "--mail-user (line "),
        ({"options": {"account": "correct horse"}}, ("correct horse",), "--account (line "),
        # as sbatch and the shell need it quoted
        ({"options": {"comment": 'say "hi" \\o/'}}, ('say "hi" \\o/',), "--comment (line "),
        ({"plan": [phase("perf", ["true"], 1, 1, environment={"A": "it's secret"})]}, ("it's secret",), "A (line "),
        ({"plan": [phase("perf", ["true"], 1, 1, environment={"A": f"x {TOKEN}"})]}, (), "A (line "),
        ({"plan": [phase("perf", ["true", "swordfish"], 1, 1)]}, ("swordfish",), "line "),
        ({"plan": [phase("perf", ["true", "swordfish=1"], 1, 1)]}, ("swordfish",), "line "),
    ],
)
def test_a_secret_is_refused_wherever_it_comes_from(
    wanted: dict[str, Any], secrets: tuple[str, ...], where: str
) -> None:
    if "plan" in wanted:
        wanted = {"plan": Plan(backend="jax", environment_name="toy", phases=wanted["plan"])}
    with pytest.raises(RequestError, match="a secret must not be written into a job script") as caught:
        script(dtype="bf16", secrets=dict.fromkeys(secrets, "MY_PASSWORD"), **wanted)
    error = caught.value
    assert error.where.startswith(where)
    parts = str([error.what, error.where, error.why, error.next_command])
    assert not [secret for secret in (TOKEN, "pass@", *secrets) if secret in parts]


# --- quoting ------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["plain", "a b", "it's", 'say "hi"', "$HOME `id` \\ *", "ü", "", '""', "--a=b c"])
def test_the_shell_gives_every_word_back(text: str) -> None:
    word = shell_word(text + "{phase_dir}" + text) + " " + shell_word(text)
    done = subprocess.run(
        ["bash", "-c", f'phase_dir="/a b/$1"; printf "%s|" {word}', "bash", "p'q"], capture_output=True, check=True
    )
    assert done.stdout.decode() == f"{text}/a b/p'q{text}|{text}|"
