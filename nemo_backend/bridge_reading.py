"""Read a Megatron-Bridge run: what the worker wrote, and Bridge's own times of the steps from its log.

The last rank prints the steps, and only ranks of the last pipeline stage have a loss. An older Megatron-Bridge has no
callbacks and so no clock of Stepmark. Then its log is all there is: rank 0 prints nearly all other lines, and values
that Megatron-Bridge does not print are unknown.

Megatron's iterations count from 1, a run's steps from 0: iteration 1 is step 0. The lines are Megatron-Bridge 0.6.2's
(training/{setup,initialize,pretrain,train}.py) and Megatron-core 0.19.2's (megatron/training/models/dist_utils.py).
"""

import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import msgspec

from benchmarks.runs import worker_events
from benchmarks.values import Benchmark, EachTime, RunRecord, Step, WorkerEnd, WorkerFacts
from nemo_backend.logs import MEGATRON, follow_log, read_log

MESH = {
    "tensor": re.compile(rb"tensor model parallel with size (\d+)|\btensor_model_parallel_size: (\d+)"),
    "pipeline": re.compile(
        rb"> initialized pipeline model parallel with size (\d+)|\bpipeline_model_parallel_size: (\d+)"
    ),
    "context": re.compile(rb"\bcontext_parallel_size: (\d+)"),
    "virtual_pipeline": re.compile(rb"\bvirtual_pipeline_model_parallel_size: (\d+)"),
}
PARAMETERS = re.compile(
    rb"> number of parameters on \(tensor,(?: gtp_remat,)? pipeline\) model parallel rank \([\d, ]+\): (\d+)"
)
ON_CUDA = b"[after megatron is initialized] datetime:"  # it asserts before that CUDA is available

DONE = b"[after training is done] datetime:"
STOPPED = re.compile(rb"\[([eE]xiting program [^\]\r\n]{1,80})\] datetime:")
FAILED = re.compile(rb"Pretrain failed on rank=(\d+|[\w.-]+) with ([^\r\n]*?)\. Bridge is aborting")

NOTE_SECONDS = "step times are those that Megatron prints, to 0.1 ms, between barriers of all ranks"
NOTE_NUMBERS = "Megatron's iteration N is step N-1"


PIECE_BYTES = 1 << 24


class Logs:
    """The logs of all ranks, searched in pieces of whole lines."""

    def __init__(self, logs: list[Path]) -> None:
        self._logs = logs

    def __contains__(self, words: bytes) -> bool:
        return self.search(re.compile(re.escape(words))) is not None

    def search(self, pattern: re.Pattern[bytes]) -> re.Match[bytes] | None:
        """Return the first match, log by log."""
        for path in self._logs:
            with path.open("rb") as stream:
                while piece := stream.read(PIECE_BYTES) + stream.readline():
                    if found := pattern.search(piece):
                        return found
        return None


def read_phase(benchmark: Benchmark, phase_dir: Path, attempt: int) -> RunRecord:
    record = worker_events.read_phase(phase_dir, attempt)
    logs = [path for path in phase_dir.glob("rank-*.log") if _rank(path).isdecimal()]
    logs.sort(key=lambda path: int(_rank(path)))
    printed, unreadable = read_log(logs[-1], MEGATRON, attempt) if logs else ([], [])
    steps = _from_zero(printed)
    if record.facts or any(True for _ in record.steps):
        of_last = worker_events.follow(phase_dir, attempt, benchmark.gpus - 1)()
        whole = EachTime(lambda: _completed(record.steps, of_last, steps))
        return msgspec.structs.replace(record, steps=whole)
    texts = Logs(logs)
    broken = [end for end in record.ends if end.status != "done"]
    return RunRecord(
        attempt=attempt,
        facts=_facts(texts, len(logs)),
        steps=steps,
        ends=broken or _ends(texts, steps),
        unreadable=record.unreadable + unreadable,
    )


