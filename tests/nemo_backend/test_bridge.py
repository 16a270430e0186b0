"""Megatron-Bridge without a GPU: its recipes, the command that is made of them, what is refused, and the check.

The commands in golden/bridge_*.txt are what would run. After an intended change, record them again:

    STEPMARK_RECORD_GOLDEN=1 python -m pytest tests/nemo_backend/test_bridge.py
"""

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
import yaml

from benchmarks.configs import Configs
from benchmarks.errors import RequestError
from benchmarks.inside import worker_kit
from benchmarks.request.resolve import ANY, Request, resolve
from benchmarks.values import Benchmark, Parallelism, Recipe, Scalar, changed_benchmark
from nemo_backend import BACKEND, bridge_planning
from nemo_backend.bridge_planning import PRETRAINED, hydra_text, overrides
from nemo_backend.inside import bridge_check as check
from nemo_backend.megatron import FINE_TUNING_FILES
from tests.megatron_dataset import write_dataset
from tests.nemo_backend.conftest import HERE
from tests.recorded import assert_recorded

CONFIGS = Configs()
GOLDEN = Path(__file__).parent / "golden"
TUNED, LIBRARY = "bridge_llama3_70b_pretrain_h100", "bridge_llama31_70b_pretrain_h100"  # the kinds of recipe
LORA = "bridge_llama3_70b_lora_h100_bf16"
TENSOR = "model.tensor_model_parallel_size"
# Recipe, precision and hardware of all that `run.py --list` shows for the engine; a tiny model runs on a CPU.
SCALES = [
    (recipe, dtype, "cpu" if hardware == ANY else hardware)
    for recipe in CONFIGS.recipes()
    if recipe.engine == "bridge"
    for hardware in recipe.hardware
    for dtype in recipe.dtypes[hardware]
]


def resolved(
    recipe: str = TUNED, settings: dict[str, str] | None = None, model: str = "", **wanted: Any
) -> Benchmark:
    row = CONFIGS.recipe(recipe)
    tiny = row.models[0].endswith("_tiny")
    weights = {PRETRAINED: "/checkpoints/llama3_70b"} if row.task == "lora" and not tiny else {}
    request = Request(
        backend="nemo",
        engine="bridge",
        recipe=recipe,
        model=model or row.models[0],
        task=row.task,
        settings={**weights, **(settings or {})},
        **wanted,
    )
    return resolve(request, CONFIGS, BACKEND)


def changed(benchmark: Benchmark, knobs: dict[str, Scalar] | None = None, **fields: Any) -> Benchmark:
    return changed_benchmark(benchmark, knobs={**benchmark.settings.knobs, **(knobs or {})}, **fields)


def refused(benchmark: Benchmark) -> RequestError:
    (error,) = BACKEND.refusals(benchmark)
    assert error.what and error.where and error.why
    return error


def command(benchmark: Benchmark) -> list[str]:
    (phase,) = BACKEND.plan(benchmark).phases
    return phase.command


# --- the command --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("recipe", "dtype", "gpus"), [(TUNED, "fp8", 64), (LORA, "bf16", 8)])
def test_the_command_is_as_recorded(recipe: str, dtype: str, gpus: int) -> None:
    (phase,) = BACKEND.plan(resolved(recipe, dtype=dtype, gpus=gpus)).phases
    environment = [f"{name}={value}" for name, value in phase.environment.items()]
    tasks = f"{phase.nodes} nodes, {phase.tasks_per_node} tasks per node, {phase.devices_per_task} device per task"
    text = "\n".join([tasks, "", *environment, "", *phase.command]) + "\n"
    assert_recorded(text, GOLDEN / f"{recipe}_{dtype}_{gpus}.txt")


def unknown_words(words: list[str]) -> list[str]:
    """The words of a command that Megatron-Bridge's released sources do not have."""
    found = []
    for word in words[words.index("--") + 1 :]:
        name = word.partition("=")[0]
        # Bridge accepts a field of the LoRA only as a new one, and any other only as an existing one.
        plain = name.removeprefix("++")
        known = plain in bridge_planning.settings() and (plain != name) is plain.startswith("peft.")
        found += [] if known else [word]
    return found


