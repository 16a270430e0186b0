"""Plans of NeMo runs: settings, environment, processes, refusals; and whole plans as recorded in golden/.

The golden plans are what a dry run shows. After an intended change, record them again and read the diff:

    STEPMARK_RECORD_GOLDEN=1 python -m pytest tests/nemo_backend/test_planning.py
"""

import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

import jax_backend
import nemo_backend
from benchmarks.backend import Backend
from benchmarks.configs import Configs
from benchmarks.errors import RequestError
from benchmarks.model.plan_text import plan_text
from benchmarks.request.profiling import nccl_trace_environment
from benchmarks.request.refusals import without_transformer_engine
from benchmarks.request.resolve import NoLayoutError, Request, RuntimeOptions, resolve
from benchmarks.values import Benchmark, Parallelism, Phase, Site, Slurm, changed_benchmark
from launch.environments import venvs
from nemo_backend import BACKEND
from nemo_backend.inside import build
from nemo_backend.megatron import FINE_TUNING_FILES
from nemo_backend.planning import MODEL_CLASS, nemo_settings, settings
from tests.nemo_backend.conftest import HERE
from tests.recorded import assert_recorded

CONFIGS = Configs()
GOLDEN = Path(__file__).parent / "golden"
Resolve = Callable[..., Benchmark]


def refusal(resolved: Resolve, *request: Any, **wanted: Any) -> RequestError:
    with pytest.raises(RequestError) as caught:
        resolved(*request, **wanted)
    return caught.value


# --- the plan -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        (
            "llama31_70b_pretrain_h100_bf16_64_nsys",
            {"hardware": "h100", "dtype": "bf16", "gpus": 64, "profile": "nsys"},
        ),
        ("llama3_70b_lora_gb200_bf16_8", {"task": "lora", "hardware": "gb200", "dtype": "bf16", "gpus": 8}),
        ("llama3_tiny_pretrain_cpu_fp32_2", {"gpus": 2}),
    ],
)
def test_the_plan_is_as_recorded(resolved: Resolve, name: str, wanted: dict[str, Any]) -> None:
    model = re.split("_(?:pretrain|lora)_", name)[0]
    benchmark = resolved(model, **wanted)
    text = plan_text(benchmark, BACKEND.plan(benchmark), BACKEND.storage(benchmark)) + "\n"
    assert_recorded(text, GOLDEN / f"nemo_{name}.txt")


def test_a_plan_says_where_attention_is_not_fused(resolved: Resolve) -> None:
    def notes(**wanted: Any) -> list[str]:
        return BACKEND.plan(resolved("llama32_1b", gpus=1, **wanted)).notes

    (note,) = notes(hardware="h100")
    assert "unfused PyTorch matmuls" in note
    assert (
        notes(hardware="h100", dtype="fp8")
        == notes(hardware="h100", runs_in=RuntimeOptions(runtime="container"))
        == []
    )


# --- the backend and its engines --------------------------------------------------------------------------


@pytest.mark.parametrize(("engine", "runs_on"), [("nemo", {"cuda", "cpu"}), ("bridge", {"cuda", "cpu"})])
def test_what_an_engine_can_never_run_on_is_refused_before_a_recipe_is_looked_for(
    resolved: Resolve, engine: str, runs_on: set[str]
) -> None:
    for name in CONFIGS.names("hardware"):
        hardware = CONFIGS.hardware(name)
        error = BACKEND.refuses_hardware(engine, hardware)
        assert (error is None) == (hardware.platform in runs_on), name
        if error is not None:
            assert refusal(resolved, "llama3_tiny", engine=engine, hardware=name).what == error.what
            assert error.next_command.startswith(("--backend=", "--engine="))


# --- refusals ---------------------------------------------------------------------------------------------


def test_a_cpu_keeps_the_outputs_that_an_interleaved_pipeline_sends(resolved: Resolve) -> None:
    share = Parallelism(pipeline=2, virtual_pipeline=2)
    given = nemo_settings(changed_benchmark(resolved(), parallelism=share))
    assert given["model.config.deallocate_pipeline_outputs"] is False


def test_fine_tuning_reads_questions_answers_and_their_tokenizer(resolved: Resolve, tmp_path: Path) -> None:
    for name in FINE_TUNING_FILES:
        error = refusal(resolved, task="lora", data=str(tmp_path))
        assert (error.what, error.where) == (f"the folder has no {name}", f"--data={tmp_path}")
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("{}")
    assert resolved(task="lora", data=str(tmp_path)).data == str(tmp_path)


# --- what a virtual environment has not -----------------------------------------------------------------


