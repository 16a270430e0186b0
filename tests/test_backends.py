"""The backend interface, over every installed backend and engine with one suite; and a third, from another package.

The behaviour of each framework is tested in its folder and end to end: here no framework is started.
"""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import msgspec
import pytest
from msgspec.structs import replace

from benchmarks.backend import Backend, backend_names, backends, find_backend, installed_backends
from benchmarks.configs import Configs
from benchmarks.errors import RequestError
from benchmarks.logs.templates import all_log_formats
from benchmarks.model import capacity, flops
from benchmarks.request.resolve import Request, resolve
from benchmarks.request.settings import sort_settings
from benchmarks.values import (
    SUBMISSION_ENGINE,
    Benchmark,
    Plan,
    Recipe,
    RunRecord,
    Step,
    changed_benchmark,
    json_text,
)
from launch.environments import venvs
from tests import forked
from tests.benchmarks.conftest import events_of
from tests.toy_backend import install, make_environment

REPOSITORY = Path(__file__).resolve().parents[1]
CONFIGS = Configs()
BACKENDS = backends()
PLACEHOLDERS = {"python", "repository", "phase_dir"}
TYPES = {"bool", "int", "float", "str", "list", "dict"}
VALUE_OF_TYPE = {"bool": "true", "int": "3", "float": "0.5", "str": "text", "list": "a,b", "dict": "{}"}
# Imports that would make a dry run slow, or that the launcher must never make.
HEAVY = ("jax", "torch", "maxtext", "nemo", "megatron", "lightning", "numpy", "scipy", "tensorboard", "rich")

# Settings that a recipe leaves to the user.
EXTRA_SETTINGS = {("bridge", "lora"): {"checkpoint.pretrained_checkpoint": "/weights"}}


class Engine(NamedTuple):
    """One engine of a backend, and a task it has recipes for."""

    backend: str
    engine: str
    task: str

    @property
    def recipes(self) -> list[Recipe]:
        """Its recipes; those of a tiny model first, which this machine could run."""
        found = [r for r in CONFIGS.recipes() if (r.backend, r.engine, r.task) == tuple(self)]
        return sorted(found, key=lambda recipe: not any(name.endswith("_tiny") for name in recipe.models))


def engines(*, submissions: bool = False) -> list[Engine]:
    """Return all engines. Submissions are programs with only variables as settings: nemo_backend/test_mlperf.py."""
    names = sorted({(recipe.backend, recipe.engine, recipe.task) for recipe in CONFIGS.recipes()})
    return [Engine(*name) for name in names if submissions or not name[1].startswith(SUBMISSION_ENGINE)]


@cache
def wanted_model(engine: Engine) -> str:
    recipe = engine.recipes[0]
    tiny = [name for name in recipe.models if name.endswith("_tiny")]
    return (tiny or recipe.models)[-1]


@cache
def sound(engine: Engine) -> Benchmark:
    """A benchmark that the engine can run."""
    recipe = engine.recipes[0]
    request = Request(
        backend=engine.backend,
        engine=engine.engine,
        task=engine.task,
        model=wanted_model(engine),
        hardware=recipe.defaults.hardware,
        settings=EXTRA_SETTINGS.get((engine.engine, engine.task), {}),
    )
    return resolve(request, CONFIGS, BACKENDS[engine.backend])


def has_our_worker(engine: Engine) -> bool:
    """Return whether a Stepmark worker writes its steps; otherwise only the framework's log is available."""
    (phase,) = [phase for phase in BACKENDS[engine.backend].plan(sound(engine)).phases if phase.writes_steps]
    return any(word.endswith("worker.py") for word in phase.command)


each_backend = pytest.mark.parametrize("backend", BACKENDS.values(), ids=BACKENDS)
each_engine = pytest.mark.parametrize("engine", engines(), ids="-".join)


# --- what a backend is ------------------------------------------------------------------------


def test_both_frameworks_are_there_and_every_engine_has_recipes() -> None:
    assert {"jax", "nemo"} <= set(BACKENDS)
    assert backend_names() == sorted(BACKENDS)
    assert {(e.backend, e.engine) for e in engines(submissions=True)} == {
        (b.name, name) for b in BACKENDS.values() for name in b.engines
    }


