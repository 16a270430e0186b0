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
from benchmarks.model.plan_text import plan_text
from benchmarks.request.refusals import without_transformer_engine
from benchmarks.request.resolve import RuntimeOptions
from benchmarks.values import Benchmark, Site, Slurm
from nemo_backend import BACKEND
from nemo_backend.planning import (
    FINE_TUNING_FILES,
)

CONFIGS = Configs()
GOLDEN = Path(__file__).parent / "golden"
Resolve = Callable[..., Benchmark]
PIPELINED = "trainer.strategy.virtual_pipeline_model_parallel_size"


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
    path = GOLDEN / f"nemo_{name}.txt"
    if os.environ.get("STEPMARK_RECORD_GOLDEN"):
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8")


def test_a_plan_says_where_attention_is_not_fused(resolved: Resolve) -> None:
    def notes(**wanted: Any) -> list[str]:
        return BACKEND.plan(resolved("llama32_1b", gpus=1, **wanted)).notes

    (note,) = notes(hardware="h100")
    assert "Megatron's own PyTorch matmuls" in note
    assert (
        notes(hardware="h100", dtype="fp8")
        == notes(hardware="h100", runs_in=RuntimeOptions(runtime="container"))
        == []
    )


# --- the backend and its engines --------------------------------------------------------------------------


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
            assert error.next_command.startswith(("--backend=", "--engine="))


# --- refusals ---------------------------------------------------------------------------------------------


def test_a_model_without_nemo_settings_is_refused(resolved: Resolve) -> None:
    benchmark = resolved()
    assert BACKEND.refusals(benchmark) == []
    model = msgspec.structs.replace(benchmark.model, backend_settings={"jax": {}})
    (error,) = BACKEND.refusals(msgspec.structs.replace(benchmark, model=model))
    assert error.where == "configs/models/llama3_tiny.yml: backend_settings.nemo"


def test_fine_tuning_reads_questions_answers_and_their_tokenizer(resolved: Resolve, tmp_path: Path) -> None:
    for name in FINE_TUNING_FILES:
        error = refusal(resolved, task="lora", data=str(tmp_path))
        assert (error.what, error.where) == (f"the folder has no {name}", f"--data={tmp_path}")
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    assert "cannot be read" in refusal(resolved, task="lora", data=str(tmp_path)).what
    tokenizer = tmp_path / "tokenizer" / "tokenizer.json"
    tokenizer.write_text('{"model": {"vocab": {"a": 512}}}')
    assert "513 tokens" in refusal(resolved, task="lora", data=str(tmp_path)).what
    tokenizer.write_text('{"model": {"vocab": {"a": 511}}, "added_tokens": []}')
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
    assert "no Transformer Engine" in refusal.what
    assert refusal.why.startswith("fp8, context parallelism, model.config.persist_layer_norm=true, ")
    flags = refusal.next_command.partition("; or ")[2].split()
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
