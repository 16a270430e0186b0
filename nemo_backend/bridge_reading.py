"""Reads what a Megatron-Bridge run printed: steps, facts and ends, out of the rank-*.log of its phase folder.

No worker of Stepmark runs inside Megatron-Bridge, so its own lines are all there is: the last rank prints the steps,
rank 0 nearly everything else. Every rank has a log of its own, or a launcher has joined them into one; either way the
steps are called rank 0's, as everywhere. What Megatron-Bridge does not print is unknown, and stays so.

Megatron's iterations count from 1, a run's steps from 0: iteration 1 is step 0. The lines are Megatron-Bridge 0.6.2's
(training/{setup,initialize,pretrain,train}.py) and Megatron-core 0.19.2's (megatron/training/models/dist_utils.py).
"""

import re
from collections.abc import Callable, Iterable, Iterator
from math import prod
from pathlib import Path
from typing import NamedTuple

import msgspec

from benchmarks.values import RunRecord, Step, WorkerEnd, WorkerFacts
from nemo_backend.logs import MEGATRON, follow_log

RANK_LOG = re.compile(r"rank-(\d+)\.log")

MESH = {
    "tensor": re.compile(rb"tensor model parallel with size (\d+)|\btensor_model_parallel_size: (\d+)"),
    "pipeline": re.compile(
        rb"> initialized pipeline model parallel with size (\d+)|\bpipeline_model_parallel_size: (\d+)"
    ),
    "context": re.compile(rb"\bcontext_parallel_size: (\d+)"),
    "virtual_pipeline": re.compile(rb"\bvirtual_pipeline_model_parallel_size: (\d+)"),
}
WORLD_SIZE = re.compile(rb"using world size: (\d+)")  # Megatron-LM's; Megatron-Bridge says no such thing
TIED = re.compile(rb"\bshare_embeddings_and_output_weights: true")
PARAMETERS = re.compile(
    rb"> number of parameters on \(tensor,(?: gtp_remat,)? pipeline\) model parallel rank"
    rb" \((\d+),(?: \d+,)? (\d+)\): (\d+)"
)
ADAPTERS = re.compile(rb"PEFT Statistics:")
TRAINABLE = re.compile(rb" Trainable parameters: ([\d,]+)")
ON_CUDA = b"[after megatron is initialized] datetime:"  # it asserts before that CUDA is there

DONE = b"[after training is done] datetime:"
STOPPED = re.compile(
    rb"\[(exiting program after receiving SIGTERM\.|exiting program after [\d.]+ minutes"
    rb"|exiting program at iteration \d+|Exiting program due to straggler detection\.)\] datetime:"
)
FAILED = re.compile(rb"Pretrain failed on rank=(\d+|[\w.-]+) with ([^\r\n]*?)\. Bridge is aborting")

NOTE_SECONDS = "a step's seconds are Megatron's own print, to 0.1 ms, between barriers of all ranks"
NOTE_NUMBERS = "Megatron's iteration N is step N-1"


class _Log(NamedTuple):
    rank: int
    path: Path


def read_phase(phase_dir: Path, attempt: int) -> RunRecord:
    logs = _rank_logs(phase_dir)
    texts = {log.rank: log.path.read_bytes() for log in logs}
    steps, unreadable, others = _steps(logs, attempt)
    return RunRecord(
        attempt=attempt,
        facts=_facts(texts, others),
        steps=steps,
        ends=_ends(texts, steps),
        unreadable=unreadable,
    )


def follow(phase_dir: Path, attempt: int) -> Callable[[], list[Step]]:
    """New steps at each call, each once, whichever log they appear in.

    The logs of the first and the last rank are watched: the one of a joined log, the other of a rank each.
    """
    followed: dict[Path, Callable[[], list[Step]]] = {}
    seen: set[tuple[int, int]] = set()

    def new_steps() -> list[Step]:
        logs = _rank_logs(phase_dir)
        for log in logs[:1] + logs[-1:]:
            followed.setdefault(log.path, follow_log(log.path, attempt))
        found = [_ours(step) for news in followed.values() for step in news()]
        fresh = [step for step in found if (step.attempt, step.step) not in seen]
        seen.update((step.attempt, step.step) for step in fresh)
        return fresh

    return new_steps


def _rank_logs(phase_dir: Path) -> list[_Log]:
    named = [(RANK_LOG.fullmatch(path.name), path) for path in phase_dir.glob("rank-*.log")]
    return sorted(_Log(int(match[1]), path) for match, path in named if match)


# --- steps --------------------------------------------------------------------------------------


def _steps(logs: list[_Log], attempt: int) -> tuple[list[Step], list[str], int]:
    """The steps of the last rank that printed any, what could not be read there, and how many more logs hold any."""
    chosen: tuple[list[Step], list[str]] | None = None
    others = 0
    for log in reversed(logs):
        steps, unreadable = _read_log(log.path, attempt)
        if steps and chosen is not None:
            others += 1
        elif steps or unreadable:
            chosen = chosen if chosen and chosen[0] else (steps, unreadable)
    return (*chosen, others) if chosen else ([], [], 0)


