"""Every published row becomes the benchmark that it was; which of them fit their devices, and which cannot have."""

import pytest

from benchmarks.backend import find_backend
from benchmarks.errors import RequestError
from benchmarks.planning.bounds import bound
from benchmarks.planning.capacity import total_bytes, usable_bytes
from benchmarks.planning.published import as_benchmark
from benchmarks.references.references import Reference, read_references
from benchmarks.values import Benchmark
from tests.benchmarks.planned import CONFIGS, changed

ROWS = read_references(CONFIGS.root)
MAXTEXT = next(row for row in ROWS if row.engine == "maxtext")
# They kept less than their recipes do, or kept it in the host's memory, and did not publish what. MaxText's Llama 3
# has two sequences of 8192 a GPU.
TOO_LARGE = {
    ("maxtext", "llama3_70b", "TP1 PP1 CP1 FSDP128 MBS2"),
    ("maxtext", "llama3_70b", "TP1 PP1 CP1 FSDP256 MBS2"),
    ("bridge", "llama3_70b", "TP1 PP1 CP1 FSDP64 MBS2"),
    ("bridge", "llama3_70b", "TP1 PP4 CP1 MBS2"),
    ("bridge", "llama3_70b", "TP2 PP4 CP1 VP5 MBS2"),
    ("bridge", "llama31_405b", "TP2 PP1 CP1 FSDP64 MBS1"),
    ("bridge", "llama31_405b", "TP4 PP16 CP1 VP4 MBS1"),
}


def benchmark_of(row: Reference) -> Benchmark:
    return as_benchmark(row, CONFIGS, find_backend(row.backend))


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.name} {row.tag}")
def test_a_row_keeps_its_figures_is_slower_than_its_bound_and_fits(row: Reference) -> None:
    found = benchmark_of(row)
    assert (found.model.name, found.hardware.name, found.dtype) == (row.model, row.hardware, row.dtype)
    assert (found.gpus, found.parallelism) == (row.gpus, row.parallelism)
    assert (found.sequence_length, found.global_batch_size) == (row.sequence_length, row.global_batch_size)
    assert found.engine == row.engine
    replicas = row.data * row.fsdp
    assert found.micro_batch_size * found.gradient_accumulation * replicas == row.global_batch_size
    assert found.nodes == max(1, row.gpus // found.hardware.devices_per_node)
    storage = find_backend(row.backend).storage(found)
    least = bound(found, storage)
    if row.hardware == "gb300":
        assert "nobody measured" in least.unknown[0]
    else:
        assert (least.unknown, least.seconds is None) == ([], False)
        assert 0.45 < (least.seconds or 0) / row.seconds < 0.8
    usable = usable_bytes(found, storage)
    assert usable is not None
    layout = f"{row.parallelism.short().split(' DP')[0]} MBS{row.micro_batch_size}"
    assert (total_bytes(found, storage) > usable) == ((row.engine, row.model, layout) in TOO_LARGE)


def test_a_row_that_no_recipe_comes_near_is_refused() -> None:
    with pytest.raises(RequestError, match="no recipe of maxtext for lora fp8 on gb200 or its like"):
        benchmark_of(changed(MAXTEXT, task="lora", dtype="fp8", hardware="gb200"))