# --- settings ---------------------------------------------------------------------------------


@each_backend
def test_every_setting_has_a_type_and_takes_a_value_of_it(backend: Backend) -> None:
    types = backend.settings()
    assert len(types) > 100
    assert set(types.values()) <= TYPES
    free = {name: kind for name, kind in types.items() if name not in backend.reserved_settings}
    _, _, _, knobs = sort_settings({name: VALUE_OF_TYPE[kind] for name, kind in free.items()}, backend)
    python_types = {"bool": bool, "int": int, "float": float}
    assert {name: type(value) for name, value in knobs.items()} == {
        name: python_types.get(kind, str) for name, kind in free.items()
    }


@each_backend
def test_what_stepmark_fills_itself_is_refused_with_what_to_use_instead(backend: Backend) -> None:
    assert backend.reserved_settings
    for name, instead in backend.reserved_settings.items():
        with pytest.raises(RequestError) as refused:
            sort_settings({name: "1"}, backend)
        assert refused.value.what == f"{name} cannot be set directly"
        assert instead.removeprefix("nothing: ") in refused.value.why


@each_backend
def test_variables_that_would_steer_the_framework_past_the_plan_are_refused(backend: Backend) -> None:
    assert backend.reserved_variables
    for beginning in backend.reserved_variables:
        with pytest.raises(RequestError, match="cannot be set directly"):
            sort_settings({f"env.{beginning}": "1"}, backend)
    assert sort_settings({"env.NCCL_DEBUG": "INFO"}, backend)[1] == {"NCCL_DEBUG": "INFO"}


@each_engine
def test_every_layout_of_every_recipe_takes_all_its_devices(engine: Engine) -> None:
    backend = BACKENDS[engine.backend]
    for recipe in engine.recipes:
        always = {k: v for overlay in recipe.overlays if not overlay.when.dtype for k, v in overlay.knobs.items()}
        for layout in recipe.layouts:
            assert layout.knobs.keys() & backend.layout_settings
            shared = backend.parallelism({**always, **layout.knobs}, layout.gpus)
            assert shared.devices == layout.gpus, f"{recipe.name}: {layout.gpus}"


@each_backend
def test_a_layout_setting_shares_out_along_the_axis_in_its_name(backend: Backend) -> None:
    for name in backend.layout_settings:
        axes = [word for word, size in backend.parallelism({name: 2}, 2).words() if size == 2]
        if name.isupper():  # NVIDIA's own short names
            assert [word for word in axes if word[0] == name.removesuffix("P")[:1].lower()], f"{name}: {axes}"
            continue
        assert [word for word in axes if word in name] or "tensor_sequence" in name, f"{name}: {axes}"


@each_backend
def test_a_size_below_one_is_refused(backend: Backend) -> None:
    for name in backend.layout_settings:
        with pytest.raises(RequestError, match=re.escape(name)):
            backend.parallelism({name: 0}, 8)


@each_engine
def test_adapters_are_set_in_common_words_or_refused(engine: Engine) -> None:
    backend, benchmark = BACKENDS[engine.backend], sound(engine)
    if engine.task == "lora" or benchmark.lora:  # some of MLPerf's benchmarks train adapters
        assert benchmark.lora == backend.lora(benchmark.settings.knobs)
        assert benchmark.lora is not None
        assert benchmark.lora.targets
        assert set(benchmark.lora.targets) <= set(flops.ADAPTED_MATRICES)
        return
    assert benchmark.lora is None
    with pytest.raises(RequestError):
        backend.lora({})


# --- refusals and memory ----------------------------------------------------------------------


@each_engine
def test_a_sound_benchmark_is_not_refused(engine: Engine) -> None:
    assert BACKENDS[engine.backend].refusals(sound(engine)) == []


@each_engine
def test_a_folder_of_data_that_is_not_there_is_refused(engine: Engine) -> None:
    refused = BACKENDS[engine.backend].refusals(replace(sound(engine), data="/no/such/folder"))
    assert refused
    assert all(isinstance(error, RequestError) and error.what and error.where for error in refused)
    assert any("data" in error.where for error in refused)


