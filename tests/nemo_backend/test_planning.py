"""Plans of NeMo runs: settings, environment, processes, refusals; and whole plans as recorded in golden/.

The golden plans are what a dry run shows. After a change that is meant, record them anew and read the diff:

    STEPMARK_RECORD_GOLDEN=1 python -m pytest tests/nemo_backend/test_planning.py
"""

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from benchmarks.configs import Configs
from benchmarks.errors import RequestError
from benchmarks.planning.plan_text import plan_text
from benchmarks.request.refusals import without_transformer_engine
from benchmarks.values import Benchmark, Site, Slurm
from nemo_backend import BACKEND, bridge_planning, mlperf_planning
from nemo_backend.planning import (
    CHOICES,
    EVERY_RUN,
    FINE_TUNING_FILES,
    MODEL_CLASS,
    ON_A_CPU,
    PRECISIONS,
    RESERVED,
    environment,
    model_settings,
    nemo_settings,
    refusals,
    settings,
)

CONFIGS = Configs()
GOLDEN = Path(__file__).parent / "golden"
MODELS = [name for name in CONFIGS.names("models") if "nemo" in CONFIGS.model(name).backend_settings]
Resolve = Callable[..., Benchmark]


def refusal(resolved: Resolve, *request: Any, **wanted: Any) -> RequestError:
    with pytest.raises(RequestError) as caught:
        resolved(*request, **wanted)
    return caught.value


# --- golden -------------------------------------------------------------------------------------------


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
    path = GOLDEN / f"nemo_{name}.txt"
    if os.environ.get("STEPMARK_RECORD_GOLDEN"):
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8")


def test_a_plan_says_where_attention_is_not_fused(resolved: Resolve) -> None:
    def notes(**wanted: Any) -> list[str]:
        return BACKEND.plan(resolved("llama32_1b", gpus=1, **wanted)).notes

    (note,) = notes(hardware="h100")
    assert "Megatron's own PyTorch matmuls" in note
    assert "\n" not in note
    assert notes(hardware="h100", dtype="fp8") == notes(hardware="h100", runtime="container") == []


# --- the worker's command -------------------------------------------------------------------------------


def test_a_process_on_a_cpu_is_a_device_too(resolved: Resolve) -> None:
    benchmark = resolved(gpus=8, nodes=2)
    (phase,) = BACKEND.plan(benchmark).phases
    assert (phase.nodes, phase.tasks_per_node, phase.devices_per_task) == (2, 4, 1)
    assert {"--processes=8", "--tasks_per_node=4"} <= set(phase.command)
    found = nemo_settings(benchmark)
    assert (found["trainer.devices"], found["trainer.num_nodes"]) == (4, 2)


# --- settings -------------------------------------------------------------------------------------------


def test_the_request_reaches_nemo(resolved: Resolve) -> None:
    chosen = {"sequence_length": 64, "micro_batch_size": 3, "gradient_accumulation": 2, "optim.config.lr": 0.5}
    found = nemo_settings(resolved(chosen=chosen, gpus=4, steps=7))
    assert found["trainer.max_steps"] == 7
    assert (found["trainer.devices"], found["trainer.num_nodes"]) == (4, 1)
    assert found["data.seq_length"] == found["model.config.seq_length"] == 64
    assert (found["data.micro_batch_size"], found["data.global_batch_size"]) == (3, 24)
    assert found["optim.config.lr"] == 0.5


def test_a_cpu_gets_neither_fused_kernels_nor_nccl_and_a_gpu_keeps_them(resolved: Resolve) -> None:
    assert nemo_settings(resolved()).items() >= ON_A_CPU.items()
    on_gpu = nemo_settings(resolved("llama31_70b"))
    assert on_gpu["trainer.accelerator"] == "gpu"
    assert on_gpu["trainer.strategy.sequence_parallel"] is True
    assert on_gpu.keys() & ON_A_CPU.keys() == {
        "trainer.accelerator",
        "trainer.strategy.sequence_parallel",
        "trainer.strategy.ddp.check_for_nan_in_grad",
    }
    assert nemo_settings(resolved(hardware="h100"))["trainer.accelerator"] == "gpu"


