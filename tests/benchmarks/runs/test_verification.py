"""Any edit of a stored figure is found; what the raw files give is never called a difference."""

import json
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.configs import Configs
from benchmarks.errors import RequestError
from benchmarks.job_record import ProcessEnd
from benchmarks.measuring.summary import Result, RunEvidence, summarise
from benchmarks.request.resolve import Request, resolve
from benchmarks.runs.recompute import differences, recompute
from benchmarks.runs.runfolder import RESULT, STEPS, RunFolder
from benchmarks.values import RunRecord, Step, WorkerEnd, WorkerFacts, to_builtins
from jax_backend import BACKEND

Path = tuple[str | int, ...]


def example() -> tuple[Result, Iterable[Step]]:
    """A result with as many figures as there can be: an H100's, with MFU, an artefact and a second rank."""
    benchmark = resolve(
        Request(backend="jax", model="llama2_tiny", hardware="h100", gpus=2, steps=12), Configs(), BACKEND
    )
    seconds = [2.0, *[0.5 + 0.01 * n for n in range(11)]]
    steps = [
        Step(
            step=n,
            seconds=value,
            loss=6.0 - n / 10,
            tokens=None,
            rank=rank,
            elapsed_seconds=sum(seconds[: n + 1]),
            framework_seconds=value,
            framework_tflops_per_device=0.5,
            framework_tokens_per_second_per_device=100.5,
        )
        for rank in (0, 1)
        for n, value in enumerate(seconds)
    ]
    facts = WorkerFacts(
        rank=0, process_count=2, device_count=2, local_device_count=1, device_kind="H100", platform="gpu",
        parameters=106_816, trainable_parameters=106_816, mesh={"fsdp": 2}, versions={}, argv=[],
    )  # fmt: skip
    ends = [WorkerEnd(rank=rank, status="done") for rank in (0, 1)]
    record = RunRecord(attempt=1, facts=[facts], steps=steps, ends=ends, unreadable=["events-rank0.jsonl:3 cut"])
    ended = [ProcessEnd(rank=rank, exit_code=0) for rank in (0, 1)]
    twice = BACKEND.storage(benchmark).recompute
    return summarise(
        RunEvidence(
            benchmark=benchmark,
            run_id="run-1",
            record=record,
            ended=ended,
            provenance_digest="sha256:abc",
            notes=["a note"],
            recompute=twice,
        )
    )


RESULT_VALUE, _STEPS = example()
STEPS_VALUE = list(_STEPS)