def in_a_virtual_environment(asked: Benchmark) -> Benchmark:
    """The same on a cluster of H100s without containers."""
    slurm = Slurm(shared_folders=["/"], hardware=["h100"])
    site = Site(name="dev", kind="slurm", title="", runtime="venv", source="", date="", slurm=slurm)
    return msgspec.structs.replace(asked, site=site)


def test_what_needs_transformer_engine_is_refused_with_the_flags_without_it(resolved: Resolve) -> None:
    asked = in_a_virtual_environment(resolved("llama31_70b", gpus=64, dtype="fp8"))
    (refusal,) = without_transformer_engine(asked, BACKEND)
    assert "needs Transformer Engine" in refusal.what
    assert refusal.why.startswith("fp8, context parallelism, model.config.persist_layer_norm=true, ")
    flags = refusal.next_command.split()
    settings = dict(word.removeprefix("--set=").split("=") for word in flags if word.startswith("--set="))
    assert "--dtype=bf16" in flags
    assert settings["trainer.strategy.context_parallel_size"] == "1"
    without = in_a_virtual_environment(resolved("llama31_70b", settings, gpus=64))
    assert not [*without_transformer_engine(without, BACKEND)]


@pytest.mark.parametrize(("model", "task"), [("llama32_1b", "pretrain"), ("llama31_8b", "lora")])
def test_in_bf16_nothing_needs_transformer_engine_and_fp8_does(resolved: Resolve, model: str, task: str) -> None:
    def needs(dtype: str) -> Any:
        return BACKEND.needs_transformer_engine(resolved(model, task=task, hardware="h100", dtype=dtype, gpus=1))

    assert needs("bf16") == {}
    assert "fp8" in needs("fp8")


# --- refusals of both engines ---------------------------------------------------------


ROWS: list[dict[str, Any]] = yaml.safe_load(Path(__file__).with_name("refusals.yml").read_text())


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["words"][0])
def test_what_cannot_be_run_is_refused(resolved: Callable[..., Benchmark], row: dict[str, Any]) -> None:
    request = {name: value for name, value in row.items() if name not in ("set", "words")}
    with pytest.raises(RequestError) as caught:
        resolved(chosen=row.get("set"), **request)
    assert [words for words in row["words"] if words not in str(caught.value)] == []


# --- which recipe ---------------------------------------------------------------------


@pytest.mark.parametrize("hardware", [None, "h100"])
@pytest.mark.parametrize("site", ["local", "example_pyxis"])
def test_the_gpus_choose_the_recipe_and_not_the_site(resolved: Resolve, site: str, hardware: str | None) -> None:
    def name(gpus: int | None) -> str:
        return resolved("llama31_8b", hardware=hardware, gpus=gpus, site=site).recipe.name

    assert name(None) == name(4) == name(8) == "nemo_llama3_small_pretrain"
    assert name(16) == name(64) == "nemo_llama31_8b_pretrain"


@pytest.mark.parametrize("task", ["pretrain", "lora"])
@pytest.mark.parametrize("model", ["llama32_1b", "llama32_3b", "llama31_8b"])
def test_both_backends_train_two_sequences_a_gpu_at_every_scale(model: str, task: str) -> None:
    for backend in (jax_backend.BACKEND, nemo_backend.BACKEND):
        for gpus in (1, 2, 4, 8):
            request = Request(backend=backend.name, model=model, task=task, hardware="h200", gpus=gpus)
            benchmark = resolve(request, CONFIGS, backend)
            assert (benchmark.batch.global_batch_size, benchmark.batch.sequence_length) == (2 * gpus, 4096)


@pytest.mark.parametrize("hardware", ["gb200", "gb300"])
@pytest.mark.parametrize("backend", [jax_backend.BACKEND, nemo_backend.BACKEND])
def test_a_tray_of_four_gpus_has_the_small_models_up_to_four(backend: Backend, hardware: str) -> None:
    request = Request(backend=backend.name, model="llama31_8b", hardware=hardware)
    benchmark = resolve(request, CONFIGS, backend)
    assert (benchmark.gpus, benchmark.nodes, benchmark.recipe.global_batch_size) == (4, 1, 8)
    with pytest.raises(NoLayoutError, match=f"8 devices of {hardware}") as refused:
        resolve(msgspec.structs.replace(request, gpus=8), CONFIGS, backend)
    assert refused.value.scales == [1, 2, 4]


# --- the settings that NeMo has -------------------------------------------------------


