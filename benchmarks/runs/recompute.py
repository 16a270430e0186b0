"""Compute a run's result from its raw files, at the end of the run and in verify.py, and compare a stored result
with it.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import zip_longest
from typing import Any

import msgspec

from benchmarks.backend import Backend
from benchmarks.job_record import AttemptEnd, ProcessEnd, figures_from
from benchmarks.measuring.failures import failed_phase, first_to_fail
from benchmarks.measuring.summary import Result, RunEvidence, summarise
from benchmarks.runs.runfolder import OTHER_ATTEMPTS, RunFolder
from benchmarks.telemetry import samples
from benchmarks.values import EachTime, RunRecord, Step, first_rank, to_builtins

# Libraries may round the last bits differently. An edit by hand changes a value by more than this.
RELATIVE_TOLERANCE = 1e-9

ABSENT = "(absent)"


def recompute(folder: RunFolder, backend: Backend) -> tuple[Result, Iterable[Step]]:
    """Return the result and all steps of a run, from its raw files only. The metrics come from one attempt."""
    folder.refuse_older()
    benchmark = folder.benchmark()
    measured = folder.measured_phase()
    phase = measured.name
    records = [backend.read_phase(benchmark, folder.phase_dir(phase, n), n) for n in folder.attempts()] or [
        RunRecord(attempt=1, facts=[], steps=[], ends=[], unreadable=[])
    ]
    attempts: list[AttemptEnd] = []
    if folder.is_queued():
        from benchmarks.runs.attempts import queued_attempts

        attempts = [_with_rank(folder, *one) for one in zip(records, queued_attempts(folder, records), strict=True)]
    measured_in = attempts.index(figures_from(attempts)) if attempts else len(records) - 1
    last, others = records[measured_in], [*records[:measured_in], *records[measured_in + 1 :]]
    ended = folder.ended(phase, last.attempt)
    phases = [one.name for one in folder.plan().phases]
    interrupted = any(one.interrupted for name in phases for one in folder.ended(name, last.attempt))
    result, marked = summarise(
        RunEvidence(
            benchmark=benchmark,
            run_id=folder.recorded_run_id(),
            record=last,
            ended=ended,
            provenance_digest=folder.provenance_digest(),
            notes=[
                *folder.provenance().get("notes", []),
                *folder.changed_since_sealed(),
                *(f"attempt-{one.attempt}: {line}" for one in others for line in one.unreadable),
                *_unbound(ended),
            ],
            failed_before=_failed_before(folder, backend, phase, last.attempt, queued=bool(attempts))
            or _not_written(folder, last.attempt, written=bool(ended or attempts)),
            attempts=attempts,
            processes=measured.tasks,
            sampled=samples.read(folder.telemetry_dir(last.attempt)),
            recompute=None if benchmark.is_submission else backend.storage(benchmark).recompute,
            interrupted=interrupted,
        )
    )
    if benchmark.instruments.profile != "none":
        from benchmarks.request.profiling import not_recorded

        unproven = not_recorded(benchmark, measured, folder.phase_dir(phase, last.attempt))
        if unproven and result.status != "failed":
            result = msgspec.structs.replace(result, status="invalid", reasons=[*result.reasons, *unproven])
    if not attempts:
        ends = _attempts_here(records, result, interrupted=interrupted)
        result = msgspec.structs.replace(result, attempts=[*ends[:-1], _with_rank(folder, last, ends[-1])])

    def of_all_attempts() -> Iterator[Step]:
        for record in records:
            if record is last:
                yield from marked
                continue
            reason = OTHER_ATTEMPTS[record.attempt > last.attempt]
            for step in record.steps:
                yield msgspec.structs.replace(step, tokens=benchmark.tokens_per_step, excluded_because=reason)

    return result, EachTime(of_all_attempts)


def _attempts_here(records: Sequence[RunRecord], result: Result, *, interrupted: bool) -> list[AttemptEnd]:
    """Return how the attempts of a local run ended. The last attempt ended with the run's status."""
    *earlier, last = records
    followed = "another attempt followed"
    ends = [
        AttemptEnd(attempt=one.attempt, outcome="unknown", text=followed, steps=_first_rank_steps(one))
        for one in earlier
    ]
    end = AttemptEnd(attempt=last.attempt, outcome="completed", text="completed", steps=_first_rank_steps(last))
    if result.status == "failed":
        why = result.reasons[0]
        outcome = "cancelled" if interrupted else "failed"
        end = msgspec.structs.replace(end, outcome=outcome, text=why)
    return [*ends, end]