def leaves(value: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    if isinstance(value, dict) and value:
        for key, inner in value.items():
            yield from leaves(inner, (*path, key))
    elif isinstance(value, list) and value:
        for index, inner in enumerate(value):
            yield from leaves(inner, (*path, index))
    else:
        yield path, value


def edited(value: Any, path: Path, new: Any) -> Any:
    copy = json.loads(json.dumps(value))
    place = copy
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = new
    return copy


def other(value: Any) -> Any:
    """A small edit of the same type: what a hand that improves a figure would write."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + 1
    if isinstance(value, float):
        return value * (1 + 1e-8) or 1e-300
    return {None: 1.0, "valid": "invalid"}.get(value, f"{value}x") if not isinstance(value, dict | list) else None


RESULT_LEAVES = list(leaves(to_builtins(RESULT_VALUE)))
STEP_LEAVES = list(leaves(to_builtins(STEPS_VALUE)))


def test_the_example_holds_every_kind_of_figure() -> None:
    found = {path[0] for path, _ in RESULT_LEAVES}
    assert found == set(Result.__struct_fields__)
    assert RESULT_VALUE.status == "valid"
    assert RESULT_VALUE.mfu
    assert RESULT_VALUE.hfu
    assert len(STEPS_VALUE) == 24


def test_no_edit_no_difference() -> None:
    stored = msgspec.json.decode(msgspec.json.encode(RESULT_VALUE), type=Result)
    steps = [msgspec.json.decode(msgspec.json.encode(step), type=Step) for step in STEPS_VALUE]
    assert differences(stored, RESULT_VALUE, steps, STEPS_VALUE) == []


@pytest.mark.parametrize(("path", "value"), RESULT_LEAVES, ids=[".".join(map(str, p)) for p, _ in RESULT_LEAVES])
def test_an_edit_of_any_figure_of_the_result_is_found(path: Path, value: Any) -> None:
    data = edited(to_builtins(RESULT_VALUE), path, other(value))
    try:
        stored = msgspec.convert(data, Result)
    except msgspec.ValidationError:
        return  # the file can no longer be read, which verify says as well
    (found,) = differences(stored, RESULT_VALUE, STEPS_VALUE, STEPS_VALUE)
    assert str(path[0]) in found


@settings(max_examples=150, deadline=None)
@given(chosen=st.sampled_from(STEP_LEAVES))
def test_an_edit_of_any_step_is_found(chosen: tuple[Path, Any]) -> None:
    path, value = chosen
    try:
        stored = msgspec.convert(edited(to_builtins(STEPS_VALUE), path, other(value)), list[Step])
    except msgspec.ValidationError:
        return
    found = differences(RESULT_VALUE, RESULT_VALUE, stored, STEPS_VALUE)
    assert len(found) == 1
    assert "steps.jsonl" in found[0]


def test_steps_taken_out_added_or_swapped_are_found() -> None:
    swapped = [STEPS_VALUE[1], STEPS_VALUE[0], *STEPS_VALUE[2:]]
    for stored in (STEPS_VALUE[:-1], STEPS_VALUE[1:], [*STEPS_VALUE, STEPS_VALUE[-1]], [], swapped):
        assert differences(RESULT_VALUE, RESULT_VALUE, stored, STEPS_VALUE)


@pytest.mark.parametrize("name", ["null_because", "reported_by_framework"])
def test_an_added_key_is_found_even_when_it_is_null(name: str) -> None:
    stored = msgspec.structs.replace(RESULT_VALUE, **{name: getattr(RESULT_VALUE, name) | {"made_up": None}})
    (found,) = differences(stored, RESULT_VALUE, STEPS_VALUE, STEPS_VALUE)
    assert "made_up" in found


@pytest.mark.parametrize(
    ("name", "stored", "computed", "same"),
    [
        ("tokens_per_second", 512.0 * (1 + 1e-15), 512.0, True),
        ("tokens_per_second", 512.0 * (1 + 2e-9), 512.0, False),  # too small to change a printed digit
        ("tokens_per_second", 1e-12, 0.0, False),
        ("parameters", 10**15 + 1, 10**15, False),
    ],
)
def test_the_tolerance_is_for_the_last_bits_only(name: str, stored: float, computed: float, same: bool) -> None:
    one, other = (msgspec.structs.replace(RESULT_VALUE, **{name: value}) for value in (stored, computed))
    assert (differences(one, other, [], []) == []) is same


# --- on files ---------------------------------------------------------------------------------------


def test_an_edit_of_the_files_is_found(whole_run: RunFolder) -> None:
    result, steps = recompute(whole_run, BACKEND)

    def now() -> list[str]:
        return differences(whole_run.stored_result(), result, whole_run.stored_steps(), steps)

    path = whole_run.path / RESULT
    text = path.read_text()
    assert '"status": "valid"' in text
    assert result.tokens_per_second is not None
    path.write_text(text.replace(f'"tokens_per_second": {result.tokens_per_second}', '"tokens_per_second": 9999.0'))
    (found,) = now()
    assert found.startswith("result.json: tokens_per_second: stored 9999.0, but the raw")
    path.write_text(text)
    assert now() == []
    (whole_run.path / STEPS).write_text("".join((whole_run.path / STEPS).read_text().splitlines(True)[:-1]))
    assert now() == ["steps.jsonl has 11 steps, but the raw files have 12"]


def test_an_edit_of_the_raw_files_is_found_too(whole_run: RunFolder) -> None:
    events = whole_run.phase_dir("perf") / "events-rank0.jsonl"
    events.write_text(events.read_text().replace('"loss": 5.5', '"loss": 5.4'))
    result, steps = recompute(whole_run, BACKEND)
    found = differences(whole_run.stored_result(), result, whole_run.stored_steps(), steps)
    assert found == ["steps.jsonl step 5 rank 0: loss: stored 5.5, but the raw files give 5.4"]


def test_a_folder_of_another_version_is_refused(whole_run: RunFolder) -> None:
    path = whole_run.path / "benchmark.json"
    stored = json.loads(path.read_text())
    del stored["hardware"]["platform"]
    path.write_text(json.dumps(stored))
    with pytest.raises(RequestError, match="missing required field `platform`") as refused:
        whole_run.benchmark()
    assert "another version" in refused.value.why
