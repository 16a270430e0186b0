"""What each axis moves, by hand."""

import pytest

from benchmarks.model.traffic import Traffic, traffic
from benchmarks.values import Benchmark
from tests.benchmarks.planned import changed, laid_out, recipe, storage_of

PARAMETERS = 68_976_648_192
FULLEST_STAGE = 20 * 855_654_400 + 128256 * 8192 + 8192  # of Llama 3.1 70B: layers, head and norm
MAXTEXT = recipe()  # 128 sequences of 4096
MEGATRON = recipe("nemo", "llama31_70b", hardware="h100")  # 128 of 8192, TP4 PP4 CP2 VP5 DP2


def moved(benchmark: Benchmark) -> dict[str, Traffic]:
    return {one.axis: one for one in traffic(benchmark, storage_of(benchmark))}


def test_fsdp_moves_the_weights_three_times() -> None:
    found = moved(MAXTEXT)
    assert found.keys() == {"fsdp"}
    whole = 3 * 2 * PARAMETERS
    assert found["fsdp"].node_bytes == pytest.approx(whole * 7 / 8)
    assert found["fsdp"].network_bytes == pytest.approx(whole / 8 * 7 / 8)


def test_fsdp_gathers_a_device_s_share_of_the_experts() -> None:
    experts = recipe("jax", "qwen3_30b_a3b", hardware="h100", gpus=64)  # expert 8 x fsdp 8
    routed = 48 * 128 * 3 * 2048 * 768
    rest = 30_532_122_624 - routed
    for share in ({"expert": 8, "fsdp": 64}, {"expert": 16, "fsdp": 16, "tensor": 4}):
        found = moved(laid_out(experts, **share))["fsdp"]
        gathered = (rest + routed / share["expert"]) / share.get("tensor", 1)
        nodes = share["fsdp"] * share.get("tensor", 1) // 8
        inside = share["fsdp"] // nodes
        assert found.network_bytes == pytest.approx(3 * 2 * gathered / inside * (nodes - 1) / nodes)


def test_the_data_axis_moves_gradients_of_its_share() -> None:
    found = moved(laid_out(MAXTEXT, fsdp=64, data=4))["data"]
    assert found.node_bytes == 0
    assert found.network_bytes == pytest.approx(2 * 2 * PARAMETERS / 64 * 3 / 4)


def test_tensor_moves_activations_eight_times_a_layer() -> None:
    activation = 128 / 2 * 8192 / 2 * 8192 * 2  # sequences of a replica, tokens of a context share, width, bytes
    assert moved(MEGATRON)["tensor"].node_bytes == pytest.approx(8 * 80 / 4 * activation * 3 / 4)
    assert moved(MEGATRON)["tensor"].network_bytes == 0


def test_context_moves_keys_and_values_three_times() -> None:
    whole = 128 / 2 * 8192 * (2 * 8 * 128 / 4) * 2
    assert moved(MEGATRON)["context"].node_bytes == pytest.approx(3 * 80 / 4 * whole / 2)


def test_a_pipeline_hands_on_activations_and_gradients_for_each_piece() -> None:
    activation = 128 / 2 * 8192 / 2 * 8192 * 2
    assert moved(MEGATRON)["pipeline"].network_bytes == pytest.approx(2 * 5 * activation / 4)
    within = moved(laid_out(MEGATRON, tensor=2, pipeline=4))["pipeline"]
    assert (within.network_bytes, within.node_bytes > 0) == (0, True)


def test_context_ranks_are_replicas_of_the_weights() -> None:
    gradients = 2 * 2 * FULLEST_STAGE / 4  # a tensor group shares a stage
    found = moved(MEGATRON)["data"]
    assert found.node_bytes == pytest.approx(gradients / 2)  # context 2 within the node
    assert found.network_bytes == pytest.approx(gradients / 2 / 2)  # data 2 between nodes


def test_gradients_travel_as_wide_as_they_are_summed_and_weights_come_back() -> None:
    """A distributed optimizer hands back new weights; without one, the summed gradients come back."""
    in_float32 = recipe(
        "nemo", "llama31_70b", settings={"trainer.plugins.grad_reduce_in_fp32": "true"}, hardware="h100"
    )
    moved_twice, moved_wide = moved(MEGATRON)["data"], moved(in_float32)["data"]
    assert moved_wide.network_bytes == pytest.approx((4 + 2) / (2 + 2) * moved_twice.network_bytes)
    assert "weights returned, 2 bytes" in moved_wide.formula
    assert "2 bytes each way" in moved_twice.formula
    alone = {"optim.config.use_distributed_optimizer": "false", "trainer.plugins.grad_reduce_in_fp32": "true"}
    summed = recipe("nemo", "llama31_70b", settings=alone, hardware="h100")
    assert moved(summed)["data"].network_bytes == pytest.approx(2 * moved_twice.network_bytes)
    assert "4 bytes each way" in moved(summed)["data"].formula


def test_fp8_matrices_of_layers_travel_in_one_byte() -> None:
    """As compiled (docs/measurements/2026-11-23-compiled.md): 271.6 GB are sent instead of 406.4."""
    found = moved(recipe(dtype="fp8"))["fsdp"]
    matrices = 80 * 855_638_016
    whole = 2 * (2 * (PARAMETERS - matrices) + matrices) + 2 * PARAMETERS
    assert found.node_bytes == pytest.approx(whole * 7 / 8)
    assert "1 for gathered layer matrices" in found.formula
    assert whole * 63 / 64 == pytest.approx(271.6e9, rel=0.01)
    assert moved(changed(MEGATRON, dtype="fp8")).keys() == moved(MEGATRON).keys()


@pytest.mark.parametrize(("settings", "gigabytes"), [({}, 581.9), ({"remat_policy": "full"}, 678.6)])
def test_what_the_framework_really_moves_is_what_its_program_holds(
    settings: dict[str, str], gigabytes: float
) -> None:
    """TP4 FSDP16 compiled by plan.py compile: the bound counts the least, the estimate the program's."""
    found = moved(laid_out(recipe(settings=settings), tensor=4, fsdp=16))["tensor"]
    assert found.node_bytes == pytest.approx(257.7e9, rel=1e-3)
    assert found.actual_factor * found.node_bytes == pytest.approx(gigabytes * 1e9, rel=0.01)
    assert moved(MEGATRON)["tensor"].actual_factor == 1
