"""Predictions: what a line holds, that none is changed, and how a row is held against one."""

import hashlib
import shutil
from pathlib import Path

import msgspec
import pytest

from benchmarks.configs import DEFAULT_ROOT, Configs
from benchmarks.errors import RequestError
from benchmarks.planning.calibration import estimate, nearest_scale
from benchmarks.planning.predictions import FILE, Prediction, as_csv, outcomes, predicted, read_predictions
from benchmarks.references.references import Reference, read_references
from benchmarks.values import Benchmark
from launch.planning.registering import register, unpublished
from tests.benchmarks.planned import CONFIGS, bound_of, changed, recipe

KEPT = CONFIGS.calibration()
REGISTERED = read_predictions(CONFIGS.root)
ROWS = read_references(CONFIGS.root)
NEMO = recipe("nemo", "llama31_70b", hardware="h100")


def prediction_of(benchmark: Benchmark) -> Prediction:
    found = estimate(benchmark, bound_of(benchmark), KEPT)
    assert found.seconds is not None
    return predicted(benchmark, found, found.seconds, "2026-11-24", "0.11.0", "abc")


def published(seconds: str) -> Reference:
    row = next(row for row in ROWS if row.model == "llama31_70b" and row.gpus == 64 and row.dtype == "bf16")
    return msgspec.structs.replace(row, seconds_per_step=seconds)


def test_unpublished_recipes_are_registered() -> None:
    known = {one.cell for one in REGISTERED}
    assert len(known) > 50
    for benchmark in unpublished(CONFIGS):
        assert nearest_scale(benchmark, KEPT.published) is None
        name = (benchmark.recipe.name, benchmark.model.name, benchmark.dtype, benchmark.hardware.name, benchmark.gpus)
        has_estimate = estimate(benchmark, bound_of(benchmark), KEPT).seconds is not None
        assert name in known or not has_estimate


def test_each_has_its_date_and_an_interval_or_why_there_is_none() -> None:
    for one in REGISTERED:
        assert len(one.commit) == 40
        assert one.date.startswith("20")
        if one.low_seconds:
            assert float(one.low_seconds) < float(one.seconds) < float(one.high_seconds)
            assert "left out" in one.interval
        else:
            assert one.interval.startswith("no interval: ")
    last = {one.cell: one for one in REGISTERED}.values()
    assert sum(bool(one.low_seconds) for one in last) > 0.9 * len(last)


@pytest.mark.parametrize(
    ("version", "lines", "digest"),
    [("0.11.0", 135, "6f7f8853dbf9ffc4"), ("0.12.0", 133, "3bad19d03c8d103d")],
)
def test_the_lines_of_a_version_are_as_they_were_registered(version: str, lines: int, digest: str) -> None:
    kept = [one for one in REGISTERED if one.version == version]
    assert len(kept) == lines
    assert hashlib.sha256(as_csv(kept).encode()).hexdigest().startswith(digest)


@pytest.mark.parametrize(
    ("column", "value", "says"),
    [
        ("seconds", "abc", "a number above 0 was expected"),
        ("low_seconds", "9e9", "is not between"),
        ("gpus", "x", "gpus"),
    ],
)
def test_a_damaged_line_is_named(tmp_path: Path, column: str, value: str, says: str) -> None:
    one = next(one for one in REGISTERED if one.low_seconds)
    row = {**msgspec.structs.asdict(one), column: value}
    (tmp_path / FILE).write_text(",".join(row) + "\n" + ",".join(f'"{cell}"' for cell in row.values()) + "\n")
    with pytest.raises(RequestError, match=says) as refused:
        read_predictions(tmp_path)
    assert f"{FILE}:2" in str(refused.value.where)


def test_what_is_registered_is_never_changed_and_superseded_by_a_further_line(tmp_path: Path) -> None:
    root = tmp_path / "configs"
    shutil.copytree(DEFAULT_ROOT, root)
    register(Configs(root))
    now = read_predictions(root)
    last, missing, *others = {one.cell: one for one in now}.values()
    old = msgspec.structs.replace(last, seconds=last.low_seconds or "99", date="2020-01-01")
    (root / FILE).write_text(as_csv([old, *others]))
    said = register(Configs(root))
    assert said.startswith("2 predictions registered")
    *before, first, second = read_predictions(root)
    assert before == [old, *others]
    assert {first.predicts, second.predicts} == {last.predicts, missing.predicts}
    assert register(Configs(root)).startswith("0 predictions registered")


@pytest.mark.parametrize(("seconds", "words"), [("14.7", "inside"), ("30.0", "OUTSIDE")])
def test_a_row_is_held_against_the_prediction_of_its_series(seconds: str, words: str) -> None:
    one = prediction_of(NEMO)
    found = list(outcomes([one], [published(seconds)]))
    assert len(found) == 1
    assert f"{words} {one.low_seconds} to {one.high_seconds} s" in found[0]
    assert list(outcomes([prediction_of(changed(NEMO, micro_batch_size=2))], [published(seconds)])) == []
