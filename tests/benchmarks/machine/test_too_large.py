"""What a refusal for want of memory offers: only what would fit."""

import msgspec
import pytest

from benchmarks.backend import find_backend
from benchmarks.configs import Configs
from benchmarks.machine import refusals as refused_here
from benchmarks.machine.machine_gpus import MachineGpu, made_row
from benchmarks.request.resolve import Request, resolve

RTX = MachineGpu(index=0, uuid="GPU-0", name="NVIDIA GeForce RTX 4090", memory_bytes=25_757_220_864, pci="0:0")


@pytest.fixture(scope="module")
def configs() -> Configs:
    found = Configs()
    found.learn(made_row([RTX] * 2, "560.35"))
    found.learn(msgspec.structs.replace(found.hardware("h200"), memory_gb=48.0))
    return found


def ways(configs: Configs, asked: Request, here: int = 2) -> list[str]:
    backend = find_backend(asked.backend)
    refusals = list(refused_here.of_memory(resolve(asked, configs, backend), configs, backend, here))
    return refusals[0].next_command.split("; or ") if refusals else []


PLAN = "python launch/plan.py layouts --backend=nemo --engine=nemo --model=llama31_8b --dtype=bf16"
OTHER = f"{PLAN} --hardware=h100 --gpus=2 --recipe=nemo_llama3_small_pretrain"


@pytest.mark.parametrize(
    ("backend", "model", "hardware", "gpus", "here", "offered"),
    [
        ("nemo", "llama32_1b", RTX, 1, 2, ["--set=sequence_length=1024", "on another machine, --gpus=4"]),
        ("nemo", "llama32_1b", RTX, 1, 4, ["--set=sequence_length=1024", "--gpus=4"]),
        ("jax", "llama32_1b", RTX, 1, 2, ["--set=micro_batch_size=1", "--gpus=2"]),
        ("nemo", "llama31_8b", RTX, 1, 2, ["GPUs with more memory than 25.8 GB"]),
        ("nemo", "llama31_8b", "h100", 2, 8, [OTHER, "--gpus=4"]),
    ],
)
def test_offers(
    backend: str, model: str, hardware: MachineGpu | str, gpus: int, here: int, offered: list[str], configs: Configs
) -> None:
    name = hardware if isinstance(hardware, str) else "nvidia_geforce_rtx_4090"
    asked = Request(backend=backend, model=model, hardware=name, gpus=gpus)
    assert ways(configs, asked, here) == offered
    for way in offered:
        flag, _, value = way.removeprefix("on another machine, ").removeprefix("--set=").partition("=")
        if flag == "--gpus":
            assert not ways(configs, msgspec.structs.replace(asked, gpus=int(value)))
        elif "python" not in flag and value:
            assert not ways(configs, msgspec.structs.replace(asked, settings={flag: value}))


def test_adapters_and_smaller_models_are_offered_where_nothing_else_fits(configs: Configs) -> None:
    asked = Request(backend="jax", model="llama32_3b", hardware="h200", gpus=1)
    assert ways(configs, asked, 1) == ["--task=lora", "--model=llama32_1b", "on another machine, --gpus=2"]
    for changes in ({"task": "lora"}, {"model": "llama32_1b"}):
        assert not ways(configs, msgspec.structs.replace(asked, **changes))


def test_a_layout_that_was_typed_is_left_out_with_more_gpus(configs: Configs) -> None:
    typed = {"ici_fsdp_parallelism": "1", "micro_batch_size": "1"}
    (way,) = ways(configs, Request(backend="jax", model="llama31_8b", hardware="h100", gpus=1, settings=typed), 8)
    assert way == "--gpus=2 without --set=ici_fsdp_parallelism"
