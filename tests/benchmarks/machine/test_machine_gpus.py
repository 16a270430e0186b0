"""Which GPUs of a machine a program of CUDA sees, and what a run gets of them."""

import msgspec
import pytest

from benchmarks.backend import find_backend
from benchmarks.configs import Configs
from benchmarks.machine import machine_gpus
from benchmarks.machine.machine_gpus import Busy, MachineGpu, MachineGpus
from benchmarks.request.resolve import Request, like, resolve
from benchmarks.values import Benchmark, Peak

H100, RTX = "NVIDIA H100 80GB HBM3", "NVIDIA GeForce RTX 4090"
CONFIGS = Configs()
NEMO = find_backend("nemo")


def gpu(index: int, name: str = H100, **fields: object) -> MachineGpu:
    made = MachineGpu(index=index, uuid=f"GPU-{index}0", name=name, memory_bytes=80 * 10**9, pci=f"0:{index}")
    return msgspec.structs.replace(made, **fields)


FOUR = [gpu(index) for index in range(4)]


@pytest.mark.parametrize(
    ("variable", "indices", "words"),
    [
        (None, [0, 1, 2, 3], ""),
        ("2,0", [2, 0], "selects 2 of 4"),
        ("GPU-3", [3], "selects 1 of 4"),
        ("1,7,2", [], "'7' does not name exactly one"),
        ("", [], "does not name exactly one"),
        ("-1", [], "does not name exactly one"),
        ("11", [], "'11' does not name exactly one"),
        ("GPU-", [], "does not name exactly one"),
        ("1,1", [], "'1' does not name exactly one"),
    ],
)
def test_the_variable_is_read_as_cuda_reads_it(variable: str | None, indices: list[int], words: str) -> None:
    found = machine_gpus.visible(FOUR, variable, False)
    assert [one.index for one in found.gpus] == indices
    assert words in (found.hidden if found.gpus else found.why_none)
    assert bool(found.why_none) == (not indices)


def test_a_number_says_nothing_where_kinds_differ_and_cuda_counts_the_fastest_first() -> None:
    mixed = [gpu(0, RTX), gpu(1)]
    assert "CUDA_DEVICE_ORDER=PCI_BUS_ID" in machine_gpus.visible(mixed, "1", False).why_none
    assert machine_gpus.visible(mixed, "1", True).gpus == (mixed[1],)
    assert machine_gpus.visible(mixed, "GPU-1", False).gpus == (mixed[1],)


def benchmark(gpus: int = 1) -> Benchmark:
    return resolve(Request(backend="nemo", model="llama3_tiny", hardware="h100", gpus=gpus), CONFIGS, NEMO)


def test_idle_gpus_are_given_before_busy_ones_and_all_by_name() -> None:
    machine = MachineGpus(gpus=(gpu(0, busy=(Busy(7, "python", 10**9),)), *FOUR[1:], gpu(4, RTX)))
    assert [one.index for one in machine_gpus.chosen(benchmark(2), machine)] == [1, 2]
    given = machine_gpus.chosen(benchmark(4), machine)
    assert [one.index for one in given] == [0, 1, 2, 3]
    assert "GPU 0: process 7 (python) holds 1.0 GB" in machine_gpus.busy_notes(given)[0]
    (phase,) = machine_gpus.on_gpus(NEMO.plan(benchmark(2)), given[1:3]).phases
    assert phase.environment["CUDA_VISIBLE_DEVICES"] == "GPU-10,GPU-20"


def test_a_device_without_a_row_takes_the_recipes_of_an_a100_and_has_no_fp8() -> None:
    row = machine_gpus.made_row([gpu(0, RTX, memory_bytes=25_757_220_864)] * 8, "560.35")
    assert (row.name, row.memory_gb, row.peaks) == ("nvidia_geforce_rtx_4090", 25.8, {})
    configs = Configs()
    configs.register_hardware(row)
    found = resolve(
        Request(backend="jax", model="llama2_70b", hardware=row.name, gpus=64), configs, find_backend("jax")
    )
    assert (found.dtype, found.hardware) == ("bf16", row)


def test_a_device_that_no_recipe_names_takes_those_of_an_a100_but_not_on_a_cluster() -> None:
    made = machine_gpus.made_row([gpu(0, RTX, memory_bytes=25_757_220_864)] * 2, "560.35")
    row = msgspec.structs.replace(made, peaks={"bf16": Peak(165.2, "a datasheet")})
    configs = Configs()
    configs.register_hardware(row)
    asked = Request(backend="jax", model="llama32_1b")
    machine = MachineGpus(gpus=(gpu(0, RTX), gpu(1, RTX)))
    settled = machine_gpus.with_gpus(asked, machine, [row], configs, find_backend("jax"))
    assert (settled.hardware, settled.gpus) == (row.name, 2)
    found = resolve(settled, configs, find_backend("jax"))
    assert (found.recipe.name, found.dtype) == ("jax_llama3_small_pretrain", "bf16")
    on_cluster, here = (configs.site(name) for name in ("example_venv", "local"))
    assert [like(row, configs, site) for site in (on_cluster, here)] == [row.name, "a100"]


def test_a_request_takes_the_largest_layout_that_the_gpus_allow() -> None:
    row, machine = CONFIGS.hardware("h100"), MachineGpus(gpus=tuple(gpu(index) for index in range(7)))
    asked = Request(backend="nemo", model="llama32_1b")
    settled = machine_gpus.with_gpus(asked, machine, [row], CONFIGS, NEMO)
    text = machine_gpus.choice_text(asked, settled, machine)
    assert text == "this machine has 7 x NVIDIA H100 80GB HBM3: --hardware=h100 --gpus=4"
