"""--until: what may be asked, what is refused, and what a result says of a run that could end early."""

import random
from pathlib import Path
from typing import Any

import msgspec
import pytest

import nemo_backend
from benchmarks.backend import Backend
from benchmarks.configs import Configs
from benchmarks.early_stop import until
from benchmarks.errors import RequestError
from benchmarks.measuring.flops import parameter_count
from benchmarks.measuring.summary import Ended, Result, summarise
from benchmarks.planning.plan_text import plan_text
from benchmarks.rendering.columns import aligned
from benchmarks.rendering.report import result_rows
from benchmarks.request.resolve import Request, resolve
from benchmarks.runs.worker_events import read_phase
from benchmarks.sweeps.sweep import cells, check
from benchmarks.values import Benchmark, RunRecord, Step, Stopped, Until, WorkerEnd, WorkerFacts
from jax_backend import BACKEND

CONFIGS = Configs()
TARGET = "ci:0.5%"
BACKENDS: dict[str, Backend] = {"jax": BACKEND, "nemo": nemo_backend.BACKEND}
DECIDED, LAST = 17, 20


def resolved(backend: str = "jax", **wanted: Any) -> Benchmark:
    request = Request(**{"backend": backend, "model": "llama2_tiny", "until": TARGET, **wanted})
    return resolve(request, CONFIGS, BACKENDS[backend])


# --- what is asked --------------------------------------------------------------------------------


def test_a_target_is_read() -> None:
    assert until.parse(None) is None
    assert until.parse("ci:0.5%") == Until(half_width=0.005, at_least=15)
    for text, half_width in (("ci:0.05%", 0.0005), ("ci:10%", 0.1), ("ci:1.25%", 0.0125)):
        found = until.parse(text)
        assert found is not None
        assert found.half_width == pytest.approx(half_width)


@pytest.mark.parametrize(
    "text", ["", "0.5%", "ci:0.5", "ci:%", "ci:-1%", "ci: 1%", "ci:1e1%", "ci:nan%", "CI:1%", "ci:1%,2%", "ci:1 %"]
)
def test_what_is_no_target_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(RequestError, match="is expected") as refused:
        until.parse(text)
    assert refused.value.next_command == "--until=ci:0.5%"


@pytest.mark.parametrize("text", ["ci:0%", "ci:0.04%", "ci:0.0499%", "ci:10.1%", "ci:50%", "ci:999%"])
def test_a_target_that_nobody_reaches_or_that_says_nothing_is_refused(text: str) -> None:
    with pytest.raises(RequestError, match=r"it must be from 0.05% to 10%"):
        until.parse(text)


def test_it_is_part_of_the_benchmark_and_steps_are_the_most() -> None:
    benchmark = resolved()
    assert (benchmark.until, benchmark.steps) == (Until(half_width=0.005, at_least=15), 50)
    assert resolved(until=None).until is None


@pytest.mark.parametrize("backend", ["jax", "nemo"])
@pytest.mark.parametrize("gpus", [1, 2])
def test_the_worker_of_the_measured_phase_alone_is_told(backend: str, gpus: int) -> None:
    of = BACKENDS[backend]
    phases = of.plan(resolved(backend, gpus=gpus, until="ci:2%", steps=40)).phases
    assert [word for word in phases[-1].command if "until" in word] == ["--until=0.02,15,40"]
    assert not [word for phase in phases[:-1] for word in phase.command if "until" in word]
    without = of.plan(resolved(backend, gpus=gpus, until=None)).phases
    assert not [word for phase in without for word in phase.command if "until" in word]


def test_steps_that_pgle_disturbs_are_left_out_so_both_go_together() -> None:
    for way in ("auto", "nsys"):
        command = BACKEND.plan(resolved(hardware="h100", pgle=way)).phases[-1].command
        assert "--until=0.005,15,50" in command


def test_a_dry_run_says_that_steps_are_the_most() -> None:
    benchmark = resolved()
    text = plan_text(benchmark, BACKEND.plan(benchmark), BACKEND.storage(benchmark))
    assert "50 at most, until the median is known to +-0.5% (--until)" in text
    assert "--until=0.005,15,50" in text


# --- what is refused ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wanted", "says"),
    [
        ({"window": "35-44"}, "goes with window steady only, not with 35-44"),
        ({"window": "last"}, "goes with window steady only, not with last"),
        ({"profile": "xplane"}, "does not go with --profile=xplane"),
        ({"steps": 21}, "could not end a run of 21 steps early"),
        ({"steps": 28, "hardware": "h100", "pgle": "auto"}, "could not end a run of 28 steps early"),
        ({"dtype": "fp8"}, "has nothing to know of fp8 on cpu"),
    ],
)
def test_a_run_whose_end_is_not_its_own_to_choose_is_refused(wanted: dict[str, Any], says: str) -> None:
    with pytest.raises(RequestError, match=says) as refused:
        resolved(**wanted)
    assert refused.value.where.startswith("--until")
    assert resolved(**{**wanted, "until": None}).until is None


