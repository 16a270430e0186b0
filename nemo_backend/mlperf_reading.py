"""Read the result of a submission's run from its MLPerf log, result_0.txt.

NVIDIA's program reports steps only as MLLOG lines, which rank 0 writes. So all steps in the result are from rank 0.
Regardless of the exit code, a run is valid only if it logs a success and an evaluation that reaches the target.
"""

import contextlib
from collections.abc import Iterator
from pathlib import Path

from benchmarks.mlperf.definitions import MlperfBenchmark
from benchmarks.mlperf.log_format import MLLOG
from benchmarks.mlperf.run_log import LoggedRun, read_records, read_runs
from benchmarks.mlperf.submission import CLOSED, Submission, division_of
from benchmarks.mlperf.time_to_train import PARTS, split_time_to_train
from benchmarks.preflight.nccl_tests import parse
from benchmarks.values import Benchmark, MlperfEvaluation, MlperfOutcome, RunRecord, WorkerEnd
from nemo_backend.logs import read_log

RESULT_FILE = "result_0.txt"
NCCL_LOG = "nccl/rank-0.log"  # from the phase before training
SPREAD = 1e-9  # tolerance for a learning rate that was printed and read back


def read_run(
    benchmark: Benchmark, submission: Submission, definition: MlperfBenchmark, phase_dir: Path, attempt: int
) -> RunRecord:
    if not phase_dir.is_dir():
        return RunRecord(attempt=attempt, facts=[], steps=[], ends=[], unreadable=[])
    runs: list[LoggedRun] = []
    with contextlib.suppress(FileNotFoundError), (phase_dir / RESULT_FILE).open("rb") as stream:
        runs = read_runs(read_records(stream))
    steps, unreadable = read_log(phase_dir / RESULT_FILE, MLLOG, attempt)
    if not runs or runs[-1].start_ms is None:
        ends = [_no_result("its log has no run_start")]
        return RunRecord(attempt=attempt, facts=[], steps=steps, ends=ends, unreadable=unreadable)
    run = runs[-1]
    outcome = _outcome(benchmark, definition, run)
    ends = [_no_result("its log has no run_stop")]
    if run.stop_ms is not None:
        failures = [*_failures(outcome, run), *_other_than_asked(benchmark, submission, run)]
        ends = [WorkerEnd(rank=0, status="done", failures=failures, notes=list(_notes(outcome, phase_dir)))]
        # Rank 0 records how the run ended; the other ranks only have exit codes.
        ranks = sorted(int(path.stem.removeprefix("rank-")) for path in phase_dir.glob("rank-*.log"))
        ends += [WorkerEnd(rank=rank, status="done") for rank in ranks if rank != 0]
    return RunRecord(attempt=attempt, facts=[], steps=steps, ends=ends, unreadable=unreadable, mlperf=outcome)


def _no_result(why: str) -> WorkerEnd:
    return WorkerEnd(rank=0, status="error", message=f"the submission ended without a result: {why}")


# --- the outcome --------------------------------------------------------------------------------


def _outcome(benchmark: Benchmark, definition: MlperfBenchmark, run: LoggedRun) -> MlperfOutcome:
    apart = split_time_to_train(run)
    divided = apart is not None and apart.divided
    return MlperfOutcome(
        benchmark=definition.name,
        file=RESULT_FILE,
        status=run.status,
        target=definition.target.at_most,
        reached=any(one.value is not None and definition.target.reached_by(one.value) for one in run.evaluations),
        division=division_of(benchmark),
        evaluations=[MlperfEvaluation(samples=one.samples, value=one.value) for one in run.evaluations],
        samples=run.samples,
        seconds=run.seconds,
        init_seconds=run.init_seconds,
        parts={name: getattr(apart, f"{name}_seconds") for name in (*PARTS, "other")} if divided else {},
        samples_per_second=apart.samples_per_second if apart else None,
    )


def _failures(outcome: MlperfOutcome, run: LoggedRun) -> Iterator[str]:
    """Yield the reasons why the run is not a result of this benchmark."""
    if run.status != "success":
        yield f"the run ended as '{run.status_text or run.status}'"
    if not outcome.reached:
        values = [one.value for one in run.evaluations if one.value is not None]
        best = f"the best of {len(values)} was {min(values):g}" if values else "the run had no evaluation"
        yield f"no evaluation reached {outcome.target:g}: {best}"
    if len(run.marks["run_start"]) > 1:
        yield f"the log has {len(run.marks['run_start'])} run_start lines, but only one run_stop"
    if outcome.division == CLOSED and "cache_clear" not in run.settings:
        yield "the log does not report that the caches were cleared (cache_clear)"


def _other_than_asked(benchmark: Benchmark, submission: Submission, run: LoggedRun) -> Iterator[str]:
    if run.benchmark not in (None, submission.name):
        yield f"the log belongs to {run.benchmark}, but the request was for {submission.name}"
    if run.batch not in (None, benchmark.batch.global_batch_size):
        yield f"the log has a global batch of {run.batch}, but the request has {benchmark.batch.global_batch_size}"
    rate = run.settings.get("opt_base_learning_rate")
    wanted_rate = benchmark.settings.knobs.get(submission.knobs.learning_rate)
    if isinstance(rate, int | float) and isinstance(wanted_rate, int | float) and abs(rate - wanted_rate) > SPREAD:
        yield f"the log has a learning rate of {rate:g}, but the request has {wanted_rate:g}"


def _notes(outcome: MlperfOutcome, phase_dir: Path) -> Iterator[str]:
    if outcome.division != CLOSED:
        yield f"{outcome.division} division: not a result of MLPerf's closed division"
    with contextlib.suppress(FileNotFoundError):
        text = (phase_dir.parent / NCCL_LOG).read_text(errors="replace")
        if (average := parse(text).average_gb_s) is not None:
            yield f"NCCL's all-reduce before the run: bus bandwidth {average:g} GB/s on average"
        elif "STEPMARK: not found" in text:
            yield "NCCL was not tested before the run, because the container has no all_reduce_perf"
