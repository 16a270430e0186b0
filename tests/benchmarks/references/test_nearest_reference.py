"""A result compared with the nearest published row, and the other differences."""

from collections.abc import Sequence

import msgspec
import pytest

from benchmarks.configs import Configs
from benchmarks.measuring.summary import BenchmarkFigures, Result
from benchmarks.model.published_rows import Reference, read_references
from benchmarks.references.nearest_reference import Nearest, nearest, nearest_of_result, text
from benchmarks.request.resolve import Request, resolve
from jax_backend import BACKEND
from tests.benchmarks.measuring.test_summary import DONE, record_of, result_of, steps_of

CONFIGS = Configs()
ROWS = read_references(CONFIGS.root)


def measured(seconds: float = 7.0, **wanted: object) -> Result:
    """A run of the 70B whose steps took so long."""
    request = Request(backend="jax", model="llama2_70b", dtype="bf16", hardware="h100", **wanted)  # type: ignore[arg-type]
    benchmark = resolve(request, CONFIGS, BACKEND)
    benchmark = msgspec.structs.replace(benchmark, steps=10)
    return result_of(record_of(steps_of([60.0, *[seconds] * 9])), DONE, benchmark=benchmark)


def nearest_row(result: Result) -> Nearest:
    return nearest_of_result(result, ROWS)


def test_the_same_scale_and_layout_is_nearest_and_the_ratio_is_of_tokens_a_gpu() -> None:
    found, why = nearest_row(measured(6.999, gpus=64))
    assert (why, found is not None) == ("", True)
    assert found is not None
    assert found.reference == "llama2_70b pretrain bf16 64 x h100"
    assert found.ratio == pytest.approx(1)
    assert found.differs == ["window last in the published row, steady in this run"]


def test_where_nothing_is_published_it_says_so() -> None:
    result = measured(gpus=64)
    other = msgspec.structs.replace(result.benchmark, dtype="int8")
    found, why = nearest_row(msgspec.structs.replace(result, benchmark=other))
    assert (found, why) == (None, "no published result for llama2_70b pretrain int8 on h100")
    found, why = nearest_row(msgspec.structs.replace(result, tokens_per_second_per_gpu=None))
    assert (found, why) == (None, "the run has no speed")


def foreign(rows: Sequence[Reference] = ROWS, **known: object) -> Nearest:
    """What a log of Llama 3.1 70B says of its run."""
    given = BenchmarkFigures(
        backend="nemo",
        engine="",
        model="llama31_70b",
        task="pretrain",
        dtype="bf16",
        hardware="h100",
        gpus=64,
        parallelism={},
        sequence_length=8192,
        global_batch_size=128,
        nodes=0,
    )
    return nearest(msgspec.structs.replace(given, **known), "last", 8192 * 128 / 64 / 14.66, rows)


def test_a_run_of_another_engine_says_so() -> None:
    """The rows of Llama 3.1 70B are NeMo's. Megatron-Bridge, in the same backend, differs."""
    layout = {"data": 2, "tensor": 4, "pipeline": 4, "context": 2, "virtual_pipeline": 5}
    found, _ = foreign(engine="bridge", parallelism=layout)
    assert found is not None
    assert found.differs == ["engine nemo in the published row, bridge in this run"]
    found, _ = foreign(engine="nemo", parallelism=layout)
    assert found is not None
    assert found.differs == []


def test_the_same_engine_goes_before_the_nearest_scale() -> None:
    row = next(row for row in ROWS if row.model == "llama31_70b" and row.dtype == "bf16" and row.gpus == 2048)
    bridge = msgspec.structs.replace(row, engine="bridge", source="Megatron-Bridge")
    found, _ = foreign([*ROWS, bridge], engine="bridge")
    assert found is not None
    assert found.source.startswith("Megatron-Bridge ")
    assert found.differs[0] == "GPUs 2048 in the published row, 64 in this run"


@pytest.mark.parametrize(
    ("model", "known", "differs", "why"),
    [
        ("deepseek_v3", {"routing": "balanced"}, [], ""),
        ("deepseek_v3", {}, ["routing balanced in the published row, not known in this run"], ""),
        ("deepseek_v3", {"routing": "learned"}, [], "on gb300 with learned routing"),
        ("mixtral_8x7b", {"routing": "balanced"}, [], "no published result for mixtral_8x7b"),
    ],
)
def test_a_model_with_experts_is_compared_with_the_same_routing_and_mtp(
    model: str, known: dict[str, object], differs: list[str], why: str
) -> None:
    found, reason = foreign(model=model, dtype="mxfp8", hardware="gb300", gpus=256, engine="bridge", **known)
    assert why in reason
    assert bool(why) == (found is None)
    if found is not None:
        assert [what for what in found.differs if what.startswith("routing")] == differs
    without = [row for row in ROWS if row.mtp_modules == "0"]
    assert {(row.model, row.tag) for row in without} == {("deepseek_v3", "v0.2.1")}
    found, _ = foreign(without, model=model, dtype="mxfp8", hardware="gb300", gpus=256, engine="bridge")
    assert found is None


def test_what_a_log_does_not_say_is_not_known() -> None:
    row, run = "in the published row", "in this run"
    assert text(foreign()).splitlines() == [
        "1.000 x the tokens/s per GPU of llama31_70b pretrain bf16 64 x h100, 14.66 s/step",
        "(NVIDIA/dgxc-benchmarking v25.04 llama3.1/README.md:98)",
        f"differs: engine nemo {row}, not known {run}",
        f"differs: layout context 2 x data 2 x pipeline 4 x tensor 4 x virtual_pipeline 5 {row}, not known {run}",
    ]


def test_of_equals_the_youngest_is_taken_that_was_not_rounded_coarsely() -> None:
    layout = {"data": 8, "tensor": 2, "pipeline": 4, "virtual_pipeline": 5}
    found, _ = foreign(
        engine="bridge",
        model="llama3_70b",
        dtype="mxfp8",
        hardware="gb200",
        parallelism=layout,
        global_batch_size=256,
    )
    assert found is not None
    assert found.reference == "llama3_70b pretrain mxfp8 64 x gb200"
    assert found.source == "NVIDIA-NeMo/Megatron-Bridge v0.4.2 docs/performance-summary-archive.md:53"
    assert found.differs == ["window not stated in the published row, last in this run"]