def _completed(clocked: Iterable[Step], of_last: list[Step], printed: list[Step]) -> Iterator[Step]:
    """Yield the worker's steps, those of rank 0 with the loss of the last rank and the time that Bridge printed."""
    losses, by_bridge = ({step.step: step for step in steps} for steps in (of_last, printed))
    for step in clocked:
        own = by_bridge.get(step.step)
        if step.rank or own is None:
            yield step
            continue
        yield msgspec.structs.replace(
            step,
            loss=losses[step.step].loss if step.loss is None and step.step in losses else step.loss,
            excluded_because=step.excluded_because or own.excluded_because,
            framework_seconds=own.framework_seconds,
            framework_tflops_per_device=own.framework_tflops_per_device or None,  # 0.0: too small to print
        )


def follow(benchmark: Benchmark, phase_dir: Path, attempt: int) -> Callable[[], list[Step]]:
    """New steps at each call, each once: the worker's of the last rank, which has the loss, or those of its log."""
    last = benchmark.gpus - 1
    events = worker_events.follow(phase_dir, attempt, last)
    log = follow_log(phase_dir / f"rank-{last}.log", MEGATRON, attempt)
    clocked = False

    def news() -> list[Step]:
        nonlocal clocked
        printed, found = _from_zero(log()), events()  # in this order: a step is written before it is printed
        clocked = clocked or bool(found)
        return found if clocked else printed

    return news


def _rank(log: Path) -> str:
    return log.stem.removeprefix("rank-")


def _from_zero(steps: list[Step]) -> list[Step]:
    return [msgspec.structs.replace(step, step=step.step - 1) for step in steps]


# --- facts --------------------------------------------------------------------------------------


def _facts(texts: Logs, processes: int) -> list[WorkerFacts]:
    """Return the facts that were printed before the first step; empty if the run did not get there."""
    if ON_CUDA not in texts:
        return []
    mesh = {axis: int(found[1] or found[2]) for axis, pattern in MESH.items() if (found := texts.search(pattern))}
    parameters = _parameters(mesh, texts)
    return [
        WorkerFacts(
            rank=0,
            process_count=processes,
            device_count=processes,  # each process drives one GPU
            local_device_count=1,
            device_kind=None,
            platform="cuda",
            parameters=parameters,
            trainable_parameters=None if b"PEFT Statistics:" in texts else parameters,
            mesh=mesh,
            versions={},
            argv=[],
            notes=[NOTE_SECONDS, NOTE_NUMBERS],
        )
    ]


def _parameters(mesh: dict[str, int], texts: Logs) -> int | None:
    """Return rank 0's parameters if it has the whole model: parts of a tensor group have copies of the norms."""
    count = texts.search(PARAMETERS)
    whole = mesh.get("tensor") == mesh.get("pipeline") == 1
    return int(count[1]) if count and whole else None


# --- ends ---------------------------------------------------------------------------------------


def _ends(texts: Logs, steps: list[Step]) -> list[WorkerEnd]:
    """Return how training ended, by the log. A process that died silently has no end here."""
    if failed := texts.search(FAILED):
        message = f"rank {failed[1].decode()}: {failed[2].decode(errors='replace')}"
        return [WorkerEnd(rank=0, status="error", message=message)]
    if stopped := texts.search(STOPPED):
        return [WorkerEnd(rank=0, status="interrupted", message=stopped[1].decode())]
    if DONE in texts:
        return [WorkerEnd(rank=0, status="done", failures=list(_failures(steps)))]
    return []


def _failures(steps: list[Step]) -> Iterator[str]:
    """Yield signs that the run did no training worth timing. Megatron does not print a NaN loss."""
    for reason in dict.fromkeys(step.excluded_because for step in steps if step.excluded_because):
        found = [step.step for step in steps if step.excluded_because == reason]
        yield f"Megatron reported {len(found)} of {len(steps)} steps as '{reason}', first step {found[0]}"
    silent = [step.step for step in steps if step.loss is None and step.excluded_because is None]
    if silent:
        yield f"{len(silent)} of {len(steps)} steps have a loss that is not a number, first step {silent[0]}"
