"""What a step is compiled with on a machine without its hardware, and what the report says of that."""

import json

import pytest

from benchmarks.errors import RequestError
from benchmarks.values import Benchmark
from jax_backend import compiling, planning
from tests.jax_backend.asked import CONFIGS, resolved, settings_of


def option(asked: Benchmark, name: str) -> str | None:
    options = (word.partition("=") for word in compiling.program(asked).command)
    return next((value for key, _, value in options if key == f"--{name}"), None)


def test_a_gpu_s_program_has_the_plan_s_settings_and_flags_but_for_transformer_engine() -> None:
    asked = resolved("llama2_70b", gpus=512)
    program = compiling.program(asked)
    planned = settings_of(["--", *planning.maxtext_argv(asked)])
    assert settings_of(program.command) == {**planned, "attention": "cudnn_flash_jax"}
    assert program.environment["XLA_FLAGS"] == planning.xla_flags_text(asked.xla_flags)
    assert (option(asked, "devices"), option(asked, "nodes")) == ("512", "64")
    assert "cudnn_flash_te" in json.loads(option(asked, "replaced") or "")["attention"]
    assert program.platform == "cuda"


def test_the_compiler_is_told_of_the_device() -> None:
    text = option(resolved("llama2_70b", gpus=64), "target") or ""
    assert "core_count: 132" in text
    assert "cuda_compute_capability { major: 9 feature_extension: ACCELERATED_FEATURES }" in text
    assert 'device_description_str: "NVIDIA H100 80GB HBM3"' in text
    assert "dnn_version_info { major: 9 minor: 28 patch: 0 }" in text


@pytest.mark.parametrize("name", compiling.targets())
def test_a_target_has_the_memory_of_its_hardware(name: str) -> None:
    hardware = CONFIGS.hardware(name)
    words = compiling.target(hardware).replace("\n", " ").split()
    memory = int(words[words.index("device_memory_size:") + 1])
    assert memory / 1e9 == pytest.approx(hardware.memory_gb, rel=0.08)  # decimal GB, and what the driver leaves


def test_a_device_that_nothing_is_known_of_is_refused_and_a_cpu_s_is_compiled_as_it_is() -> None:
    with pytest.raises(RequestError, match="not among the GPUs that a program can be compiled for") as refused:
        compiling.program(resolved("llama3_tiny", hardware="tpu_v5p", gpus=4))
    assert "h100" in refused.value.why
    asked = resolved()
    assert (option(asked, "replaced"), option(asked, "target")) == ("{}", None)
    assert compiling.program(asked).platform == "cpu"
