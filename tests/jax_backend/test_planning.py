"""Plans of MaxText runs: arguments, environment, tasks; and whole plans as recorded in golden/.

The golden plans are what a dry run shows. After an intended change, record them again and read the diff:

    STEPMARK_RECORD_GOLDEN=1 python -m pytest tests/jax_backend/test_planning.py
"""

from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st

from benchmarks.errors import RequestError
from benchmarks.model.plan_text import plan_text
from benchmarks.request.refusals import without_transformer_engine
from benchmarks.values import Benchmark, Parallelism, Site, Slurm, changed_benchmark
from jax_backend import BACKEND
from jax_backend.planning import between_nodes, maxtext_argv, refusals
from tests.jax_backend import asked
from tests.jax_backend.asked import CONFIGS, each, refusal, resolved
from tests.recorded import assert_recorded

GOLDEN = Path(__file__).parent / "golden"


def settings_of(benchmark: Benchmark) -> dict[str, str]:
    return asked.settings_of(BACKEND.plan(benchmark).phases[-1].command)


# --- golden -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "model", "wanted"),
    [
        ("llama2_70b_fp8_512", "llama2_70b", {"dtype": "fp8", "hardware": "h100", "gpus": 512}),
        ("llama32_1b_bf16_1", "llama32_1b", {"dtype": "bf16", "hardware": "h100", "gpus": 1}),
        ("llama3_tiny_lora", "llama3_tiny", {"task": "lora"}),
    ],
)
def test_the_plan_is_as_recorded(name: str, model: str, wanted: dict[str, Any]) -> None:
    benchmark = resolved(model, **wanted)
    text = plan_text(benchmark, BACKEND.plan(benchmark), BACKEND.storage(benchmark)) + "\n"
    assert_recorded(text, GOLDEN / f"{name}.txt")


# --- arguments ----------------------------------------------------------------------------------------


def test_the_request_reaches_maxtext() -> None:
    found = settings_of(resolved(chosen={"sequence_length": "64", "gradient_accumulation": "3"}, gpus=8, steps=7))
    assert (found["steps"], found["max_target_length"]) == ("7", "64")
    assert (found["per_device_batch_size"], found["gradient_accumulation_steps"]) == ("2", "3")
    assert (found["ici_fsdp_parallelism"], found["dcn_data_parallelism"]) == ("8", "1")
    assert settings_of(resolved(chosen={"scan_layers": "False"}))["scan_layers"] == "false"


def global_batch_of_maxtext(found: dict[str, str], devices: int) -> int:
    """MaxText 0.2.5, configs/types.py calculate_global_batch_sizes: what it trains on a step."""
    return int(devices * float(found["per_device_batch_size"])) * int(found["gradient_accumulation_steps"])


@examples(max_examples=300, deadline=None)
@given(
    model=st.sampled_from(["llama2_tiny", "llama2_13b", "llama2_7b"]),
    fsdp=st.sampled_from([1, 2, 4, 8, 5, 16]),
    data=st.integers(1, 12),
    tensor=st.sampled_from([1, 2, 4, 5, 8, 10, 20]),
    context=st.sampled_from([1, 2, 4, 8]),
    micro=st.integers(1, 9),
    accumulation=st.integers(1, 5),
)
def test_maxtext_trains_on_the_global_batch_of_the_benchmark(
    model: str, fsdp: int, data: int, tensor: int, context: int, micro: int, accumulation: int
) -> None:
    chosen = {
        "ici_fsdp_parallelism": str(fsdp),
        "ici_data_parallelism": str(data),
        "ici_tensor_parallelism": str(tensor),
        "ici_context_parallelism": str(context),
        "micro_batch_size": str(micro),
        "gradient_accumulation": str(accumulation),
    }
    gpus = fsdp * data * tensor * context
    try:
        benchmark = resolved(model, chosen, gpus=gpus)
    except RequestError:
        return  # not divisible
    assert benchmark.batch.global_batch_size == micro * accumulation * fsdp * data
    assert global_batch_of_maxtext(settings_of(benchmark), gpus) == benchmark.batch.global_batch_size


