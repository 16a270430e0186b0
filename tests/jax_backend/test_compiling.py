"""The compilation of a step on a machine without its hardware, and its report."""

import re

import pytest

from benchmarks.errors import RequestError
from jax_backend import compiling, planning
from jax_backend.phases import CUDA_LOCK
from tests.jax_backend.asked import CONFIGS, each, refusal, resolved, settings_of


def test_a_gpu_s_program_has_the_plan_s_settings_and_flags_but_for_transformer_engine() -> None:
    asked = resolved("llama2_70b", gpus=512)
    job = compiling.job("as planned", asked)
    planned = settings_of(["--", *planning.maxtext_argv(asked)])
    compiled = settings_of(["--", *job.settings])
    assert compiled == {**planned, "attention": "cudnn_flash_jax", "base_output_directory": "./maxtext"}
    assert job.flags == planning.xla_flags_text(asked.settings.xla_flags)
    assert (job.devices, job.nodes) == (512, 64)
    assert "cudnn_flash_te" in job.replaced["attention"]


def test_a_context_axis_is_refused() -> None:
    axes = {"ici_context_parallelism": "8", "ici_fsdp_parallelism": "1"}
    with pytest.raises(RequestError, match="context axis") as refused:
        compiling.job("as planned", resolved("llama2_70b", axes, gpus=64))
    assert "Transformer Engine" in refused.value.why


def test_the_compiler_gets_the_device_and_the_locked_versions() -> None:
    lock = dict(re.findall(r"(?m)^(nvidia-\S+)==(\S+)", CUDA_LOCK.read_text()))
    cudnn = lock["nvidia-cudnn-cu12"].rpartition(".")[0]
    major, minor, patch = cudnn.split(".")
    text = compiling.job("as planned", resolved("llama2_70b", gpus=64)).target
    assert "cuda_compute_capability { major: 9 minor: 0 feature_extension: ACCELERATED_FEATURES }" in text
    assert 'device_description_str: "NVIDIA H100 80GB HBM3"' in text
    assert f'dnn_version: "{cudnn}"' in text
    assert f"dnn_version_info {{ major: {major} minor: {minor} patch: {patch} }}" in text
    cuda = lock["nvidia-cuda-runtime-cu12"].rpartition(".")[0]
    assert f'runtime_version: "{cuda}.0" compile_time_toolkit_version: "{cuda}.0"' in text


@pytest.mark.parametrize("name", ["a100", "b200", "b300", "gb200", "gb300", "h100", "h100_pcie", "h200"])
def test_a_target_is_its_hardware(name: str) -> None:
    """Its memory is counted otherwise: in powers of two, or without what the driver keeps."""
    hardware = CONFIGS.hardware(name)
    facts = hardware.compile_target
    assert facts is not None
    assert facts.memory_bytes / 1e9 == pytest.approx(hardware.memory_gb, rel=0.08)
    assert f"device_memory_size: {facts.memory_bytes} " in compiling.target(hardware)
    rate = hardware.rates.get("memory")
    assert rate is None or facts.memory_bytes_per_second / 1e9 == pytest.approx(rate.gb_s, rel=0.05)


@pytest.mark.parametrize("hardware", ["cpu", "mi300x"])
def test_a_device_without_a_target_is_refused(hardware: str) -> None:
    with pytest.raises(RequestError, match="XLA cannot compile for") as refused:
        compiling.job("as planned", resolved("llama3_tiny", hardware=hardware, gpus=4))
    assert "--hardware=h100" in refused.value.next_command


@each("layouts_of_64_h100", "set", "nodes", "what")
def test_more_gpus_in_a_node_than_it_has_never_reach_the_compiler(
    set: dict[str, str], nodes: int | None, what: str
) -> None:
    assert what in refusal("llama2_70b", set, hardware="h100", gpus=64, nodes=nodes).what