@pytest.mark.parametrize(
    ("model", "virtual", "said"), [("llama31_70b", 5, 5), ("llama31_70b", 1, "none"), ("llama3_tiny", None, "none")]
)
def test_a_pipeline_that_is_not_interleaved_says_so(
    resolved: Resolve, model: str, virtual: int | None, said: int | str
) -> None:
    """Megatron takes 1 for an interleaved schedule."""
    name = "trainer.strategy.virtual_pipeline_model_parallel_size"
    assert nemo_settings(resolved(model, {name: virtual} if virtual else {}))[name] == said


@pytest.mark.parametrize("model", MODELS)
def test_every_model_is_stated_whole_in_known_settings(model: str) -> None:
    row = CONFIGS.model(model)
    found = model_settings(row)
    assert found.keys() <= settings().keys()
    assert found[MODEL_CLASS] == row.backend_settings["nemo"][MODEL_CLASS]
    assert str(found[MODEL_CLASS]).startswith("Llama")
    assert (found["model.config.num_layers"], found["model.config.vocab_size"]) == (row.layers, row.vocabulary_size)


@pytest.mark.parametrize("dtype", ["bf16", "fp32"])
def test_nemo_is_told_nothing_that_it_does_not_know(resolved: Resolve, dtype: str) -> None:
    """MegatronStrategy hands what it does not name itself on to Lightning's DDPStrategy."""
    for benchmark in (
        resolved(dtype=dtype),
        resolved(dtype=dtype, task="lora"),
        resolved("llama31_70b", dtype="fp8"),
    ):
        assert nemo_settings(benchmark).keys() - settings().keys() <= {"trainer.strategy.process_group_backend"}


def test_what_stepmark_fills_cannot_be_set(resolved: Resolve) -> None:
    benchmark = resolved("llama31_70b", dtype="fp8")
    assert nemo_settings(benchmark).keys() - benchmark.knobs.keys() <= RESERVED.keys()
    assert {name for table in PRECISIONS.values() for name in table} | EVERY_RUN.keys() <= RESERVED.keys()


@pytest.mark.parametrize(
    ("key", "instead"),
    [
        ("trainer.max_steps", "--steps"),
        ("trainer.plugins.precision", "--dtype"),
        ("data.seq_length", "--set=sequence_length=N"),
        ("data.rampup_batch_size", "FLOPs are not counted"),
        ("model.config.num_layers", "configs/models"),
        ("model.config.tensor_model_parallel_size", "--set=trainer.strategy"),
        ("trainer.strategy.ddp.use_megatron_fsdp", "--engine=bridge"),
        ("env.MASTER_ADDR", "past the plan"),
    ],
)
def test_a_reserved_setting_says_what_to_use(resolved: Resolve, key: str, instead: str) -> None:
    error = refusal(resolved, chosen={key: "true" if key.endswith("fsdp") else "1"})
    assert error.what.endswith("is not set directly")
    assert error.where == f"--set={key}"
    assert instead in error.why


# --- the backend and its two engines ------------------------------------------------------------------------


def test_nemo_is_the_engine_where_none_is_asked_for(resolved: Resolve) -> None:
    assert BACKEND.engines == ("nemo", "bridge", *mlperf_planning.engines())
    assert resolved("llama31_70b").engine == "nemo"
    assert resolved("llama31_70b", engine="bridge").recipe.name == "bridge_llama31_70b_pretrain_h100"


def test_a_setting_of_both_engines_is_of_one_type_and_neither_reserves_the_others() -> None:
    of_nemo, of_bridge = settings(), bridge_planning.settings()
    of_mlperf = mlperf_planning.settings()
    assert BACKEND.settings() == {**of_nemo, **of_bridge, **of_mlperf}
    assert not of_mlperf.keys() & (of_nemo.keys() | of_bridge.keys())
    shared = of_nemo.keys() & of_bridge.keys()
    assert {name: of_nemo[name] for name in shared} == {name: of_bridge[name] for name in shared}
    assert not bridge_planning.RESERVED.keys() & of_nemo.keys()
    assert not RESERVED.keys() & of_bridge.keys()
    assert (
        BACKEND.reserved_settings.keys()
        == RESERVED.keys() | bridge_planning.RESERVED.keys() | mlperf_planning.reserved().keys()
    )