def test_the_fewest_steps_of_which_one_can_be_spared() -> None:
    assert resolved(steps=22).steps == 22
    assert resolved(steps=22, hardware="h100", pgle="nsys").steps == 22  # another phase is profiled
    assert resolved(steps=29, hardware="h100", pgle="auto").steps == 29  # steps 1 to 7 are disturbed


def test_a_program_that_runs_all_its_steps_is_refused() -> None:
    """Megatron-Bridge has no worker of ours; another backend may not know the option."""
    with pytest.raises(RequestError, match="with engine bridge has no --until"):
        resolved("nemo", model="llama3_8b", engine="bridge", hardware="h100", gpus=8)


def test_no_comparison_takes_it() -> None:
    requests = cells({"backend": "jax", "model": "llama2_tiny", "pgle": "off,auto"}, {"until": TARGET})
    with pytest.raises(RequestError, match="has no place in an A/B comparison"):
        check(requests, lambda _request: resolved(), skip_refused=False)
    for asked in (TARGET, Until(half_width=0.005, at_least=15)):
        with pytest.raises(RequestError, match="has no place in a nightly suite"):
            until.refuse_in_gate(asked, "a nightly suite")
    until.refuse_in_gate(None, "a nightly suite")


# --- what a result says ---------------------------------------------------------------------------


def steps_of(count: int, rank: int = 0, noise: float = 0.001) -> list[Step]:
    draw, elapsed, found = random.Random(7), 0.0, []
    for step in range(count):
        seconds = 0.05 if step == 0 else 0.01 * draw.gauss(1, noise)
        elapsed += seconds
        found.append(
            Step(step=step, seconds=seconds, loss=6 - step / 10, tokens=None, rank=rank, elapsed_seconds=elapsed)
        )
    return found


def record_of(steps: list[Step], stopped: dict[int, Stopped] | None = None, ranks: int = 1) -> RunRecord:
    parameters = parameter_count(CONFIGS.model("llama2_tiny"))
    facts = [
        WorkerFacts(
            rank=rank,
            process_count=ranks,
            device_count=ranks,
            local_device_count=1,
            device_kind="cpu",
            platform="cpu",
            parameters=parameters,
            trainable_parameters=parameters,
            mesh={"data": ranks},
            versions={},
            argv=[],
        )
        for rank in range(ranks)
    ]
    ends = [WorkerEnd(rank=rank, status="done") for rank in range(ranks)]
    said = {rank: Stopped(step=LAST, decided=DECIDED) for rank in range(ranks)} if stopped is None else stopped
    return RunRecord(attempt=1, facts=facts, steps=steps, ends=ends, unreadable=[], stopped=said)


def result_of(record: RunRecord, exit_code: int = 0, **wanted: Any) -> Result:
    ended = [Ended(rank=fact.rank, exit_code=exit_code) for fact in record.facts]
    return summarise(resolved(gpus=len(ended), nodes=len(ended), **wanted), "run-1", record, ended, "sha256:0")[0]


def test_a_run_that_ended_by_the_rule_is_valid_and_says_what_it_saved() -> None:
    steps = steps_of(LAST + 1)
    result = result_of(record_of(steps))
    assert (result.status, result.reasons) == ("valid", [])
    found, spread = result.until, result.seconds_per_step
    assert found is not None
    assert spread.median is not None
    assert spread.ci95 is not None
    assert (found.reached, found.decided, found.steps, found.fixed_steps) == (True, DECIDED, LAST + 1, 50)
    assert found.half_width == max(spread.ci95[1] - spread.median, spread.median - spread.ci95[0]) / spread.median
    assert found.half_width < found.target == 0.005
    spent = sum(step.seconds or 0 for step in steps)
    assert found.device_seconds == pytest.approx(spent)
    assert found.fixed_device_seconds == pytest.approx(spent + 29 * spread.median)
    assert found.saving == pytest.approx(29 * spread.median / (spent + 29 * spread.median))
    assert "step times had no time to settle" in found.why
    shown = "\n".join(aligned(result_rows(result)))
    assert "ci:0.5%, known to +-0.0" in shown
    assert "21 of 50 steps: 0.25 device-seconds of 0.54, 54% saved" in shown