# --- the mesh -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "share",
    [
        Parallelism(fsdp=64),
        Parallelism(fsdp=16, data=4),
        Parallelism(tensor=8, fsdp=8),
        Parallelism(tensor=2, context=2, fsdp=16),
        Parallelism(data=64),
        Parallelism(fsdp=64, expert=8),
        Parallelism(fsdp=32, expert=16, data=2),
    ],
)
def test_settings_make_the_layout_that_was_meant(share: Parallelism) -> None:
    settings = BACKEND.layout_settings_for("maxtext", share, 64, CONFIGS.hardware("h100"))
    assert settings is not None
    assert BACKEND.parallelism(settings, 64) == share
    assert between_nodes(settings) == 8


@each("layouts", "share", "gpus", "hardware", "settings")
def test_settings_of_a_layout_are_none_where_it_has_none(
    share: dict[str, int], gpus: int, hardware: str, settings: dict[str, int] | None
) -> None:
    found = BACKEND.layout_settings_for("maxtext", Parallelism(**share), gpus, CONFIGS.hardware(hardware))
    assert found == settings


# --- experts --------------------------------------------------------------------------------------------


@each("programs_of_experts", "asked", "settings")
def test_the_device_and_the_layout_choose_the_program_of_experts(
    asked: dict[str, Any], settings: dict[str, str]
) -> None:
    found = settings_of(resolved(**asked))
    assert {name: found[name] for name in settings} == settings


@each("refusals_of_experts", "asked", "words", "next")
def test_what_would_train_experts_slowly_or_not_at_all_is_refused(
    asked: dict[str, Any], words: str, next: str
) -> None:
    refused = refusal(**asked)
    assert words in refused.what
    assert refused.next_command == next


def test_tiny_experts_have_the_dimensions_of_their_file() -> None:
    deepseek, oss = settings_of(resolved("deepseek_tiny")), settings_of(resolved("gpt_oss_tiny"))
    names = ("num_experts", "num_experts_per_tok", "base_moe_mlp_dim", "shared_experts", "first_num_dense_layers")
    assert [deepseek[name] for name in names] == ["8", "2", "32", "1", "1"]
    names = ("q_lora_rank", "kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")
    assert [deepseek[name] for name in names] == ["32", "16", "16", "8", "16"]
    assert (oss["sliding_window_size"], oss["num_experts"]) == ("32", "8")
    assert "q_lora_rank" not in oss


# --- environment --------------------------------------------------------------------------------------


# --- rematerialisation --------------------------------------------------------------------------------


def made_again(chosen: dict[str, str], **wanted: Any) -> frozenset[str] | None:
    found = BACKEND.storage(resolved(chosen=chosen, **wanted)).recompute
    assert found is None or found.layers is None
    return found.matmuls if found else None


@each("recomputed", "set", "again")
def test_what_a_policy_computes_again(set: dict[str, str], again: list[str]) -> None:
    assert made_again(set) == {*again}


def test_only_a_kernel_that_names_its_result_can_keep_it() -> None:
    chosen, gpu = {"remat_policy": "minimal_with_context"}, {"model": "llama2_70b", "hardware": "h100"}
    assert made_again(chosen, **gpu) == set()  # Transformer Engine's
    assert made_again(chosen | {"attention": "cudnn_flash_jax"}, **gpu) == {"context"}
    assert made_again({"remat_policy": "minimal"}, **gpu) == {"context"}
    # The recipes' own: only the bf16 one keeps the output of a layer, which is not read again.
    assert (
        made_again({}, dtype="bf16", **gpu) == made_again({}, dtype="fp8", **gpu) == {"mlpwi_0", "mlpwi_1", "context"}
    )


@pytest.mark.parametrize(
    ("name", "value", "hint"),
    [
        ("remat_policy", "save_out_prj", "did you mean 'save_out_proj'?"),
        ("remat_policy", "bogus", "valid: custom, full, "),
        ("opt_type", "sgdd", "did you mean 'sgd'?"),
        ("grad_dtype", "float23", "did you mean 'float32'?"),
    ],
)
def test_a_text_that_maxtext_does_not_know_is_refused(name: str, value: str, hint: str) -> None:
    refused = refusal("llama2_70b", {name: value})
    assert f"{name}={value}: {hint}" in refused.what
    assert refused.where == f"--set={name}"