def _with_rank(folder: RunFolder, record: RunRecord, end: AttemptEnd) -> AttemptEnd:
    """Add the rank whose log the user should read first: the first to fail, in the first phase with a failure."""
    if end.rank is not None or end.outcome == "completed":
        return end
    ends = {one.rank: one for one in record.ends}
    measured = folder.measured_phase().name
    for phase in folder.plan().phases:
        ended = folder.ended(phase.name, record.attempt)
        first = first_to_fail(ended, ends if phase.name == measured else None, end.outcome)
        if first is not None:
            return msgspec.structs.replace(end, rank=first.rank)
    return end


def _first_rank_steps(record: RunRecord) -> int:
    return len(first_rank(record.steps))


def _failed_before(folder: RunFolder, backend: Backend, measured: str, attempt: int, *, queued: bool) -> list[str]:
    """Return why an earlier phase failed, so that the measured phase never started.

    For a queued run, skip `check` and `unpack`: the record of how the attempt ended already explains their failures.
    """
    found = []
    benchmark = folder.benchmark()
    of_the_job: tuple[str, ...] = ()
    if queued:
        from benchmarks.runs.first_check import BEFORE_THE_RUN

        of_the_job = BEFORE_THE_RUN
    for phase in folder.plan().phases:
        if phase.name == measured:
            break
        if phase.name in of_the_job:
            continue
        phase_ends = backend.read_phase(benchmark, folder.phase_dir(phase.name, attempt), attempt).ends
        found += failed_phase(phase.name, folder.ended(phase.name, attempt), phase_ends)
    return found


def _not_written(folder: RunFolder, attempt: int, *, written: bool) -> list[str]:
    """Return why a local run has no record of its end, if the launcher could note the reason."""
    reason = None if written else folder.could_not_write(attempt)
    return [f"the launcher could not record that the run ended: {reason}"] if reason else []


def _unbound(ended: Sequence[ProcessEnd]) -> list[str]:
    """Return a note if ranks were not bound to the CPUs of their GPU, because this can slow down their steps."""
    reasons = [one.binding.why for one in ended if one.binding is not None and one.binding.why]
    named = ", ".join(dict.fromkeys(reasons))
    return [f"{len(reasons)} of {len(ended)} ranks were not bound to a NUMA node: {named}"] if reasons else []


# --- a stored result ----------------------------------------------------------------------------


def differences(
    stored_result: Result, result: Result, stored_steps: Iterable[Step], steps: Iterable[Step]
) -> list[str]:
    """Return one line per difference: the place, the stored value, and the value computed from the raw files."""
    found = list(_differences_at("result.json", to_builtins(stored_result), to_builtins(result)))
    of_steps: list[str] = []
    counts = [0, 0]
    for stored, step in zip_longest(stored_steps, steps):
        counts[0] += stored is not None
        counts[1] += step is not None
        if stored is not None and step is not None and stored != step:
            place = f"steps.jsonl step {step.step} rank {step.rank}"
            of_steps += _differences_at(place, to_builtins(stored), to_builtins(step))
    if counts[0] != counts[1]:
        found.append(f"steps.jsonl has {counts[0]} steps, but the raw files have {counts[1]}")
    return found + of_steps


def _differences_at(path: str, stored: Any, computed: Any) -> Iterator[str]:
    if isinstance(stored, dict) and isinstance(computed, dict):
        for key in sorted(stored.keys() | computed.keys()):
            yield from _differences_at(f"{path}: {key}", stored.get(key, ABSENT), computed.get(key, ABSENT))
    elif isinstance(stored, list) and isinstance(computed, list) and len(stored) == len(computed):
        for index, (one, other) in enumerate(zip(stored, computed, strict=True)):
            yield from _differences_at(f"{path}[{index}]", one, other)
    elif not _same(stored, computed):
        yield f"{path}: stored {stored!r}, but the raw files give {computed!r}"


def _same(stored: Any, computed: Any) -> bool:
    if isinstance(stored, float) and isinstance(computed, float):
        return math.isclose(stored, computed, rel_tol=RELATIVE_TOLERANCE)
    return type(stored) is type(computed) and bool(stored == computed)