def test_device_seconds_are_of_all_devices() -> None:
    both = [*steps_of(LAST + 1), *steps_of(LAST + 1, rank=1)]
    one, two = result_of(record_of(steps_of(LAST + 1))).until, result_of(record_of(both, ranks=2)).until
    assert one is not None
    assert two is not None
    assert one.device_seconds is not None
    assert two.device_seconds == pytest.approx(2 * one.device_seconds)
    assert two.saving == pytest.approx(one.saving)


def test_a_target_that_was_never_reached_is_valid_and_said() -> None:
    result = result_of(record_of(steps_of(50, noise=0.05), stopped={}))
    assert result.status == "valid"
    found = result.until
    assert found is not None
    assert (found.reached, found.decided, found.steps, found.saving) == (False, None, 50, 0.0)
    assert found.why.startswith("never reached: the median is known to +-")
    assert found.half_width is not None
    assert found.half_width > found.target
    assert "never reached" in "\n".join(aligned(result_rows(result)))


def test_without_it_there_is_nothing_to_say() -> None:
    result = result_of(record_of(steps_of(50), stopped={}), until=None)
    assert (result.status, result.until) == ("valid", None)
    assert "no --until" in result.null_because["until"]


@pytest.mark.parametrize(
    ("record", "exit_code", "reason"),
    [
        (record_of(steps_of(12), stopped={}), 1, "rank 0 ended with exit code 1 after step 11"),
        (record_of(steps_of(12), stopped={}), 0, "12 of 50 steps were trained"),
        (record_of(steps_of(LAST)), 0, f"{LAST} of {LAST + 1} steps were trained"),
        (record_of(steps_of(LAST)), 1, f"rank 0 ended with exit code 1 after step {LAST - 1}"),
    ],
)
def test_a_run_that_died_early_is_a_failure_all_the_same(record: RunRecord, exit_code: int, reason: str) -> None:
    result = result_of(record, exit_code)
    assert (result.status, result.reasons[0]) == ("failed", reason)
    assert result.until is not None
    assert (result.until.saving, result.until.half_width) == (None, None)
    assert result.null_because["until.saving"] == result.null_because["until.half_width"] == "the run failed"


@pytest.mark.parametrize(
    ("steps", "stopped", "reason"),
    [
        (
            steps_of(LAST, noise=0.05),
            {0: Stopped(step=LAST - 1, decided=DECIDED)},
            "by its steps the rule is met after no step",
        ),
        (
            steps_of(LAST + 2),
            {0: Stopped(step=LAST + 1, decided=DECIDED + 1)},
            "the run was ended after step 18, by its steps the rule is met after step 17",
        ),
        (
            steps_of(LAST + 2),
            {0: Stopped(step=LAST + 1, decided=DECIDED)},
            "the end after step 21 was announced 4 steps before",
        ),
        (steps_of(LAST + 3), None, "rank 0 ended after step 22, step 20 was announced as the last"),
        (steps_of(50), {}, "--until was reached after step 17, and the run did not end early"),
    ],
)
def test_an_end_that_does_not_follow_from_the_steps_makes_a_run_invalid(
    steps: list[Step], stopped: dict[int, Stopped] | None, reason: str
) -> None:
    result = result_of(record_of(steps, stopped))
    assert result.status == "invalid"
    assert reason in "; ".join(result.reasons)


def test_ranks_that_ended_apart_are_seen() -> None:
    result = result_of(record_of([*steps_of(LAST + 1), *steps_of(LAST, rank=1)], ranks=2))
    assert (result.status, result.reasons) == (
        "invalid",
        [f"rank 1 ended after step {LAST - 1}, step {LAST} was announced as the last"],
    )


def test_an_end_that_nobody_asked_for_is_no_excuse() -> None:
    result = result_of(record_of(steps_of(LAST + 1)), until=None)
    assert result.status == "failed"
    assert result.reasons == [
        f"{LAST + 1} of 50 steps were trained",
        "rank 0: ended early, and nobody had asked for it",
    ]


def test_the_event_of_every_rank_is_read(tmp_path: Path) -> None:
    for rank in (0, 1):
        path = tmp_path / f"events-rank{rank}.jsonl"
        path.write_text('{"event": "stopped", "step": 20, "decided": 17}\n')
    record = read_phase(tmp_path, 1)
    assert record.stopped == {0: Stopped(step=20, decided=17), 1: Stopped(step=20, decided=17)}
    assert record.unreadable == []


def test_a_result_reads_back() -> None:
    result = result_of(record_of(steps_of(LAST + 1)))
    assert msgspec.json.decode(msgspec.json.encode(result), type=Result) == result