@each_engine
def test_what_is_stored_makes_sense(engine: Engine) -> None:
    benchmark = sound(engine)
    storage = BACKENDS[engine.backend].storage(benchmark)
    assert storage.numbers.weight_bytes in (1, 2, 4)
    assert storage.numbers.gradient_bytes in (2, 4)
    assert 0 < storage.usable_fraction <= 1
    assert benchmark.gpus % storage.optimizer_replicas == 0
    widths = capacity.activation_widths(benchmark.model)
    assert storage.saved_activations <= set(widths) | set().union(*capacity.FUSED.values())
    assert storage.one_byte_activations <= set(widths)
    weights = flops.held_parameter_count(benchmark.model, benchmark.lora) * storage.numbers.weight_bytes
    assert capacity.total_bytes(benchmark, storage) * benchmark.gpus > weights
    assert all(part >= 0 for part in capacity.memory_by_part(benchmark, storage).values())


# --- the plan ---------------------------------------------------------------------------------


@each_engine
def test_a_plan_reads_back_and_names_no_place_of_this_machine(engine: Engine) -> None:
    plan = BACKENDS[engine.backend].plan(sound(engine))
    text = json_text(plan)
    assert msgspec.json.decode(text, type=Plan) == plan == BACKENDS[engine.backend].plan(sound(engine))
    assert plan.backend == engine.backend
    for place in (REPOSITORY, Path.home(), sys.prefix, Path.cwd(), venvs.environments_root()):
        assert f"{place}/" not in text
    assert "python" in set(re.findall(r"\{(\w+)\}", text)) <= PLACEHOLDERS


@each_engine
def test_one_phase_writes_the_steps_with_all_devices_and_all_that_was_asked(engine: Engine) -> None:
    benchmark = sound(engine)
    benchmark = changed_benchmark(
        benchmark, environment={**benchmark.settings.environment, "NCCL_DEBUG": "INFO"}, steps=4321
    )
    phases = BACKENDS[engine.backend].plan(benchmark).phases
    (measured,) = [phase for phase in phases if phase.writes_steps]
    assert len({phase.name for phase in phases}) == len(phases)
    assert measured.tasks * measured.devices_per_task == benchmark.gpus
    assert measured.nodes == benchmark.nodes
    assert measured.environment["NCCL_DEBUG"] == "INFO"
    keys = [word.lstrip("-+").partition("=")[0] for word in measured.command if "=" in word]
    keys = [key for key in keys if key != "device_name"]  # a device goes by several
    assert len(keys) == len(set(keys))
    assert benchmark.settings.knobs.keys() <= set(keys)
    assert any(word.endswith("=4321") for word in measured.command)


# --- the environment --------------------------------------------------------------------------


@each_backend
def test_the_devices_choose_the_lock_file(backend: Backend) -> None:
    """A CUDA build serves a CPU too; no CPU build serves a GPU."""
    engine = backend.engines[0]
    on_cpu, on_gpu = (backend.environment(engine, platform).locks for platform in ("cpu", "cuda"))
    assert on_gpu
    assert all("cuda" in lock.path.name for lock in on_gpu)
    assert "cuda" not in on_cpu[0].path.name
    assert backend.environment(engine).locks == on_cpu


@each_engine
def test_what_our_workers_run_in_is_the_environment_that_is_made(engine: Engine) -> None:
    backend = BACKENDS[engine.backend]
    plan = backend.plan(sound(engine))
    spec = backend.environment(engine.engine)
    assert plan.environment_name == spec.name
    assert bool(spec.locks) == has_our_worker(engine)
    assert spec.locks or spec.image


# --- logs -------------------------------------------------------------------------------------


def logs_of(backend: Backend) -> list[Path]:
    package = type(backend).__module__.partition(".")[0]
    found = (REPOSITORY / "tests" / package / "logs").glob("*.log")
    return sorted(path for path in found if "-bar-" not in path.name)  # a progress bar has no format