# --- types, and the optimizer -------------------------------------------------------------------------


@each("bytes_of_a_weight", "set", "bytes")
def test_bytes_of_a_weight_and_what_goes_with_it(set: dict[str, str], bytes: list[int]) -> None:
    found = BACKEND.storage(resolved("llama2_70b", set)).numbers
    assert [found.weight_bytes, found.gradient_bytes, found.optimizer_bytes] == bytes
    assert found.reduced_bytes == 2


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("opt_type", "muon"),
        ("optimizer_memory_host_offload", "true"),
        ("cast_logits_to_fp32", "false"),
        ("num_vocab_tiling", "4"),
        ("decoder_layer_input", "offload"),
    ],
)
def test_what_changes_memory_and_is_not_known_is_named(name: str, value: str) -> None:
    assert BACKEND.storage(resolved("llama2_70b", {name: value})).uncounted == (f"{name}={value}",)


def test_maxtext_gives_the_norm_that_the_worker_reads_with_an_offloaded_optimizer() -> None:
    offloaded = {"optimizer_memory_host_offload": "true", "log_step_diagnostics": "false"}
    assert "log_step_diagnostics=true" in maxtext_argv(resolved("llama2_70b", offloaded))
    assert not any("log_step_diagnostics" in word for word in maxtext_argv(resolved("llama2_70b", {})))


def test_micro_steps_that_xla_unrolls_are_named() -> None:
    """For Llama 2 70B on 64 H100s with two of them, the plan counts 68 GB and the compiled program holds 97."""
    for model, named in (("llama2_70b", True), ("llama31_8b", False)):
        found = BACKEND.storage(resolved(model, {"gradient_accumulation": "2"}, dtype="bf16"))
        assert bool(found.uncounted) is named


# --- refusals -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"attention": "flash"}, "attention=flash does not run on a CPU"),
        ({"attention": "cudnn_flash_te"}, "does not run on a CPU"),
        # MaxText: "DCN parallelism requested but only one slice available."
        ({"ici_fsdp_parallelism": 1, "dcn_fsdp_parallelism": 2}, "among 2 nodes, but MaxText"),
    ],
)
def test_what_maxtext_would_refuse_is_refused(changed: dict[str, Any], words: str) -> None:
    benchmark = resolved(gpus=2)
    (error,) = refusals(changed_benchmark(benchmark, knobs={**benchmark.settings.knobs, **changed}))
    assert words in error.what


def test_what_needs_transformer_engine_is_refused_where_it_cannot_be() -> None:
    """The recipe on a cluster of H100s without containers, in one with them, and on this machine."""
    slurm = Slurm(shared_folders=["/"], hardware=["h100"])
    site = Site(name="dev", kind="slurm", title="", runtime="venv", source="", date="", slurm=slurm)
    asked = msgspec.structs.replace(resolved("llama2_70b", gpus=64, dtype="bf16"), site=site)
    (found,) = without_transformer_engine(asked, BACKEND)
    assert "needs Transformer Engine" in found.what
    assert found.next_command.endswith("--set=attention=cudnn_flash_jax")
    assert "runtime container" in found.why
    without = changed_benchmark(asked, knobs={**asked.settings.knobs, "attention": "cudnn_flash_jax"})
    assert not [*without_transformer_engine(without, BACKEND)]
    quantized = changed_benchmark(
        without, knobs={**without.settings.knobs, "quantization": "te_fp8_delayedscaling"}, site=CONFIGS.site("local")
    )
    (found,) = without_transformer_engine(quantized, BACKEND)
    assert "quantization=te_fp8_delayedscaling" in found.why
    in_containers = msgspec.structs.replace(site, runtime="container")
    for place in (site, in_containers, CONFIGS.site("local")):
        assert BACKEND.refusals(msgspec.structs.replace(asked, site=place)) == []
    chosen = {"attention": "cudnn_flash_jax"}
    own_fp8 = msgspec.structs.replace(resolved("llama2_70b", chosen, gpus=64, dtype="fp8"), site=site)
    assert not [*without_transformer_engine(own_fp8, BACKEND)]
