"""A sweep with invalid cells is refused as a whole; then the remaining runs."""

from itertools import combinations
from typing import Any

import msgspec
import pytest

from benchmarks.compare.admission import interleaved
from benchmarks.configs import Configs
from benchmarks.errors import RequestError
from benchmarks.request.resolve import Request, requests_of, resolve
from benchmarks.runs.finished_run import FinishedRun, changed
from benchmarks.sweeps import sweep
from benchmarks.sweeps.sweep import Slot, Sweep, SweepRun
from benchmarks.values import Benchmark
from jax_backend import BACKEND
from tests.benchmarks.compare.made import run
from tests.benchmarks.sweeps.test_scaling import result, scale

TINY: dict[str, str | None] = {"backend": "jax", "model": "llama2_tiny"}
CONFIGS = Configs()


def cells(**lists: str | None) -> list[Request]:
    return requests_of({**TINY, **lists}, {"site": "local", "steps": 12})


def resolved(request: Request) -> Benchmark:
    return resolve(request, CONFIGS, BACKEND)


def a_sweep(repeats: int = 2, **lists: str) -> Sweep:
    requests = cells(**lists or {"gpus": "1,2"})
    return sweep.new_sweep(requests, sweep.check(requests, resolved, False), repeats, ["run.py"])


def with_runs(of: Sweep, *runs: tuple[str, int, int]) -> Sweep:
    made = [SweepRun(run_id=name, cell=cell, repeat=repeat, started=0.0) for name, cell, repeat in runs]
    return msgspec.structs.replace(of, runs=made)


def outcome(status: str) -> FinishedRun:
    return changed(result(scale(1), 0.1), status=status, reasons=[] if status == "valid" else ["why"])


# --- what can work ------------------------------------------------------------------------------


def test_one_cell_that_cannot_work_refuses_all_and_names_both_kinds() -> None:
    with pytest.raises(RequestError) as refusal:
        sweep.check(cells(gpus="1,3,2", dtype="fp32,int9"), resolved, False)
    text = str(refusal.value)
    assert "4 of the 6 cells" in text
    assert "nothing was started" in text
    assert "--dtype=fp32 --gpus=3: recipe" in text
    assert text.count("int9") >= 3
    assert "--skip_refused runs the other 2" in text


MANY = ",".join(str(number) for number in range(1000, 1050))


@pytest.mark.parametrize(
    ("lists", "skip", "message"),
    [
        ({"model": "lama2_tiny", "gpus": "1,2"}, False, "unknown model 'lama2_tiny': did you mean"),
        ({"model": "lama2_tiny", "gpus": "1,2"}, True, "unknown model 'lama2_tiny': did you mean"),
        ({"gpus": "3,5"}, True, "2 of the 2 cells"),  # all, for several reasons: none is left to run
        ({"gpus": f"1,{MANY}"}, False, "and 30 more"),
    ],
)
def test_what_is_refused_as_a_whole(lists: dict[str, str | None], skip: bool, message: str) -> None:
    with pytest.raises(RequestError) as refusal:
        sweep.check(cells(**lists), resolved, skip)
    assert message in str(refusal.value)
    assert ("--skip_refused" in str(refusal.value)) == (MANY in str(lists))


# --- the record ---------------------------------------------------------------------------------


def key(repeats: int = 1, **changes: Any) -> str:
    rest = {"settings": {"a": "1", "b": "2"}, **changes}
    return sweep.key(requests_of(TINY, rest), repeats)


def test_the_same_flags_have_the_same_key_in_any_order() -> None:
    assert key() == key(settings={"b": "2", "a": "1"})
    assert len({key(), key(2), key(steps=7), key(settings={"a": "1"}), key(site="dev")}) == 5


def test_other_configs_make_another_sweep_but_another_time_limit_does_not() -> None:
    benchmark = resolved(cells()[0])
    changed = msgspec.structs.replace(benchmark, steps=99)
    elsewhere = msgspec.structs.replace(benchmark, site=msgspec.structs.replace(benchmark.site, title="other"))
    assert sweep.digest(changed) != sweep.digest(benchmark)
    assert sweep.digest(elsewhere) == sweep.digest(benchmark)


# --- an A/B -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("lists", "profile", "repeats", "jobs"),
    [
        ({"pgle": "off,auto"}, "none", 6, 1),
        ({"pgle": "off,auto"}, "xplane", 1, 1),
        ({"pgle": "auto"}, "none", 1, 4),
        ({"gpus": "1,2"}, "none", 1, 4),
    ],
)
def test_an_ab_is_repeated_and_its_runs_come_one_after_the_other(
    lists: dict[str, str | None], profile: str, repeats: int, jobs: int
) -> None:
    requests = requests_of({**TINY, **lists}, {"profile": profile})
    assert (sweep.repeats_wanted(requests, None), sweep.jobs_at_once(requests, None, 4)) == (repeats, jobs)
    assert (sweep.repeats_wanted(requests, 5), sweep.jobs_at_once(requests, 3, 4)) == (5, 3)


# --- what is still to do ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "lists", [{"dtype": "fp32,bf16"}, {"backend": "jax,nemo"}, {"gpus": "1,2", "dtype": "fp32,bf16"}]
)
@pytest.mark.parametrize("repeats", [3, 4, 6])
def test_any_two_cells_are_run_in_turns(lists: dict[str, str | None], repeats: int) -> None:
    """As compare.py judges it, whichever lists make the cells."""
    requests = cells(**lists)
    order = sweep.slots(len(requests), repeats)
    runs = [
        [run(f"20261122T06{place:02}00Z-x") for place, slot in enumerate(order) if slot.cell == cell]
        for cell in range(len(requests))
    ]
    assert all(interleaved(one, other) for one, other in combinations(runs, 2))
    in_order = [run(f"20261122T06{place:02}00Z-x") for place in range(2 * repeats)]
    assert not interleaved(in_order[:repeats], in_order[repeats:])


def test_valid_and_going_runs_are_kept_and_all_others_run_again() -> None:
    of = with_runs(a_sweep(), ("good", 0, 1), ("bad", 1, 1), ("lost", 1, 2), ("going", 0, 2))
    results = {"good": outcome("valid"), "bad": outcome("invalid"), "lost": None, "going": None}
    assert sweep.still_to_do(of, results, ["going"]) == [Slot(1, 1), Slot(1, 2)]
    assert sweep.still_to_do(of, {}, []) == sweep.slots(2, 2)


@pytest.mark.parametrize(
    ("ended", "code"),
    [
        (["0 valid", "1 valid"], 0),
        (["0 valid", "1 invalid"], 3),
        (["0 failed", "1 invalid"], 1),
        (["0 valid"], 1),  # a run that never started
        (["0 failed", "0 valid", "1 valid"], 0),  # made good
        (["0 valid", "0 failed", "1 valid"], 0),
        (["0 failed", "0 gone", "1 valid"], 1),
    ],
)
def test_the_exit_code_is_that_of_the_worst_cell(ended: list[str], code: int) -> None:
    runs = [(f"{n}", int(one[0]), 1) for n, one in enumerate(ended)]
    results = {f"{n}": outcome(one[2:]) if one[2:] != "gone" else None for n, one in enumerate(ended)}
    assert sweep.exit_code(with_runs(a_sweep(repeats=1), *runs), results) == code
