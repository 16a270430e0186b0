"""A compiled step beside the formulas, on reports of Llama 2 70B as MaxText 0.2.5 was really compiled."""

from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
import pytest

from benchmarks.compilation import compiled_report
from benchmarks.compilation.compiled import Collective, Compiled, Line, Matmuls, not_explained
from benchmarks.compilation.compiled_check import compare
from benchmarks.compilation.program import Program
from benchmarks.configs import Configs
from benchmarks.request.resolve import Request, resolve
from benchmarks.values import Benchmark, Model
from jax_backend import BACKEND

FOLDER = Path(__file__).with_name("compiled")
CONFIGS = Configs()
FULL = {"remat_policy": "full", "micro_batch_size": "1", "use_iota_embed": "false"}


def report(name: str) -> Compiled:
    return msgspec.json.decode((FOLDER / f"{name}.json").read_bytes(), type=Compiled)


def benchmark(
    gpus: int = 64,
    dtype: str = "bf16",
    settings: dict[str, str] | None = None,
    model: str = "llama2_70b",
    task: str = "pretrain",
) -> Benchmark:
    request = Request(
        backend="jax", model=model, task=task, gpus=gpus, hardware="h100", dtype=dtype, settings=settings or {}
    )
    return resolve(request, CONFIGS, BACKEND)


def text_of(asked: Benchmark, compiled: Compiled) -> str:
    return compiled_report.text(Program(asked, BACKEND.storage(asked), compiled))


def lines_of(asked: Benchmark, compiled: Compiled) -> dict[str, Line]:
    return {line.what: line for line in compare(asked, BACKEND.storage(asked), compiled)}


@pytest.fixture(scope="module")
def full() -> tuple[Benchmark, Compiled]:
    return benchmark(settings=FULL), report("llama2_70b_64_full_remat")


def test_the_program_holds_what_was_counted_by_hand(full: tuple[Benchmark, Compiled]) -> None:
    _, compiled = full
    exact = sum(group.flops for group in compiled.matmuls if not group.by_a_vector)
    attention = 4 * 4 * 80 * 64 * 128 * 4096 * 4096  # forward, again and twice backward: in cuDNN's kernels
    assert exact + attention == pytest.approx(2.271436e15, rel=1e-6)
    assert compiled.attention_kernels == {"forward": 2 * 80, "backward": 80}
    buffers = {
        kind: sum(
            group.buffer_bytes for group in compiled.collectives if group.kind == kind and group.what != "embedding"
        )
        for kind in ("all-gather", "reduce-scatter")
    }
    assert buffers["all-gather"] == pytest.approx(274.3e9, rel=3e-4)
    assert buffers["reduce-scatter"] == pytest.approx(137.4e9, rel=3e-4)


def test_every_difference_from_the_formulas_has_its_cause(full: tuple[Benchmark, Compiled]) -> None:
    found = lines_of(*full)
    assert not_explained(found.values(), full[1]) == []
    assert found["parameters"].left_over == 0
    assert found["matmuls of the model"].left_over == found["matmuls computed again"].left_over == 0
    traffic = found["weights and gradients over fsdp"]
    assert traffic.expected == pytest.approx(407.39e9, rel=1e-5)
    assert traffic.counted == pytest.approx(405.33e9, rel=1e-5)
    assert traffic.left_over / traffic.expected < 1e-5


@pytest.mark.parametrize(
    ("name", "asked"),
    [
        ("llama2_70b_64_fp8", benchmark(dtype="fp8")),
        ("llama2_70b_512_bf16", benchmark(gpus=512)),
        ("llama32_1b_8", benchmark(gpus=8, model="llama32_1b")),  # a tied table
        ("llama3_tiny_fsdp8", benchmark(gpus=8, model="llama3_tiny")),  # norms that each device has
    ],
)
def test_the_recipe_s_own_settings_are_explained_to_the_byte(name: str, asked: Benchmark) -> None:
    compiled = report(name)
    found = lines_of(asked, compiled)
    assert not_explained(found.values(), compiled) == []
    assert found["weights and gradients over fsdp"].left_over == pytest.approx(0, abs=1)
    assert [line for line in found.values() if line.unit == "FLOPs" and line.left_over] == []