@pytest.mark.parametrize(
    ("knows", "named"), [(True, {"cuda_graph_impl": "local"}), (False, {"enable_cuda_graph": True})]
)
def test_a_cuda_graph_has_the_name_that_megatron_knows(knows: bool, named: dict[str, object]) -> None:
    kind = type("Config", (), {"cuda_graph_impl": "none"} if knows else {})
    found = build.grouped(["model.config.enable_cuda_graph=true", "model.config.num_layers=2"])
    assert build.config_fields(found, kind) == {"num_layers": 2, **named}
    off = build.grouped(["model.config.enable_cuda_graph=false"])
    assert build.config_fields(off, kind) == {"enable_cuda_graph": False}


# --- the list of what there is to set -------------------------------------------------------------------


def test_the_list_is_of_groups_and_types_that_are_known_and_of_the_versions_that_the_locks_pin() -> None:
    names = settings().keys() - {MODEL_CLASS}
    groups = {max((group for group in build.GROUPS if name.startswith(f"{group}.")), key=len) for name in names}
    assert groups == build.GROUPS.keys()
    assert set(settings().values()) == {"bool", "int", "float", "str", "list"}
    head = (HERE / "nemo_settings.yml").read_text().splitlines()[0]
    for lock in ("requirements-cpu.lock", "requirements-cuda.lock"):
        pins = dict(re.findall(r"(?m)^([\w-]+)==(\S+)", (HERE / lock).read_text()))
        assert f"NeMo {pins['nemo-toolkit']} and Megatron-core {pins['megatron-core']} " in head


@pytest.mark.slow
def test_the_list_is_what_the_installed_nemo_says() -> None:
    python = venvs.ensure(BACKEND.environment("nemo"))
    program = HERE / "inside" / "list_settings.py"
    done = subprocess.run([str(python), "-P", str(program)], capture_output=True, text=True, check=True, timeout=300)
    assert done.stdout == (HERE / "nemo_settings.yml").read_text()


# --- profilers ------------------------------------------------------------------------


LORA = {"model": "llama3_70b", "task": "lora", "hardware": "gb200", "gpus": 8, "dtype": "bf16"}
PRETRAIN = {"model": "llama31_70b", "gpus": 64, "dtype": "bf16"}
BRIDGE = {"model": "llama3_70b", "engine": "bridge", "dtype": "bf16", "gpus": 64}
WEIGHTS = {"checkpoint.pretrained_checkpoint": "/checkpoints/llama3_70b"}
BRIDGE_LORA = {**BRIDGE, "task": "lora", "gpus": 8, "chosen": WEIGHTS}
EACH = pytest.mark.parametrize("request_", [LORA, PRETRAIN, BRIDGE, BRIDGE_LORA])


def phase_of(benchmark: Benchmark) -> Phase:
    (phase,) = BACKEND.plan(benchmark).phases
    return phase


def words_of(phase: Phase) -> list[str]:
    """The program's own, without the profiler's."""
    return phase.command[phase.command.index("--") + 1 :]


@EACH
def test_a_recorded_run_is_the_same_program_under_nsys_with_the_recipes_name(
    resolved: Resolve, request_: dict[str, Any]
) -> None:
    phase, bare = (phase_of(resolved(**request_, profile=profile)) for profile in ("nsys", "none"))
    lora, model = "task" in request_, str(request_["model"]).replace("_", "-")
    ranks = "0-7" if lora else "0-5,7-15"
    report = "profile_%q{SLURM_JOB_ID}_node%q{SLURM_NODEID}_rank%q{SLURM_PROCID}"
    if not lora:
        report = f"{model}-bf16_64g_%q{{SLURM_JOB_ID}}_%q{{SLURM_NODEID}}_%q{{SLURM_LOCALID}}"
    assert phase.command[: phase.command.index("--")] == [
        "{python}", "-I", "{repository}/benchmarks/inside/under_nsys.py", f"--ranks={ranks}",
        f"--output={{phase_dir}}/{report}",
    ]  # fmt: skip
    own = [word for word in words_of(phase) if not word.startswith(("--recorded", "--disturbed"))]
    assert own == bare.command
    assert (phase.programs, bare.programs) == (["nsys"], [])
    assert phase.environment == bare.environment


@EACH
def test_a_trace_of_nccl_is_variables_alone(resolved: Resolve, request_: dict[str, Any]) -> None:
    phase, bare = (phase_of(resolved(**request_, profile=profile)) for profile in ("nccl", "none"))
    assert (phase.command, phase.programs) == (bare.command, [])
    assert phase.environment == {**bare.environment, **nccl_trace_environment()}
    assert not nccl_trace_environment().keys() & bare.environment.keys()