@pytest.mark.parametrize(("recipe", "dtype", "hardware"), SCALES, ids=lambda value: getattr(value, "name", value))
def test_every_word_of_every_command_is_known_to_the_sources(recipe: Recipe, dtype: str, hardware: str) -> None:
    """Recipes and overrides are those of the released sources, as bridge_settings.yml lists them."""
    for layout in recipe.layouts:
        benchmark = resolved(recipe.name, dtype=dtype, hardware=hardware, gpus=layout.gpus)
        words = command(benchmark)
        assert unknown_words(words) == []
        tuned = "gpu_" in str(benchmark.settings.knobs["recipe"])
        assert bridge_planning.is_benchmark_recipe(benchmark) is tuned is ("--library" not in words)
        gated = BACKEND.hub_repository("bridge", benchmark.model.name)
        assert (gated is None) is ("--stated_model" in words) is benchmark.model.name.endswith("_tiny")
    assert unknown_words(["--", "model.no_field=1", "peft.dim=16"]) == ["model.no_field=1", "peft.dim=16"]


@pytest.mark.parametrize(
    ("recipe", "dtype", "scaling", "stated"),
    [
        (TUNED, "bf16", None, {"mixed_precision.bf16": "true", "mixed_precision.fp8": "null"}),
        (TUNED, "fp8", None, {"mixed_precision.fp8": "hybrid", "mixed_precision.fp8_recipe": "tensorwise"}),
        (LIBRARY, "bf16", None, {"mixed_precision": "bf16_mixed"}),
        (LIBRARY, "fp8", "tensorwise", {"mixed_precision": "bf16_with_fp8_current_scaling_mixed"}),
        (LIBRARY, "fp8", "delayed", {"mixed_precision": "bf16_with_fp8_delayed_scaling_mixed"}),
        (LIBRARY, "mxfp8", "mxfp8", {"mixed_precision": "bf16_with_mxfp8_mixed"}),
        (LIBRARY, "fp8", "blockwise", {"mixed_precision": "bf16_with_fp8_subchannel_scaling_mixed"}),
    ],
)
def test_a_benchmark_recipe_has_its_precision_in_fields_a_library_recipe_by_name(
    recipe: str, dtype: str, scaling: str | None, stated: dict[str, str]
) -> None:
    benchmark = resolved(recipe, dtype="bf16" if scaling else dtype)
    if scaling:
        benchmark = changed(benchmark, {"mixed_precision.fp8_recipe": scaling}, dtype=dtype)
    assert BACKEND.refusals(benchmark) == []
    found = {key: value for key, value in overrides(benchmark).items() if key.startswith("mixed_precision")}
    assert found.items() >= stated.items()
    assert recipe == TUNED or found == stated


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("a/b-c_1.2:3", "a/b-c_1.2:3"),
        ("a b", "'a b'"),
        ("a,b=c", "'a,b=c'"),
        ("it's", r"'it\'s'"),
        (r"a\b", r"'a\b'"),
        (r"a\'b", r"'a\\\'b'"),
        ("a\\", r"'a\\'"),
    ],
)
def test_text_as_hydra_1_3_reads_it_back(text: str, written: str) -> None:
    assert hydra_text("logger.wandb_project", text) == written


@pytest.mark.parametrize(("recipe", "preset"), [(TUNED, []), (LIBRARY, ["--dataset=megatron-indexed"])])
def test_a_folder_of_tokens_reaches_a_recipe_of_either_kind(tmp_path: Path, recipe: str, preset: list[str]) -> None:
    write_dataset(tmp_path, ("t_0", "t_1"))
    words = command(resolved(recipe, data=str(tmp_path)))
    assert [word for word in words if word.startswith("--dataset")] == preset
    assert f"dataset.data_path=['{tmp_path}/t_0','{tmp_path}/t_1']" in words
    assert "dataset.path_to_cache='{phase_dir}/index'" in words
    assert "dataset.split='1,0,0'" in words  # Megatron never ends on a split without documents


def test_questions_and_answers_need_a_library_recipe(tmp_path: Path) -> None:
    tuned = resolved(LORA)
    assert "on its own mock data" in refused(changed(tuned, data=str(tmp_path))).what
    library = changed(tuned, {"recipe": "llama3_70b_peft_config"}, data=str(tmp_path))
    assert "has no training.jsonl" in refused(library).what
    for name in FINE_TUNING_FILES:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("{}")
    assert BACKEND.refusals(library) == []
    assert {"--dataset=local-jsonl", f"dataset.dataset_root='{tmp_path}'"} <= {*command(library)}
    assert "--dataset=mock" in command(changed(library, data="mock"))


# --- a CPU ----------------------------------------------------------------------------------------------