@each_backend
def test_every_log_format_takes_a_log_of_its_framework_and_none_of_another(backend: Backend) -> None:
    own = [path.read_bytes() for path in logs_of(backend)]
    others = [path.read_bytes() for other in BACKENDS.values() if other is not backend for path in logs_of(other)]
    assert own
    assert others
    for log_format in backend.log_formats():
        assert [log for log in own if log_format.recognises(log)], log_format.name
        assert not [log for log in others if log_format.recognises(log)], log_format.name
        assert not log_format.recognises(b"")
        assert not log_format.recognises(b"step by step, the loss fell\n" * 50)


@each_backend
def test_every_log_of_a_framework_is_read_by_one_of_its_formats(backend: Backend) -> None:
    for path in logs_of(backend):
        log_format = next(f for f in backend.log_formats() if f.recognises(path.read_bytes()))
        with path.open("rb") as stream:
            steps = [event.step for event in log_format.read(stream) if event.step]
        assert steps, path.name
        assert all(0 < log_format.seconds_resolution(step.seconds) < 1 for step in steps if step.seconds)
        rates = [step.framework_tflops_per_device for step in steps]
        assert all(0 < log_format.rate_resolution(rate) <= 1 for rate in rates if rate)


def test_the_formats_of_all_backends_have_names_of_their_own() -> None:
    names = [log_format.name for log_format in all_log_formats()]
    assert len(names) == len(set(names))


# --- reading a phase --------------------------------------------------------------------------


def megatron_line(step: int) -> str:
    return (
        f" [2026-04-27 00:00:01] iteration {step + 1:8d}/      12 | consumed samples: {step:12d} | "
        "elapsed time per iteration (ms): 250.0 | learning rate: 1.000000E-04 | global batch size:     2 | "
        "lm loss: 6.0E+00 | loss scale: 1.0 | grad norm: 1.0 | number of skipped iterations:   0 | "
        "number of nan iterations:   0 |\n"
    )


def write_steps(engine: Engine, phase_dir: Path, steps: range) -> None:
    """Append what the engine's program writes for these steps."""
    phase_dir.mkdir(exist_ok=True)
    if has_our_worker(engine):
        lines = [json.dumps(event) + "\n" for event in events_of()[1 + steps.start : 1 + steps.stop]]
        path = phase_dir / "events-rank0.jsonl"
    else:
        lines = [megatron_line(step) for step in steps]
        path = phase_dir / f"rank-{sound(engine).gpus - 1}.log"  # the last rank prints
    with path.open("a") as stream:
        stream.writelines(lines)


@each_engine
def test_a_folder_without_files_holds_nothing(engine: Engine, tmp_path: Path) -> None:
    record = BACKENDS[engine.backend].read_phase(sound(engine), tmp_path / "not made yet", 3)
    assert [*record.steps] == []
    assert replace(record, steps=[]) == RunRecord(attempt=3, facts=[], steps=[], ends=[], unreadable=[])


@each_engine
def test_following_gives_each_new_step_once(engine: Engine, tmp_path: Path) -> None:
    folder, backend = tmp_path / "perf", BACKENDS[engine.backend]
    follow = backend.follow(sound(engine), folder, 2)
    assert follow() == []
    found: list[Step] = []
    for steps in (range(3), range(3, 4), range(4, 4), range(4, 9)):
        write_steps(engine, folder, steps)
        new = follow()
        assert [step.step for step in new] == list(steps)
        found += new
    assert follow() == []
    assert {(step.attempt, step.rank) for step in found} == {(2, 0)}
    assert [*backend.read_phase(sound(engine), folder, 2).steps] == found


@each_engine
def test_a_step_that_is_being_written_waits(engine: Engine, tmp_path: Path) -> None:
    folder, backend = tmp_path / "perf", BACKENDS[engine.backend]
    write_steps(engine, folder, range(2))
    (path,) = folder.iterdir()
    whole = path.read_bytes()
    follow = backend.follow(sound(engine), folder, 1)
    path.write_bytes(whole[:-30])
    first = follow()
    path.write_bytes(whole)
    assert [step.step for step in [*first, *follow()]] == [0, 1]


