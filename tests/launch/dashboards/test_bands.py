"""Bands of step times: read once from a run's steps, and again where its result is another."""

from pathlib import Path

import msgspec
import pytest

from benchmarks.dashboards.series import Band
from benchmarks.values import Step
from launch.dashboards.bands import bands
from tests.benchmarks.dashboards.made import entry


def write(root: Path, seconds: list[float], number: int = 0) -> None:
    steps = [Step(step=n, seconds=one, loss=None, tokens=None) for n, one in enumerate(seconds)]
    place = root / entry(number).path
    place.mkdir(exist_ok=True)
    (place / "steps.jsonl").write_bytes(b"".join(msgspec.json.encode(step) + b"\n" for step in steps))


def of(root: Path, *entries: object) -> tuple[dict[str, Band], dict[str, str]]:
    return bands(root, root, entries)  # type: ignore[arg-type]


def test_steps_are_read_once(tmp_path: Path) -> None:
    write(tmp_path, [1.0, 3.0])
    first = of(tmp_path, entry())
    assert first == ({entry().path: Band(p05=pytest.approx(1.1), p95=pytest.approx(2.9))}, {})  # type: ignore[arg-type]
    write(tmp_path, [7.0])
    assert of(tmp_path, entry()) == first


@pytest.mark.parametrize("changes", [{"seconds_per_step": 0.02}, {"counted": 7}, {"seconds_mean": 0.02}])
def test_a_result_that_was_made_anew_is_read_anew(tmp_path: Path, changes: dict[str, float]) -> None:
    write(tmp_path, [1.0, 3.0])
    of(tmp_path, entry())
    write(tmp_path, [7.0])
    assert of(tmp_path, entry(**changes))[0] == {entry().path: Band(p05=7.0, p95=7.0)}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (None, "steps.jsonl: No such file or directory"),
        ("{ cut", "steps.jsonl cannot be read"),
        ("", "steps.jsonl has no counted step"),
    ],
)
def test_why_a_run_has_none_is_said_and_asked_again(tmp_path: Path, text: str | None, why: str) -> None:
    if text is not None:
        write(tmp_path, [])
        (tmp_path / entry().path / "steps.jsonl").write_text(text)
    found, missing = of(tmp_path, entry())
    assert (found, list(missing)) == ({}, [entry().path])
    assert missing[entry().path].startswith(why)
    write(tmp_path, [7.0])
    assert list(of(tmp_path, entry())[0]) == [entry().path]


def test_what_is_kept_and_damaged_is_made_again(tmp_path: Path) -> None:
    write(tmp_path, [1.0, 3.0])
    first = of(tmp_path, entry())
    (tmp_path / "bands.json").write_bytes(b"no database at all" * 1000)
    assert of(tmp_path, entry()) == first


def test_runs_that_are_not_asked_for_stay_known(tmp_path: Path) -> None:
    write(tmp_path, [1.0], 0)
    write(tmp_path, [2.0], 1)
    of(tmp_path, entry(0), entry(1))
    of(tmp_path, entry(0))
    write(tmp_path, [9.0], 1)
    assert of(tmp_path, entry(1))[0] == {entry(1).path: Band(p05=2.0, p95=2.0)}