def test_data_parallelism_sums_each_gradient_once() -> None:
    found = lines_of(benchmark(gpus=512), report("llama2_70b_512_bf16"))
    assert found["gradients over data"].left_over == 0
    assert found["gradients over data"].counted == pytest.approx(2 * 68_976_648_192 * 2 / 128 * 3 / 4)


@pytest.mark.parametrize(("name", "axis"), [("small_fsdp4_tensor2", "tensor"), ("small_fsdp4_context2", "context")])
def test_beside_other_axes_all_but_the_traffic_is_compared(name: str, axis: str) -> None:
    asked, compiled = small(axis), report(name)
    found = lines_of(asked, compiled)
    assert not_explained(found.values(), compiled) == []
    assert {"parameters", "state", "matmuls of the model"} <= found.keys()
    assert not [line for line in found.values() if "over" in line.what]
    text = text_of(asked, compiled)
    assert "beside a tensor or context axis it is not compared" in text


def small(axis: str) -> Benchmark:
    sizes = {"hidden_size": 512, "ffn_hidden_size": 1408, "head_dim": 64, "vocabulary_size": 4096}
    heads = {"layers": 4, "attention_heads": 8, "query_groups": 8, "max_sequence_length": 512}

    class SmallModels(Configs):
        def model(self, name: str) -> Model:
            return msgspec.structs.replace(super().model(name), **sizes, **heads)

    settings = {"ici_fsdp_parallelism": "4", f"ici_{axis}_parallelism": "2"}
    settings |= {"micro_batch_size": "2", "remat_policy": "full", "sequence_length": "512"}
    request = Request(backend="jax", model="llama2_tiny", hardware="h100", dtype="bf16", gpus=8, settings=settings)
    return resolve(request, SmallModels(), BACKEND)


def test_weights_that_a_context_axis_shares_are_not_taken_for_replicas() -> None:
    asked, compiled = small("context"), report("small_fsdp4_context2")
    replicas = msgspec.structs.replace(BACKEND.storage(asked), weights_over_context=False)
    assert [line.what for line in compare(asked, replicas, compiled) if not line.explained] == ["state"]


def changed(compiled: Compiled, part: str, which: Callable[..., bool], **factors: float) -> Compiled:
    """The report with some of its groups made larger or smaller."""
    groups = [
        msgspec.structs.replace(group, **{name: getattr(group, name) * by for name, by in factors.items()})
        if which(group)
        else group
        for group in getattr(compiled, part)
    ]
    return msgspec.structs.replace(compiled, **{part: groups})


def typed(compiled: Compiled, dtype: str) -> Compiled:
    groups = [msgspec.structs.replace(group, dtype=dtype) for group in compiled.matmuls]
    return msgspec.structs.replace(compiled, matmuls=groups)


def with_matmul(compiled: Compiled, part: str, by_a_vector: bool) -> Compiled:
    more = Matmuls(part=part, dtype="bf16", by_a_vector=by_a_vector, count=80, flops=1e15)
    return msgspec.structs.replace(compiled, matmuls=[*compiled.matmuls, more])


def with_collective(
    compiled: Compiled,
    kind: str,
    wire_bytes: float,
    *,
    dtype: str = "f32",
    axes: Sequence[str] = ("fsdp",),
    count: int = 80,
    buffer_bytes: float = 1e11,
) -> Compiled:
    """Something that is sent in the backward pass besides all the rest."""
    more = Collective(
        kind=kind, dtype=dtype, group_size=64, axes=list(axes), what="x", count=count,
        buffer_bytes=buffer_bytes, wire_bytes=wire_bytes, part="backward", in_a_loop=True,
    )  # fmt: skip
    return msgspec.structs.replace(compiled, collectives=[*compiled.collectives, more])