@pytest.mark.parametrize(
    ("engine", "key", "other"),
    [
        ("nemo", "model.recompute_num_layers", "--engine=bridge"),
        ("bridge", "optim.config.lr", "--engine=nemo"),
    ],
)
def test_a_setting_of_the_other_engine_is_refused_by_its_name(
    resolved: Resolve, engine: str, key: str, other: str
) -> None:
    value = {"bool": "false", "int": "4", "float": "0.5"}[BACKEND.settings()[key]]
    error = refusal(resolved, "llama31_70b", engine=engine, chosen={key: value})
    assert f"engine {engine} has no setting '{key}'" in error.what
    assert error.where == f"--set={key}"
    assert error.next_command.startswith(other)


# --- refusals ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("task", ["pretrain", "lora"])
def test_a_sound_benchmark_is_not_refused(resolved: Resolve, task: str) -> None:
    assert refusals(resolved(task=task, gpus=2)) == []


@pytest.mark.parametrize(("engine", "runs_on"), [("nemo", {"cuda", "cpu"}), ("bridge", {"cuda"})])
def test_what_an_engine_can_never_run_on_is_refused_before_a_recipe_is_looked_for(
    resolved: Resolve, engine: str, runs_on: set[str]
) -> None:
    for name in CONFIGS.names("hardware"):
        hardware = CONFIGS.hardware(name)
        error = BACKEND.refuses_hardware(engine, hardware)
        assert (error is None) == (hardware.platform in runs_on), name
        if error is not None:
            assert refusal(resolved, "llama3_tiny", engine=engine, hardware=name).what == error.what
            assert hardware.title in error.what
            assert error.next_command.startswith(("--backend=", "--engine="))


def test_a_model_without_nemo_settings_is_refused(resolved: Resolve) -> None:
    benchmark = resolved()
    model = msgspec.structs.replace(benchmark.model, backend_settings={"jax": {}})
    (error,) = refusals(msgspec.structs.replace(benchmark, model=model))
    assert error.where == "configs/models/llama3_tiny.yml: backend_settings.nemo"


def test_fine_tuning_reads_questions_answers_and_their_tokenizer(resolved: Resolve, tmp_path: Path) -> None:
    for name in FINE_TUNING_FILES:
        error = refusal(resolved, task="lora", data=str(tmp_path))
        assert error.what == f"the folder has no {name}"
        assert error.where == f"--data={tmp_path}"
        assert "--task=lora" in error.next_command
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "tokenizer" / "tokenizer.json").write_text('{"model": {"vocab": {"a": 511}}, "added_tokens": []}')
    assert resolved(task="lora", data=str(tmp_path)).data == str(tmp_path)


def test_a_tokenizer_that_is_larger_than_the_model_is_refused(resolved: Resolve, tmp_path: Path) -> None:
    for name in FINE_TUNING_FILES:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    assert "cannot be read" in refusal(resolved, task="lora", data=str(tmp_path)).what
    (tmp_path / "tokenizer" / "tokenizer.json").write_text('{"model": {"vocab": {"a": 512}}}')
    assert "513 tokens" in refusal(resolved, task="lora", data=str(tmp_path)).what


# --- settings that would be without effect, or call one thing another ---------------------------------


@pytest.mark.parametrize(("key", "value"), [("data.num_workers", 3), ("trainer.strategy.sequence_parallel", "true")])
def test_what_a_cpu_decides_cannot_be_set_otherwise(resolved: Resolve, key: str, value: object) -> None:
    with pytest.raises(RequestError, match="on a CPU"):
        resolved(chosen={key: value})