def _read_log(path: Path, attempt: int) -> tuple[list[Step], list[str]]:
    steps: list[Step] = []
    unreadable: list[str] = []
    with path.open("rb") as stream:
        for event in MEGATRON.read(stream):
            if event.step is not None:
                steps.append(_ours(msgspec.structs.replace(event.step, attempt=attempt + event.step.attempt - 1)))
            if event.skipped is not None:
                unreadable.append(f"{path.name}:{event.skipped.line} {event.skipped.reason}")
    return steps, unreadable


def _ours(step: Step) -> Step:
    return msgspec.structs.replace(step, step=step.step - 1, rank=0)


# --- facts --------------------------------------------------------------------------------------


def _facts(texts: dict[int, bytes], other_logs: int) -> list[WorkerFacts]:
    """What was printed once before the first step; nothing where the run did not get so far."""
    if not any(ON_CUDA in text for text in texts.values()):
        return []
    mesh = {word: size for word, pattern in MESH.items() if (size := _first_number(pattern, texts.values()))}
    processes = _processes(texts)
    parameters = _parameters(mesh, list(texts.values()))
    notes = [NOTE_SECONDS, NOTE_NUMBERS]
    if other_logs:
        notes.append(f"{other_logs} more logs hold steps: those of the last rank that printed any are counted")
    return [
        WorkerFacts(
            rank=0,
            process_count=processes,
            device_count=processes,  # each process drives one GPU
            local_device_count=1,
            device_kind=None,
            platform="cuda",
            parameters=parameters,
            trainable_parameters=_trainable(mesh, parameters, list(texts.values())),
            mesh=mesh,
            versions={},
            argv=[],
            notes=notes,
        )
    ]


def _processes(texts: dict[int, bytes]) -> int | None:
    """As many as there are logs where each rank has its own; one log alone may be that of many ranks, joined."""
    one_each = len(texts) > 1 and max(texts) == len(texts) - 1
    return len(texts) if one_each else _first_number(WORLD_SIZE, texts.values())


def _first_number(pattern: re.Pattern[bytes], texts: Iterable[bytes]) -> int | None:
    for text in texts:
        if found := pattern.search(text):
            return int(next(group for group in found.groups() if group is not None))
    return None


def _parameters(mesh: dict[str, int], texts: list[bytes]) -> int | None:
    """The sum over the pipeline's stages; unknown where tensor shares each have copies of the norms' scales."""
    stages = {int(found[2]): int(found[3]) for text in texts for found in PARAMETERS.finditer(text)}
    copies = mesh.get("tensor") != 1 or (len(stages) > 1 and any(TIED.search(text) for text in texts))
    whole = stages.keys() == set(range(mesh.get("pipeline", 0)))
    return sum(stages.values()) if stages and whole and not copies else None


def _trainable(mesh: dict[str, int], parameters: int | None, texts: list[bytes]) -> int | None:
    """Rank 0 counts the adapters of its own first part of the model alone: the whole only where that is all."""
    if not any(ADAPTERS.search(text) for text in texts):
        return parameters
    if not {"tensor", "pipeline"} <= mesh.keys() or prod(v for k, v in mesh.items() if k != "context") != 1:
        return None
    counts = [found for text in texts for found in TRAINABLE.findall(text)]
    return int(counts[0].replace(b",", b"")) if counts else None


# --- ends ---------------------------------------------------------------------------------------


def _ends(texts: dict[int, bytes], steps: list[Step]) -> list[WorkerEnd]:
    """How training ended, where the log says so; a process that died without a word has no end here."""
    for text in texts.values():
        if failed := FAILED.search(text):
            message = f"rank {failed[1].decode()}: {failed[2].decode(errors='replace')}"
            return [WorkerEnd(rank=0, status="error", message=message)]
    for text in texts.values():
        if stopped := STOPPED.search(text):
            return [WorkerEnd(rank=0, status="interrupted", message=stopped[1].decode())]
    if any(DONE in text for text in texts.values()):
        return [WorkerEnd(rank=0, status="done", failures=list(_failures(steps)))]
    return []


def _failures(steps: list[Step]) -> Iterator[str]:
    """What shows that the run did no training worth timing. Megatron prints no loss that is not a number."""
    for reason in dict.fromkeys(step.excluded_because for step in steps if step.excluded_because):
        found = [step.step for step in steps if step.excluded_because == reason]
        yield f"Megatron reported {len(found)} of {len(steps)} steps as '{reason}', the first was step {found[0]}"
    silent = [step.step for step in steps if step.loss is None and step.excluded_because is None]
    if silent:
        yield f"{len(silent)} of {len(steps)} steps have no loss, the first was step {silent[0]}: it was not a number"