@pytest.mark.parametrize(
    ("what", "plant"),
    [
        ("devices", lambda c: msgspec.structs.replace(c, devices=3)),
        ("fsdp of the mesh", lambda c: msgspec.structs.replace(c, mesh={"fsdp": 32})),
        ("tensor of the mesh", lambda c: msgspec.structs.replace(c, mesh={"fsdp": 64, "tensor": 2})),
        ("matmuls in bf16", lambda c: typed(c, "f32")),
        ("matmuls of the model", lambda c: with_matmul(c, part="forward", by_a_vector=True)),
        ("matmuls of the model", lambda c: with_matmul(c, part="elsewhere", by_a_vector=True)),
        ("matmuls computed again", lambda c: with_matmul(c, part="recomputed", by_a_vector=True)),
        ("weights and gradients over fsdp", lambda c: with_collective(c, kind="all-reduce", wire_bytes=200e9)),
        ("weights and gradients over fsdp", lambda c: with_collective(c, kind="all-reduce", wire_bytes=1e6)),
        (
            "weights and gradients over fsdp",
            lambda c: with_collective(c, kind="all-reduce", buffer_bytes=4e9, count=10**9, wire_bytes=8e9),
        ),
        (
            "weights and gradients over fsdp",
            lambda c: with_collective(c, kind="all-gather", dtype="s32", wire_bytes=100e9),
        ),
        (
            "other collectives",
            lambda c: with_collective(c, kind="all-to-all", axes=["unknown"], wire_bytes=400e6),
        ),
        (
            "attention kernels forward",
            lambda c: msgspec.structs.replace(c, attention_kernels={**c.attention_kernels, "forward": 80}),
        ),
        ("state", lambda c: msgspec.structs.replace(c, state_bytes=c.state_bytes + 1e5)),
        ("parameters", lambda c: msgspec.structs.replace(c, parameters=c.parameters + 1)),
        ("state", lambda c: msgspec.structs.replace(c, state_bytes=c.state_bytes * 1.001)),
        ("state", lambda c: msgspec.structs.replace(c, state_bytes=c.state_bytes * 2)),
        (
            "matmuls of the model, matmuls in bf16",
            lambda c: changed(c, "matmuls", lambda g: g.part == "forward" and not g.by_a_vector, flops=1.001),
        ),
        (
            "matmuls computed again, matmuls in bf16",
            lambda c: changed(c, "matmuls", lambda g: g.part == "recomputed" and not g.by_a_vector, flops=0.97),
        ),
        (
            "matmuls of the backward pass",
            lambda c: msgspec.structs.replace(
                c,
                matmuls=[
                    msgspec.structs.replace(g, part="backward") if g.part == "forward" else g for g in c.matmuls
                ],
            ),
        ),
        (
            "weights and gradients over fsdp",
            lambda c: changed(c, "collectives", lambda g: g.kind == "reduce-scatter", wire_bytes=1.01),
        ),
        (
            "weights and gradients over fsdp",
            lambda c: changed(c, "collectives", lambda g: g.part == "recomputed", wire_bytes=0.0),
        ),
        (
            "embedding looked up",
            lambda c: changed(c, "collectives", lambda g: g.what == "embedding", wire_bytes=40.0),
        ),
    ],
)
def test_a_planted_difference_is_not_explained(
    full: tuple[Benchmark, Compiled], what: str, plant: Callable[[Compiled], Compiled]
) -> None:
    asked, compiled = full
    planted = plant(compiled)
    found = lines_of(asked, planted)
    assert ", ".join(line.what for line in found.values() if not line.explained) == what
    problem = not_explained(found.values(), planted)[0]
    assert problem.startswith(f"{what.partition(', ')[0]}: ")
    assert "NOT EXPLAINED" in text_of(asked, planted)