def test_on_a_cpu_nothing_of_transformer_engine_is_asked_for() -> None:
    benchmark = resolved("bridge_tiny_pretrain", gpus=2, hardware="cpu", settings={TENSOR: "2"})
    words = command(benchmark)
    assert {"model.transformer_impl=local", "dist.distributed_backend=gloo", "mixed_precision=null"} <= {*words}
    assert "model.sequence_parallel=false" in words
    (phase,) = BACKEND.plan(benchmark).phases
    assert phase.environment["CUDA_VISIBLE_DEVICES"] == ""
    stated = resolved("bridge_tiny_pretrain", hardware="cpu", settings={"dataset.num_workers": "1"})
    assert "dataset.num_workers=1" in command(stated), "what is typed wins"


def test_separate_adapters_are_stated_as_the_library_has_them() -> None:
    targets = "linear_q,linear_k,linear_v,linear_proj"
    benchmark = resolved("bridge_tiny_lora", hardware="cpu", settings={"peft.target_modules": targets})
    assert f"++peft.target_modules=[{targets}]" in command(benchmark)


# --- refusals -----------------------------------------------------------------------------------------

REFUSALS: list[dict[str, Any]] = yaml.safe_load(Path(__file__).with_name("refusals_bridge.yml").read_text())


@pytest.mark.parametrize("row", REFUSALS, ids=lambda row: row["what"])
def test_what_megatron_bridge_cannot_run_is_refused(row: dict[str, Any]) -> None:
    fields = dict(row.get("fields", {}))
    if "hardware" in fields:
        fields["hardware"] = CONFIGS.hardware(fields["hardware"])
    if "parallelism" in fields:
        fields["parallelism"] = Parallelism(**fields["parallelism"])
    assert row["what"] in refused(changed(resolved(row["recipe"]), row.get("knobs"), **fields)).what


def test_lora_without_weights_is_refused() -> None:
    benchmark = resolved(LORA)
    knobs = {key: value for key, value in benchmark.settings.knobs.items() if key != PRETRAINED}
    error = refused(changed_benchmark(benchmark, knobs=knobs))
    assert f"--set={PRETRAINED}=DIR" in error.why


def test_settings_of_adapters_and_of_xla_are_refused_where_they_have_no_effect() -> None:
    with pytest.raises(RequestError, match=r"peft\.dim has no effect"):
        resolved("bridge_tiny_pretrain", hardware="cpu", settings={"peft.dim": "8"})
    with pytest.raises(RequestError, match="does not use XLA"):
        resolved("bridge_tiny_pretrain", hardware="cpu", settings={"xla_gpu_autotune_level": "0"})


# --- the look at one node before a job uses the others --------------------------------------------------


def test_the_check_is_the_run_with_check_and_reports_a_missing_torch(tmp_path: Path) -> None:
    """As it is started on a node, with a Python that holds none of it."""
    benchmark = resolved(gpus=64)
    phase = BACKEND.check_phase(benchmark)
    planned = phase.command[phase.command.index("--") + 1 :]
    assert [word for word in planned if word != "--check"] == command(benchmark)
    words = [word.format(python=sys.executable, repository=HERE.parent, phase_dir=tmp_path) for word in planned]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    last_line = done.stdout.splitlines()[-1]
    assert last_line.startswith("stepmark check: torch cannot be imported; ModuleNotFoundError")
    assert "; try: pass --image" in last_line
    end = json.loads((tmp_path / "events-rank0.jsonl").read_text())
    assert (end["event"], end["status"]) == ("end", "error")


@pytest.mark.parametrize(
    ("error", "what", "next_step"),
    [
        (OSError("We couldn't connect to 'https://huggingface.co'"), "HF_HOME", "launch/setup.py"),
        (KeyError("model.no_such_field"), "refuses the run's configuration; KeyError", "--set"),
        (SystemExit("this Megatron-Bridge has no recipe 'x'"), "has no recipe", "--image"),
    ],
    ids=["configuration", "override", "recipe"],
)
def test_what_bridge_refuses_is_named(
    monkeypatch: pytest.MonkeyPatch, error: BaseException, what: str, next_step: str
) -> None:
    asked = SimpleNamespace(
        list_versions=lambda *_: {}, find_devices=lambda *_: [], import_transformer_engine=lambda *_: None
    )
    monkeypatch.setattr(worker_kit, "load", lambda _path: asked)
    options = SimpleNamespace(tasks_per_node=8, device_name=[], settings=[])
    work = SimpleNamespace(imported=lambda: False, prepared=Mock(side_effect=error))
    with pytest.raises(worker_kit.CheckFailure, match=what) as failure:
        check.look(options, work, worker_kit)
    assert next_step in failure.value.next_step
