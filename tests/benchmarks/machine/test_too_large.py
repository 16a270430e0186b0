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


def ways(configs: Configs, asked: Request) -> list[str]:
    backend = find_backend(asked.backend)
    refusal = refused_here.of_memory(resolve(asked, configs, backend), configs, backend)
    return refusal.next_command.split("; or ") if refusal else []


@pytest.mark.parametrize(
    ("backend", "model", "hardware", "gpus", "offered"),
    [
        ("nemo", "llama32_1b", RTX, 1, ["--set=sequence_length=1024", "--gpus=4"]),
        ("jax", "llama32_1b", RTX, 1, ["--set=micro_batch_size=1", "--gpus=2"]),
        ("nemo", "llama31_8b", RTX, 1, []),
        ("nemo", "llama31_8b", "h100", 2, ["--gpus=4"]),
    ],
)
def test_offers(
    backend: str, model: str, hardware: MachineGpu | str, gpus: int, offered: list[str], configs: Configs
) -> None:
    name = hardware if isinstance(hardware, str) else "nvidia_geforce_rtx_4090"
    asked = Request(backend=backend, model=model, hardware=name, gpus=gpus)
    *found, plan = ways(configs, asked)
    assert found == offered
    assert plan.startswith(f"python launch/plan.py layouts --backend={backend} ")
    for way in offered:
        flag, _, value = way.removeprefix("--set=").partition("=")
        changes = {"gpus": int(value)} if flag == "--gpus" else {"settings": {flag: value}}
        assert not ways(configs, msgspec.structs.replace(asked, **changes))