@pytest.mark.parametrize(
    "typed", ["linear_qkv, linear_fc2", "[linear_qkv,linear_fc2]", "['linear_qkv','linear_fc2']"]
)
def test_a_list_of_matrices_reaches_nemo_as_names_between_commas(resolved: Resolve, typed: str) -> None:
    settings = nemo_settings(resolved(task="lora", chosen={"peft.target_modules": typed}))
    assert settings["peft.target_modules"] == "linear_qkv,linear_fc2"


@pytest.mark.parametrize(
    ("wanted", "key", "value", "words"),
    [
        ({}, "peft.dim", 8, "peft.dim has no effect on task pretrain"),
        ({}, "trainer.plugins.fp8_recipe", "delayed", "has no effect on fp32"),
        ({}, "optim.config.optimizer", "adan", "did you mean 'adam'?"),
        ({}, "model.config.recompute_granularity", "fully", "did you mean 'full'?"),
        ({}, "model.config.recompute_granularity", "full", "recomputation needs a GPU"),
        ({"gpus": 2}, "trainer.strategy.context_parallel_size", 2, "context parallelism needs a GPU"),
        ({"task": "lora"}, "peft.dropout", 0.1, "dropout needs a GPU"),
        ({"task": "lora"}, "peft.dim", 0, "peft.dim is 0: it must be 1 or more"),
        ({"task": "lora"}, "peft.target_modules", "linear_qkv,linear_qkv", "each matrix is named once"),
    ],
)
def test_what_would_do_nothing_or_end_a_started_job_is_refused(
    resolved: Resolve, wanted: dict[str, Any], key: str, value: object, words: str
) -> None:
    assert words in refusal(resolved, chosen={key: value}, **wanted).what


@pytest.mark.parametrize("scaling", ["mxfp8", "bananas"])
def test_fp8_is_scaled_as_the_gpu_can(resolved: Resolve, scaling: str) -> None:
    with pytest.raises(RequestError, match=scaling):
        resolved("llama31_70b", dtype="fp8", chosen={"trainer.plugins.fp8_recipe": scaling})


def test_every_choice_of_a_recipe_is_known_to_nemo() -> None:
    for recipe in Configs().recipes():
        for overlay in recipe.overlays if recipe.engine == "nemo" else []:
            for name in overlay.knobs.keys() & CHOICES.keys():
                assert overlay.knobs[name] in CHOICES[name]


# --- what a virtual environment has not -----------------------------------------------------------------


def in_a_virtual_environment(asked: Benchmark) -> Benchmark:
    """The same on a cluster of H100s without containers."""
    slurm = Slurm(shared_folders=["/"], hardware=["h100"])
    site = Site(name="dev", kind="slurm", title="", runtime="venv", source="", date="", slurm=slurm)
    return msgspec.structs.replace(asked, site=site)


def test_what_needs_transformer_engine_is_refused_with_the_flags_without_it(resolved: Resolve) -> None:
    asked = in_a_virtual_environment(resolved("llama31_70b", gpus=64, dtype="fp8"))
    (refusal,) = without_transformer_engine(asked, BACKEND)
    assert "no Transformer Engine" in refusal.what
    assert refusal.why.startswith("fp8, context parallelism, model.config.persist_layer_norm=true, ")
    flags = refusal.next_command.partition("; or ")[2].split()
    settings = dict(word.removeprefix("--set=").split("=") for word in flags if word.startswith("--set="))
    assert "--dtype=bf16" in flags
    assert settings.pop("trainer.strategy.context_parallel_size") == "1"
    without = in_a_virtual_environment(
        resolved("llama31_70b", {**settings, "trainer.strategy.context_parallel_size": 1}, gpus=64)
    )
    assert not [*without_transformer_engine(without, BACKEND)]


def test_a_run_on_the_cpu_sees_no_gpu(resolved: Resolve) -> None:
    assert environment(resolved())["CUDA_VISIBLE_DEVICES"] == ""
    assert "CUDA_VISIBLE_DEVICES" not in environment(resolved("llama31_70b", gpus=64))
