"""Suites as data: which cells they mean, what they are called, what they may not ask for."""

from typing import Any

import msgspec
import pytest

from benchmarks.backend import find_backend
from benchmarks.configs import Configs
from benchmarks.errors import RequestError
from benchmarks.nightly import suites
from benchmarks.nightly.values import Matrix, Suite
from benchmarks.request.resolve import resolve

CONFIGS = Configs()


def suite(*blocks: dict[str, Any], **fields: Any) -> Suite:
    data = {"name": "s", "title": "S", "source": "a test", "date": "2026-11-22", "matrix": list(blocks), **fields}
    return msgspec.convert(data, Suite, strict=True)


BLOCK = {"backend": "jax", "model": "llama2_70b"}


def names(found: list[suites.Cell]) -> list[str]:
    return [cell.name for cell in found]


@pytest.mark.parametrize("name", CONFIGS.names("suites"))
def test_every_suite_of_the_checkout_means_something(name: str) -> None:
    found = CONFIGS.row("suites", name, Suite)
    assert suites.watched(found)
    for cell in suites.cells(found, "local"):
        benchmark = resolve(cell.request, CONFIGS, find_backend(cell.request.backend))
        assert benchmark.window == "steady"


def test_lists_make_every_combination_of_every_block_less_what_is_excluded() -> None:
    made = suite(
        {**BLOCK, "dtype": ["bf16", "fp8"], "gpus": [64, 128]},
        {"backend": "nemo", "model": "llama31_8b", "gpus": 8},
        exclude=[{"dtype": "fp8", "gpus": 64}],
    )
    assert names(suites.cells(made, "local")) == [
        "jax-llama2_70b-bf16-64gpus",
        "jax-llama2_70b-bf16-128gpus",
        "jax-llama2_70b-fp8-128gpus",
        "nemo-llama31_8b-8gpus",
    ]


def test_steps_settings_site_and_slowdown_reach_the_request() -> None:
    made = suite({**BLOCK, "steps": 20, "settings": {"micro_batch_size": 16, "scan_layers": True}})
    (cell,) = suites.cells(made, "dev", 0.5)
    assert cell.request.settings == {"micro_batch_size": "16", "scan_layers": "true"}
    assert (cell.request.steps, cell.request.site, cell.request.inject_slowdown) == (20, "dev", 0.5)


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (suite(BLOCK, {**BLOCK, "steps": 10}), "two cells called jax-llama2_70b"),
        (suite(BLOCK, exclude=[{"model": "llama2_70b"}]), "excludes every cell"),
        (suite(BLOCK, exclude=[{"modl": "x"}]), "{'modl': 'x'}"),
        (suite(BLOCK, {**BLOCK, "gpus": 8}, exclude=[{"gpus": 8, "task": "lora"}]), "does not exist"),
        (suite(BLOCK, {**BLOCK, "gpus": 8}, control="jax-llama2_7b"), "did you mean 'jax-llama2_70b'?"),
        (suite(BLOCK, control="jax-llama2_70b"), "has only the control"),
        (suite(BLOCK, rerun_budget=2), "2 re-runs per night cannot"),
        (suite({**BLOCK, "label": "a b"}), "is not a valid name"),
    ],
)
def test_what_a_suite_cannot_mean_is_refused(made: Suite, message: str) -> None:
    with pytest.raises(RequestError) as caught:
        suites.cells(made, "local")
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("metrics", "expected"),
    [
        ({}, [("seconds_per_step", True), ("excess", False)]),
        (
            {"excess": "none", "last_loss": "gate", "memory_bytes": "watch"},
            [("seconds_per_step", True), ("last_loss", True), ("memory_bytes", False)],
        ),
    ],
)
def test_what_gates_comes_first_and_none_is_not_watched(
    metrics: dict[str, str], expected: list[tuple[str, bool]]
) -> None:
    found = suites.watched(suite(BLOCK, metrics=metrics))
    assert [(one.metric.name, one.gates) for one in found] == expected


@pytest.mark.parametrize(
    ("metrics", "message"),
    [({"seconds": "gate"}, "did you mean 'seconds_per_step'?"), ({"seconds_per_step": "watch"}, "no metric")],
)
def test_figures_that_cannot_be_watched_are_refused(metrics: dict[str, str], message: str) -> None:
    with pytest.raises(RequestError) as caught:
        suites.watched(suite(BLOCK, metrics=metrics))
    assert message in str(caught.value)


@pytest.mark.parametrize("key", ["gpu", "profile"])  # the figures of a profiled run are never compared
def test_a_block_of_unknown_keys_is_refused(key: str) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({**BLOCK, key: "nsys"}, Matrix)


def test_a_cell_is_found_by_its_name() -> None:
    found = suites.cells(suite({**BLOCK, "gpus": [64, 128]}), "local")
    assert suites.find_cell(found, "jax-llama2_70b-128gpus", "s") == found[1]
    with pytest.raises(RequestError, match="no cell 'jax-llama2_70b': did you mean 'jax-llama2_70b-"):
        suites.find_cell(found, "jax-llama2_70b", "s")
