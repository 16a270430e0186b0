"""Which settings a step is compiled with on a machine without its hardware, and what the report says of that."""

import json

from benchmarks.configs import Configs
from benchmarks.resolve import Request, resolve
from benchmarks.values import Benchmark
from jax_backend import BACKEND, compiling

CONFIGS = Configs()


def benchmark(model: str = "llama2_70b", **asked: object) -> Benchmark:
    return resolve(Request(backend="jax", model=model, **asked), CONFIGS, BACKEND)  # type: ignore[arg-type]


def settings_of(asked: Benchmark) -> dict[str, str]:
    command = compiling.program(asked).command
    return dict(word.split("=", 1) for word in command[command.index("--") + 1 :])


def test_the_axes_between_nodes_are_folded_into_one_node() -> None:
    settings = settings_of(benchmark(gpus=512))
    assert settings["ici_fsdp_parallelism"] == "128"
    assert settings["ici_data_parallelism"] == "4"
    assert settings["dcn_fsdp_parallelism"] == settings["dcn_data_parallelism"] == "1"


def test_what_a_cpu_lacks_is_replaced_and_said() -> None:
    asked = benchmark(gpus=64)
    settings, said = settings_of(asked), compiling.replaced(asked)
    assert (settings["hardware"], settings["attention"]) == ("cpu", "dot_product")
    assert set(said) == {"attention", "hardware", "dcn_*", "xla_flags"}
    assert "cudnn_flash_te" in said["attention"]
    command = compiling.program(asked).command
    assert json.loads(next(word for word in command if word.startswith("--replaced=")).partition("=")[2]) == said
    assert "--devices=64" in command


def test_everything_else_is_compiled_as_it_is_run() -> None:
    settings = settings_of(benchmark(gpus=64))
    assert settings["remat_policy"] == "custom"
    assert settings["per_device_batch_size"] == "2"
    assert settings["model_name"] == "llama2-70b"


def test_no_flag_of_a_gpu_reaches_the_compiler() -> None:
    assert "XLA_FLAGS" not in compiling.program(benchmark(gpus=64)).environment


def test_fp8_on_a_cpu_is_said() -> None:
    assert compiling.notes(benchmark(gpus=64, dtype="fp8")) == [compiling.FP8_NOTE]
    assert compiling.notes(benchmark(gpus=64, dtype="bf16")) == []


def test_a_cpu_s_own_benchmark_is_compiled_as_it_is() -> None:
    assert compiling.replaced(benchmark("llama2_tiny")) == {}