# --- a dry run --------------------------------------------------------------------------------


@pytest.mark.parametrize("engine", {one.engine: one for one in engines()}.values(), ids="-".join)
def test_a_dry_run_needs_no_framework_no_home_and_nothing_heavy(engine: Engine, tmp_path: Path) -> None:
    benchmark = sound(engine)
    flags = [
        f"--backend={engine.backend}",
        f"--engine={engine.engine}",
        f"--task={engine.task}",
        "--dry_run",
        "--verbose",
    ]
    flags += [f"--model={wanted_model(engine)}", f"--hardware={benchmark.hardware.name}"]
    flags += [f"--set={name}={value}" for name, value in EXTRA_SETTINGS.get((engine.engine, engine.task), {}).items()]
    probe = (
        "import runpy, sys\n"
        "sys.argv = sys.argv[1:]\n"
        "try:\n    runpy.run_path(sys.argv[0], run_name='__main__')\n"
        "except SystemExit as end:\n    assert not end.code\n"
        f"print('HEAVY', sorted(set(sys.modules) & set({HEAVY!r})))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", probe, str(REPOSITORY / "launch/run.py"), *flags],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        cwd=tmp_path,
        env={"HOME": "/nonexistent", "PYTHONPATH": str(REPOSITORY / "launch")},
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert done.stdout.splitlines()[-1] == "HEAVY []"
    for words in (
        benchmark.model.name,
        f"{flops.parameter_count(benchmark.model):,} parameters",
        "nothing was started",
    ):
        assert words in done.stdout
    assert list(tmp_path.iterdir()) == []


# --- a third backend --------------------------------------------------------------------------


@pytest.fixture
def toy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Configs]:
    """An installed package with a backend, configs with a recipe for it, and its environment as if it was made."""
    for name, value in install(tmp_path).items():
        monkeypatch.setenv(name, value)
    monkeypatch.syspath_prepend(tmp_path / "site")
    monkeypatch.delitem(sys.modules, "toy_backend", raising=False)
    installed_backends.cache_clear()
    make_environment(find_backend("toy"))
    yield Configs()
    installed_backends.cache_clear()


def test_a_third_backend_resolves_and_plans(toy: Configs) -> None:
    backend = find_backend("toy")
    benchmark = resolve(Request(backend="toy", model="llama2_tiny", gpus=2), toy, backend)
    assert (benchmark.engine, benchmark.parallelism.data, benchmark.batch.global_batch_size) == ("nap", 2, 4)
    (phase,) = backend.plan(benchmark).phases
    assert "nap=0.01" in phase.command
    for settings, message in (
        ({"naps": "3"}, "naps cannot be set directly"),
        ({"nap_second": "1"}, "did you mean 'nap_seconds'"),
        ({"nap_seconds": "x"}, "is not a finite number"),
        ({"nap_seconds": "2"}, "too deep a sleep"),
        ({"env.TOY_STORY": "1"}, "TOY_STORY cannot be set directly"),
    ):
        with pytest.raises(RequestError, match=re.escape(message)):
            resolve(Request(backend="toy", model="llama2_tiny", settings=settings), toy, backend)


def test_a_third_backend_is_listed_and_shown(toy: Configs) -> None:  # noqa: ARG001
    listed = forked.run(REPOSITORY / "launch/run.py", "--list")
    assert listed.returncode == 0, listed.stderr
    assert re.search(r"\btoy\s+Toy \(sleeps\)", listed.stdout)
    assert re.search(r"\bjax\s+MaxText", listed.stdout)
    assert "toy_tiny" in listed.stdout
    plan = forked.run(REPOSITORY / "launch/run.py", "--backend=toy", "--model=llama2_tiny", "--dry_run", "--verbose")
    assert plan.returncode == 0, plan.stderr
    assert "106,816 parameters" in plan.stdout
    assert "nap=0.01" in plan.stdout


def test_without_the_package_the_third_backend_is_unknown() -> None:
    assert "toy" not in backend_names()
    with pytest.raises(RequestError, match="unknown backend 'toy'"):
        find_backend("toy")
