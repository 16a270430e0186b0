"""Any edit of a stored figure is found; what the raw files give is never called a difference."""

import json
import pathlib
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from benchmarks.configs import Configs
from benchmarks.errors import RequestError
from benchmarks.measuring.summary import Ended, Result, summarise
from benchmarks.measuring.verification import SINCE, differences, younger_keys
from benchmarks.request.resolve import Request, resolve
from benchmarks.runs.recompute import recompute
from benchmarks.runs.runfolder import BENCHMARK, RESULT, STEPS, RunFolder
from benchmarks.values import RunRecord, Step, WorkerEnd, WorkerFacts, to_builtins
from jax_backend import BACKEND
from tests import forked

Path = tuple[str | int, ...]
SCRIPT = pathlib.Path(__file__).resolve().parents[3] / "launch/verify.py"


def example(dtype: str | None = None) -> tuple[Result, list[Step]]:
    """A result with as many figures as there can be: an H100's, with MFU, an artefact and a second rank."""
    benchmark = resolve(
        Request(backend="jax", model="llama2_tiny", dtype=dtype, hardware="h100", gpus=2, steps=12),
        Configs(),
        BACKEND,
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
    ended = [Ended(rank=rank, exit_code=0) for rank in (0, 1)]
    twice = BACKEND.storage(benchmark).recompute
    return summarise(benchmark, "run-1", record, ended, "sha256:abc", ["a note"], recompute=twice)


RESULT_VALUE, STEPS_VALUE = example()


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


def test_a_step_that_was_taken_out_or_added_is_found() -> None:
    for stored in (STEPS_VALUE[:-1], STEPS_VALUE[1:], [*STEPS_VALUE, STEPS_VALUE[-1]], []):
        assert differences(RESULT_VALUE, RESULT_VALUE, stored, STEPS_VALUE)


def test_swapped_steps_are_found() -> None:
    stored = [STEPS_VALUE[1], STEPS_VALUE[0], *STEPS_VALUE[2:]]
    assert differences(RESULT_VALUE, RESULT_VALUE, stored, STEPS_VALUE)


@pytest.mark.parametrize(
    ("name", "edit"),
    [
        ("null_because", {"made_up": "no reason"}),
        ("reported_by_framework", {"made_up": None}),
    ],
)
def test_an_added_key_is_found_even_when_it_is_null(name: str, edit: dict[str, Any]) -> None:
    stored = msgspec.structs.replace(RESULT_VALUE, **{name: getattr(RESULT_VALUE, name) | edit})
    (found,) = differences(stored, RESULT_VALUE, STEPS_VALUE, STEPS_VALUE)
    assert "made_up" in found


@settings(max_examples=200, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(factor=st.floats(-1, 1).filter(lambda share: abs(share) > 2e-9))
def test_the_tolerance_is_for_the_last_bits_only(factor: float) -> None:
    """Nobody gains a printed digit: an edit of 2 in 1,000,000,000 is found already."""
    assert RESULT_VALUE.tokens_per_second is not None
    stored = msgspec.structs.replace(RESULT_VALUE, tokens_per_second=RESULT_VALUE.tokens_per_second * (1 + factor))
    assert differences(stored, RESULT_VALUE, STEPS_VALUE, STEPS_VALUE)


def test_the_tolerance_does_not_grow_with_whole_numbers_or_around_zero() -> None:
    large = msgspec.structs.replace(RESULT_VALUE, parameters=10**15)
    assert differences(msgspec.structs.replace(large, parameters=10**15 + 1), large, [], [])
    spread = msgspec.structs.replace(RESULT_VALUE.seconds_per_step, excess=0.0)
    zero = msgspec.structs.replace(RESULT_VALUE, seconds_per_step=spread)
    tiny = msgspec.structs.replace(spread, excess=1e-12)
    assert differences(msgspec.structs.replace(zero, seconds_per_step=tiny), zero, [], [])


def test_the_last_bits_are_no_difference() -> None:
    assert RESULT_VALUE.tokens_per_second is not None
    stored = msgspec.structs.replace(RESULT_VALUE, tokens_per_second=RESULT_VALUE.tokens_per_second * (1 + 1e-15))
    assert differences(stored, RESULT_VALUE, STEPS_VALUE, STEPS_VALUE) == []


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
    assert found.startswith("result.json: tokens_per_second: stored 9999.0, raw files give ")
    path.write_text(text)
    assert now() == []
    (whole_run.path / STEPS).write_text("".join((whole_run.path / STEPS).read_text().splitlines(True)[:-1]))
    assert now() == ["steps.jsonl: 11 steps are stored, the raw files hold 12"]


def test_an_edit_of_the_raw_files_is_found_too(whole_run: RunFolder) -> None:
    events = whole_run.phase_dir("perf") / "events-rank0.jsonl"
    events.write_text(events.read_text().replace('"loss": 5.5', '"loss": 5.4'))
    result, steps = recompute(whole_run, BACKEND)
    found = differences(whole_run.stored_result(), result, whole_run.stored_steps(), steps)
    assert found == ["steps.jsonl step 5 rank 0: loss: stored 5.5, raw files give 5.4"]


# --- stored by an earlier version ---------------------------------------------------------------------


def test_every_key_that_a_result_can_be_read_without_has_the_version_that_brought_it() -> None:
    assert {field.name for field in msgspec.structs.fields(Result) if not field.required} == set(SINCE)


@pytest.mark.parametrize(
    ("stored_by", "missing", "younger"),
    [
        ("0.3.0", ["pgle", "not_comparable"], ["pgle", "not_comparable"]),
        ("0.3.0", ["telemetry", "pgle"], ["pgle"]),  # 0.3.0 had telemetry: somebody took it out
        ("0.3.0", [], []),
        ("0.2.0", list(SINCE), list(SINCE)),
        ("0.4.0", list(SINCE), ["hfu", "slowed_by", "convergence", "mlperf"]),
        ("0.5.0", list(SINCE), ["slowed_by", "convergence", "mlperf"]),
        ("0.6.0", list(SINCE), ["convergence", "mlperf"]),
        ("0.7.0", list(SINCE), []),
        ("0.10.0", list(SINCE), []),
        ("None", list(SINCE), []),
        ("", list(SINCE), []),
    ],
)
def test_a_key_is_younger_where_the_version_that_stored_the_result_had_none(
    stored_by: str, missing: list[str], younger: list[str]
) -> None:
    stored = {key: value for key, value in to_builtins(RESULT_VALUE).items() if key not in missing}
    assert younger_keys(stored, stored_by) == younger


def test_a_younger_key_and_why_it_is_null_are_no_difference_and_anything_else_is() -> None:
    nulls = {key: why for key, why in RESULT_VALUE.null_because.items() if key != "pgle"}
    stored = msgspec.structs.replace(RESULT_VALUE, null_because=nulls)
    assert differences(stored, RESULT_VALUE, STEPS_VALUE, STEPS_VALUE)
    assert differences(stored, RESULT_VALUE, STEPS_VALUE, STEPS_VALUE, ["pgle", "not_comparable"]) == []
    edited_too = msgspec.structs.replace(stored, tokens_per_second=9.0)
    (found,) = differences(edited_too, RESULT_VALUE, STEPS_VALUE, STEPS_VALUE, ["pgle"])
    assert found.startswith("result.json: tokens_per_second: stored 9.0")
    made_up = msgspec.structs.replace(RESULT_VALUE, null_because={**nulls, "pgle": "made up"})
    assert differences(made_up, RESULT_VALUE, STEPS_VALUE, STEPS_VALUE, ["pgle"])


def test_a_version_that_knew_the_datasheet_alone_agrees_and_its_figures_are_still_compared() -> None:
    assert RESULT_VALUE.mfu
    datasheet = [entry for entry in RESULT_VALUE.mfu if entry.table == "datasheet"]
    assert 0 < len(datasheet) < len(RESULT_VALUE.mfu)
    nulls = {key: why for key, why in RESULT_VALUE.null_because.items() if key != "hfu"}
    stored = msgspec.structs.replace(RESULT_VALUE, mfu=datasheet, hfu=None, null_because=nulls)
    assert differences(stored, RESULT_VALUE, STEPS_VALUE, STEPS_VALUE, ["hfu"]) == []
    assert differences(stored, RESULT_VALUE, STEPS_VALUE, STEPS_VALUE)
    better = [msgspec.structs.replace(datasheet[0], percent=99.0), *datasheet[1:]]
    edited_too = msgspec.structs.replace(stored, mfu=better)
    (found,) = differences(edited_too, RESULT_VALUE, STEPS_VALUE, STEPS_VALUE, ["hfu"])
    assert found.startswith("result.json: mfu[0]: percent: stored 99.0")


def test_an_fp8_result_from_before_there_was_a_mixed_peak_agrees() -> None:
    result, steps = example("fp8")
    assert result.mfu
    known = [entry for entry in result.mfu if entry.table == "datasheet" and entry.precision_peak in ("fp8", "bf16")]
    assert {entry.precision_peak for entry in known} == {"fp8", "bf16"}
    assert len(known) < sum(entry.table == "datasheet" for entry in result.mfu)
    nulls = {key: why for key, why in result.null_because.items() if key != "hfu"}
    stored = msgspec.structs.replace(result, mfu=known, hfu=None, null_because=nulls)
    assert differences(stored, result, steps, steps, ["hfu"]) == []
    assert differences(msgspec.structs.replace(stored, mfu=known[1:]), result, steps, steps, ["hfu"])


def test_why_there_was_no_mfu_is_said_in_other_words_now() -> None:
    unknown = msgspec.structs.replace(RESULT_VALUE, mfu=None, hfu=None, null_because={"mfu": "new words"})
    stored = msgspec.structs.replace(unknown, null_because={"mfu": "old words"})
    assert differences(stored, unknown, [], [], ["hfu"]) == []
    assert differences(stored, unknown, [], [])


def verified(folder: RunFolder) -> tuple[int, str]:
    done = forked.run(SCRIPT, folder.path)
    assert "Traceback" not in done.stderr, done.stderr
    return done.returncode, done.stdout


def test_verify_tells_what_an_earlier_version_did_not_have(whole_run: RunFolder) -> None:
    path = whole_run.path / RESULT
    stored = json.loads(path.read_text())

    def store(by: str | None) -> None:
        (whole_run.path / "provenance.json").write_text(json.dumps({"stepmark": by} if by else {}))
        result = to_builtins(recompute(whole_run, BACKEND)[0])
        del result["pgle"], result["not_comparable"], result["null_because"]["pgle"]
        path.write_text(json.dumps(result))

    assert stored["pgle"] is None
    store("0.3.0")
    code, said = verified(whole_run)
    assert code == 0
    assert "stored by Stepmark 0.3.0, which had no pgle, not_comparable: python launch/verify.py --repair" in said
    for version in ("0.4.0", None):
        store(version)
        code, said = verified(whole_run)
        assert code == 3
        assert "null_because: pgle: stored '(absent)'" in said
        assert "stored by" not in said


def test_a_result_that_agrees_needs_no_word_of_versions(whole_run: RunFolder) -> None:
    code, said = verified(whole_run)
    assert (code, said.count("\n")) == (0, 1)


@pytest.mark.parametrize(("stored_by", "why"), [("0.1.0", "written by Stepmark 0.1.0"), (None, "it was cut off")])
def test_a_folder_of_another_version_is_told_from_a_damaged_one(
    whole_run: RunFolder, stored_by: str | None, why: str
) -> None:
    path = whole_run.path / "benchmark.json"
    stored = json.loads(path.read_text())
    del stored["hardware"]["platform"]
    path.write_text(json.dumps(stored))
    (whole_run.path / "provenance.json").write_text(json.dumps({"stepmark": stored_by} if stored_by else {}))
    with pytest.raises(RequestError, match="missing required field `platform`") as refused:
        whole_run.benchmark()
    assert why in refused.value.why


def test_a_run_that_an_earlier_version_ended_early_still_agrees(whole_run: RunFolder) -> None:
    asked = json.loads((whole_run.path / BENCHMARK).read_bytes())
    whole_run.write(BENCHMARK, {**asked, "steps": asked["steps"] + 8, "until": {"half_width": 0.005, "at_least": 15}})
    events = whole_run.phase_dir("perf") / "events-rank0.jsonl"
    said = json.dumps({"event": "stopped", "step": asked["steps"] - 1, "decided": asked["steps"] - 3})
    events.write_text(f"{events.read_text()}{said}\n")
    stored = json.loads((whole_run.path / RESULT).read_bytes())
    nulls = {**stored["null_because"], "until.saving": "a step has no time"}
    whole_run.write(RESULT, {**stored, "until": {"target": 0.005, "saving": None}, "null_because": nulls})
    result, steps = recompute(whole_run, BACKEND)
    assert result.status == "valid"
    assert differences(whole_run.stored_result(), result, whole_run.stored_steps(), steps) == []
