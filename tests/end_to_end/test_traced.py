"""Megatron's real training steps, traced here for their GPUs, and the memory formula compared with them.

Three recipes of different kinds and three small models with experts are traced in every run of the tests. All recipes
take more than an hour:

    python -m pytest -m every_program tests/end_to_end/test_traced.py
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from statistics import median
from typing import Any

import msgspec
import pytest

from benchmarks.compilation.traced import TracedProgram, TraceReport
from benchmarks.configs import Configs
from benchmarks.errors import RequestError
from benchmarks.model.flops import embedding_parameters, parameter_count
from benchmarks.request.resolve import Request, resolve, scales
from benchmarks.values import Benchmark, Parallelism
from launch.checks.compiling import compile_steps
from nemo_backend import BACKEND

pytestmark = pytest.mark.slow(seconds=60)

CONFIGS = Configs()
ENGINES = ("nemo", "bridge")
WEIGHTS = {"checkpoint.pretrained_checkpoint": "/weights"}


def benchmark_of(**asked: Any) -> Benchmark:
    settings = WEIGHTS if (asked["engine"], asked["task"]) == ("bridge", "lora") else {}
    return resolve(Request(backend="nemo", settings=settings, **asked), CONFIGS, BACKEND)


def traced(benchmarks: Mapping[str, Benchmark]) -> dict[str, TracedProgram]:
    found = {}
    for name, report in compile_steps(benchmarks, BACKEND, make_environment=True).items():
        assert isinstance(report, TraceReport), report
        found[name] = TracedProgram(benchmarks[name], BACKEND.storage(benchmarks[name]), report)
    return found


def errors_of(programs: Mapping[str, TracedProgram]) -> dict[str, float]:
    """How far the planned peak is from the traced one."""
    return {
        name: sum(kind.planned_bytes for kind in one.memory) / one.peak_bytes - 1 for name, one in programs.items()
    }


def test_three_kinds_of_recipes_are_traced() -> None:
    asked = {
        "context parallel": {"engine": "nemo", "model": "llama31_8b", "task": "pretrain", "dtype": "bf16"},
        "adapters in a pipeline": {"engine": "bridge", "model": "llama3_70b", "task": "lora", "dtype": "bf16"},
        "recomputed fp8": {"engine": "bridge", "model": "llama3_8b", "task": "pretrain", "dtype": "fp8"},
    }
    hardware = {"adapters in a pipeline": "b200"}
    recipes = {"context parallel": "nemo_llama31_8b_pretrain"}
    benchmarks = {
        name: benchmark_of(**one, hardware=hardware.get(name, "h100"), gpus=8, recipe=recipes.get(name))
        for name, one in asked.items()
    }
    programs = traced(benchmarks)
    assert {name: error for name, error in errors_of(programs).items() if abs(error) > 0.03} == {}
    flops = {one.layer: one for one in programs["recomputed fp8"].matmuls}
    assert flops["mlp.linear_fc2"].forward * 3 == pytest.approx(flops["mlp.linear_fc2"].planned)
    assert flops["mlp.linear_fc2"].recomputed == pytest.approx(flops["mlp.linear_fc2"].forward * 5 / 32)
    assert {"context", "data and context"} <= programs["context parallel"].bytes_by_axis.keys()
    assert "pipeline" in programs["adapters in a pipeline"].bytes_by_axis


def shrunk(name: str, *, layers: int, dense: int = 0, settings: dict[str, Any], **sizes: int) -> Benchmark:
    """Return the benchmark of a model of this kind with few layers and experts, on 32 GPUs."""
    change, gpus, micro_batches = msgspec.structs.replace, 32, 4
    base = benchmark_of(engine="bridge", model="llama3_8b", task="pretrain", dtype="bf16", hardware="h100", gpus=8)
    model = CONFIGS.model(name)
    assert model.experts is not None
    experts = change(model.experts, count=16, dense_layers=dense)
    data = gpus // sizes.get("pipeline", 1)
    return change(
        base,
        gpus=gpus,
        model=change(model, layers=layers, vocabulary_size=4096, experts=experts),
        parallelism=Parallelism(data=data, **sizes),
        batch=change(base.batch, gradient_accumulation=micro_batches, global_batch_size=micro_batches * data),
        settings=change(base.settings, knobs={"recipe": base.settings.knobs["recipe"], **settings}),
    )


def test_models_with_experts_are_traced() -> None:
    flex = {"model.moe_token_dispatcher_type": "flex"}
    latent = flex | {
        "model.recompute_granularity": "selective",
        "model.pipeline_model_parallel_layout": "Ett|t|t|mL",
        "model.recompute_modules": "[mla_up_proj,moe_act,layernorm]",
    }
    programs = traced(
        {
            "norms of queries and keys": shrunk("qwen3_30b_a3b", layers=2, settings=flex, expert=8),
            "latent attention": shrunk(
                "deepseek_v3", layers=4, dense=1, settings=latent, pipeline=2, virtual_pipeline=2, expert=16
            ),
            "sinks and biases": shrunk("gpt_oss_120b", layers=2, settings={}, expert=4),
        }
    )
    # Temporary tensors weigh more in two layers than in a whole model.
    assert {name: error for name, error in errors_of(programs).items() if abs(error) > 0.1} == {}
    for name, one in programs.items():
        model, share, batch = one.benchmark.model, one.benchmark.parallelism, one.benchmark.batch
        # The stage of a module for multi-token prediction has another copy of the embedding.
        copies = embedding_parameters(model) if model.mtp_modules else 0
        assert one.compiled.parameters == parameter_count(model) + copies, name
        flops = {row.layer: row for row in one.matmuls}
        assert flops["mlp.experts.linear_fc1"].forward * 3 == pytest.approx(flops["mlp.experts.linear_fc1"].planned)
        assert model.experts is not None
        rows = batch.micro_batch_size * batch.sequence_length * model.experts.active
        layers = one.fullest.layers - (1 if model.attention.latent else 0)  # the first layer is dense
        # Sent to the experts and back, in the forward and the backward pass.
        sent = 4 * rows * model.hidden_size * 2 * (share.expert - 1) / share.expert
        assert one.bytes_by_axis["expert"] == pytest.approx(sent * layers * batch.gradient_accumulation), name


def every_recipe() -> Iterator[tuple[str, Benchmark]]:
    """Each program once, at the recipe's default scale or its smallest on other hardware."""
    seen = set()
    for recipe in CONFIGS.recipes():
        for hardware, dtypes in (
            recipe.dtypes.items() if recipe.engine in ENGINES and "*" not in recipe.dtypes else ()
        ):
            usual = hardware == recipe.defaults.hardware
            gpus = recipe.defaults.gpus if usual else min(scales(recipe, CONFIGS.hardware(hardware)))
            place = {"engine": recipe.engine, "task": recipe.task, "hardware": hardware, "gpus": gpus}
            for dtype, model in ((dtype, model) for dtype in dtypes for model in recipe.models):
                benchmark = benchmark_of(**place, model=model, dtype=dtype, recipe=recipe.name)
                try:
                    job = BACKEND.compile_job("", benchmark)
                except RequestError:  # Megatron FSDP
                    continue
                key = msgspec.json.encode(job)
                if key not in seen:
                    seen.add(key)
                    yield f"{recipe.name} {hardware} {dtype} {model} {gpus}", benchmark


@pytest.mark.every_program
def test_the_plan_of_every_recipe_is_near_its_trace(tmp_path: Path) -> None:
    found = errors_of(traced(dict(every_recipe())))
    (tmp_path / "errors.json").write_bytes(msgspec.json.encode(found))
    assert max(map(abs, found.values())) < 0.08, found
    assert median(map(abs, found.values())) < 0.03, found
