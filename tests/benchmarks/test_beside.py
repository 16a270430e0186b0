"""A result beside the nearest published row, and what differs besides."""

import msgspec
import pytest

from benchmarks.beside import nearest
from benchmarks.configs import Configs
from benchmarks.references import read_references
from benchmarks.resolve import Request, resolve
from benchmarks.summary import Result
from jax_backend import BACKEND
from tests.benchmarks.test_summary import DONE, record_of, result_of, steps_of

CONFIGS = Configs()
ROWS = read_references(CONFIGS.root)


def measured(seconds: float = 7.0, **wanted: object) -> Result:
    """A run of the 70B whose steps took so long."""
    request = Request(backend="jax", model="llama2_70b", dtype="bf16", hardware="h100", **wanted)  # type: ignore[arg-type]
    benchmark = resolve(request, CONFIGS, BACKEND)
    benchmark = msgspec.structs.replace(benchmark, steps=10)
    return result_of(record_of(steps_of([60.0, *[seconds] * 9])), DONE, benchmark=benchmark)


def test_the_same_scale_and_layout_is_nearest_and_the_ratio_is_of_tokens_a_gpu() -> None:
    found, why = nearest(measured(6.999, gpus=64), ROWS)
    assert (why, found is not None) == ("", True)
    assert found is not None
    assert found.reference == "llama2_70b pretrain bf16 64 x h100"
    assert found.ratio == pytest.approx(1)
    assert found.differs == ["window last, here steady"]


def test_another_scale_says_what_differs() -> None:
    settings = {"ici_fsdp_parallelism": "8", "dcn_fsdp_parallelism": "4"}
    found, _ = nearest(measured(7.0, gpus=32, settings=settings), ROWS)
    assert found is not None
    assert found.reference == "llama2_70b pretrain bf16 64 x h100"
    assert "GPUs 64, here 32" in found.differs
    assert "layout fsdp 64, here fsdp 32" in found.differs
    assert found.ratio == pytest.approx(6.999 / 7.0)


def test_where_nothing_is_published_it_says_so() -> None:
    result = measured(gpus=64)
    other = msgspec.structs.replace(result.benchmark, dtype="int8")
    found, why = nearest(msgspec.structs.replace(result, benchmark=other), ROWS)
    assert (found, why) == (None, "nothing is published for llama2_70b pretrain int8 on h100")
    found, why = nearest(msgspec.structs.replace(result, tokens_per_second_per_gpu=None), ROWS)
    assert (found, why) == (None, "the run has no speed")