def test_the_wrong_settings_do_not_explain_a_program(full: tuple[Benchmark, Compiled]) -> None:
    """Held against the recipe's own settings, the program of full recomputation is another one."""
    _, compiled = full
    found = lines_of(benchmark(settings={"micro_batch_size": "1"}), compiled)
    assert {line.what for line in found.values() if not line.explained} >= {"matmuls computed again"}


def test_a_program_reads_the_same(full: tuple[Benchmark, Compiled]) -> None:
    asked, compiled = full
    found = msgspec.to_builtins(
        compiled_report.as_data("as planned", Program(asked, BACKEND.storage(asked), compiled))
    )
    assert found["not_explained"] == []
    parameters = next(line for line in found["lines"] if line["what"] == "parameters")
    assert parameters["counted"] == 68_976_648_192
    assert (parameters["left_over"], parameters["explained"]) == (0, True)
    assert (found["benchmark"]["model"]["name"], found["benchmark"]["dtype"]) == ("llama2_70b", "bf16")


def test_a_step_of_adapters_is_compared_with_no_formula(full: tuple[Benchmark, Compiled]) -> None:
    asked = benchmark(8, model="llama31_8b", task="lora")
    assert {line.unit for line in compare(asked, BACKEND.storage(asked), full[1])} == {"devices"}
    assert compiled_report.ADAPTERS in text_of(asked, full[1])
    assert compiled_report.ADAPTERS not in text_of(*full)


EIGHT_GPUS = {"ici_fsdp_parallelism": "8", "dcn_fsdp_parallelism": "1", "micro_batch_size": "1"}


def test_a_program_that_is_too_large_for_its_device_is_compiled_and_says_so(full: tuple[Benchmark, Compiled]) -> None:
    asked = benchmark(8, settings={**EIGHT_GPUS, "sequence_length": "512"})
    assert "DOES NOT FIT: 177.82 GB of 75.20 GB" in text_of(asked, report("llama2_70b_8"))
    assert "DOES NOT FIT" not in text_of(*full)


def test_one_device_s_program_is_counted_as_it_was_lowered() -> None:
    """Nothing is partitioned, so every scale of a norm is still a matmul by a vector."""
    asked, compiled = benchmark(1, model="llama2_tiny"), report("llama2_tiny_1")
    assert not_explained(lines_of(asked, compiled).values(), compiled) == []


def test_where_the_rates_of_a_device_are_not_known_only_the_times_are_missing(
    full: tuple[Benchmark, Compiled],
) -> None:
    asked, compiled = full
    unknown = msgspec.structs.replace(asked.hardware, achievable={})
    text = text_of(msgspec.structs.replace(asked, hardware=unknown), compiled)
    assert "cannot be timed: the rate that its matmuls reach is not known" in text
    assert "modelled" not in text
    assert "peak of a device" in text


def test_norms_of_another_layout_are_not_explained() -> None:
    asked = benchmark(gpus=8, model="llama3_tiny")
    as_llama_2 = msgspec.structs.replace(BACKEND.storage(asked), norm_axes=("fsdp",))
    wrong = {line.what: line for line in compare(asked, as_llama_2, report("llama3_tiny_fsdp8"))}
    assert not wrong["state"].explained
    assert wrong["weights and gradients over fsdp"].left_over


@pytest.mark.parametrize(
    ("field", "named"), [("not_counted", "convolution.1 (convolution)"), ("unknown_loops", "while.1")]
)
def test_what_cannot_be_counted_is_no_proof(full: tuple[Benchmark, Compiled], field: str, named: str) -> None:
    asked, compiled = full
    unknown = msgspec.structs.replace(compiled, **{field: [named]})
    (problem,) = not_explained(lines_of(asked, unknown).values(), unknown)
    assert named in problem
