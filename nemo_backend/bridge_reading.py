"""Read the steps, facts and ends of a Megatron-Bridge run from the rank-*.log of its phase folder.

No worker of Stepmark runs inside Megatron-Bridge, so only its own lines are available. The last rank prints the
steps, which are recorded as rank 0's; rank 0 prints nearly all other lines. Values that Megatron-Bridge does not
print are unknown.

Megatron's iterations count from 1, a run's steps from 0: iteration 1 is step 0. The lines are Megatron-Bridge 0.6.2's
(training/{setup,initialize,pretrain,train}.py) and Megatron-core 0.19.2's (megatron/training/models/dist_utils.py).
"""

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from benchmarks.values import Benchmark, RunRecord, Step, WorkerEnd, WorkerFacts
from nemo_backend import profiles
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
    logs = [path for path in phase_dir.glob("rank-*.log") if _rank(path).isdecimal()]
    logs.sort(key=lambda path: int(_rank(path)))
    printed, unreadable = read_log(logs[-1], MEGATRON, attempt) if logs else ([], [])
    steps = _from_zero(printed)
    texts = Logs(logs)
    return RunRecord(
        attempt=attempt,
        facts=_facts(texts, len(logs)),
        steps=profiles.mark_disturbed(steps, benchmark.instruments.profiling),
        ends=_ends(texts, steps),
        unreadable=unreadable,
    )


def follow(benchmark: Benchmark, phase_dir: Path, attempt: int) -> Callable[[], list[Step]]:
    """New steps at each call, each once."""
    news = follow_log(phase_dir / f"rank-{benchmark.gpus - 1}.log", MEGATRON, attempt)
    return lambda: profiles.mark_disturbed(_from_zero(news()), benchmark.instruments.profiling)


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
