"""The proof that backends do the same work: each trains the same steps from the same weights, and all is compared.

The first backend that can starts from weights of its own, perturbed; the others are given them.
"""

import contextlib
import shutil
import tempfile
import time
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import msgspec

from benchmarks.backend import Backend, ProvesWork, SideProgram, backends
from benchmarks.equivalence import equivalence
from benchmarks.equivalence.equivalence import Comparison, Computed
from benchmarks.equivalence.mutations import LORA, PRETRAIN, Plant, planted
from benchmarks.equivalence.work import WorkCase, WorkReport, WorkRequest
from benchmarks.errors import EXIT_INVALID, EXIT_VALID, RequestError, RunError
from benchmarks.inside import work_kit
from benchmarks.inside.work_kit import Arrays
from benchmarks.machine.machine_gpus import busy_text
from benchmarks.model.flops import parameter_count
from benchmarks.request.resolve import Request, resolve
from benchmarks.text import aligned, duration_text
from benchmarks.values import Benchmark, Model, json_text
from launch.machine import machine_gpus
from launch.running.side_program import removed_on_interrupt, run_side_program
from launch.terminal.output import answer
from launch.terminal.places import configs
from launch.terminal.progress import say

MODELS = ("llama2_tiny", "llama3_tiny")
AS_IT_IS = "as_it_is"
MOST_PARAMETERS = 20_000_000  # some 3 GB in all the arrays of both sides

SETTINGS = {"sequence_length": str(equivalence.SEQUENCE), "micro_batch_size": str(equivalence.BATCH)}


class Contender(NamedTuple):
    """A backend that takes part: its benchmark of the model, and the program that says what it computes."""

    backend: Backend
    benchmark: Benchmark
    program: SideProgram


@dataclass
class Proof:
    """What --json prints; filled while the models are compared."""

    dtype: str
    hardware: str
    tolerances: dict[str, float]
    not_compared: dict[str, str]  # backend and model -> why
    told: dict[str, WorkCase] = field(default_factory=dict)  # model -> what the sides with given weights were told
    comparisons: list[Comparison] = field(default_factory=list)
    caught: dict[str, dict[str, list[str]]] = field(
        default_factory=dict
    )  # model -> plant -> lines that only it moves
    versions: dict[str, dict[str, str]] = field(default_factory=dict)
    notes: dict[str, list[str]] = field(default_factory=dict)
    agree: bool = False
    seconds: float = 0.0
    files: str | None = None


def _prove(
    proof: Proof, model: Model, contenders: Sequence[Contender], plants: Sequence[Plant], folder: Path
) -> None:
    """Of one model: the first contender's weights are given to the others."""
    first, *others = contenders
    given = equivalence.batches(model)
    case = equivalence.case(first.benchmark.lora, proof.dtype)
    source = _computed(proof, first, {AS_IT_IS: (case, given)}, folder)[AS_IT_IS]
    given |= work_kit.under(work_kit.WEIGHT, work_kit.below(source.arrays, work_kit.WEIGHT))
    scale = source.report.settings.get("attention_scale")
    case = msgspec.structs.replace(
        case, perturb_seed=None, attention_scale=float(scale) if isinstance(scale, float) else None
    )
    proof.told[model.name] = case
    uncounted = msgspec.structs.replace(case, count_flops=False)
    cases = {AS_IT_IS: (case, given)} | {one.name: planted(one, uncounted, given, model) for one in plants}
    caught = proof.caught.setdefault(model.name, {})
    for other in others:
        computed, lora = _computed(proof, other, cases, folder), other.benchmark.lora
        as_it_is = equivalence.compare(model, source, computed.pop(AS_IT_IS), "", lora, proof.tolerances)
        with_plants = {
            name: equivalence.compare(model, source, found, name, lora, proof.tolerances)
            for name, found in computed.items()
        }
        proof.comparisons += [as_it_is, *with_plants.values()]
        caught |= {name: equivalence.caught(found, as_it_is) for name, found in with_plants.items()}


def _computed(
    proof: Proof, contender: Contender, cases: dict[str, tuple[WorkCase, Arrays]], folder: Path
) -> dict[str, Computed]:
    """Run a backend's program once, for all of the cases."""
    name, benchmark = contender.backend.name, contender.benchmark
    folder = folder / benchmark.model.name / name
    for case_name, (_, given) in cases.items():
        (folder / case_name).mkdir(parents=True, exist_ok=True)
        work_kit.write(folder / case_name / work_kit.GIVEN, given)
    request = WorkRequest(cases={case_name: case for case_name, (case, _) in cases.items()})
    (folder / work_kit.REQUEST).write_text(json_text(request))
    title, wanted = contender.backend.title, equivalence.UPDATES + 1
    more = f", and {len(cases) - 1} times more with a plant" if len(cases) > 1 else ""
    say(f"{benchmark.model.name}: {title} trains {wanted} steps{more} ...")
    gpus = machine_gpus.chosen(benchmark)
    busy = busy_text(gpus)
    started = time.monotonic()
    report = run_side_program(contender.backend, benchmark.engine, contender.program, folder, WorkReport, gpus=gpus)
    say(f"{benchmark.model.name}: {title} is done, in {duration_text(time.monotonic() - started)}")
    proof.versions[name] = report.versions
    proof.notes[name] = [*report.notes, *([f"in use when it began: {busy}"] if busy else [])]
    missing = [name for name in cases if name not in report.cases or len(report.cases[name].steps) != wanted]
    if missing:
        raise RunError(f"{title} does not say of {wanted} steps in: {', '.join(missing)}", where=str(folder))
    return {
        case_name: Computed(title, report.cases[case_name], arrays_of(title, folder / case_name / work_kit.ARRAYS))
        for case_name in cases
    }


def arrays_of(title: str, path: Path) -> Arrays:
    """What a program stored; objects of Python in it are not loaded."""
    try:
        return work_kit.read(path)
    except (OSError, ValueError, EOFError, MemoryError, zipfile.BadZipFile) as error:
        what = f"{title}'s arrays cannot be read: {str(error) or type(error).__name__}"
        disk = "df -h of its folder; then the same command again"
        raise RunError(what, where=str(path), why="they were cut off, or are no arrays", next_command=disk) from None


# --- who takes part ---------------------------------------------------------------------------


def contenders_for(
    model: Model, found: dict[str, Backend], task: str = PRETRAIN, dtype: str = "fp32", hardware: str = "cpu"
) -> tuple[list[Contender], dict[str, str]]:
    """The backends that can, in the order of their names; and of the others, why not."""
    taking_part, left_out, known = [], {}, configs()
    settings = SETTINGS | (equivalence.ADAPTERS if task == LORA else {})
    for name, backend in sorted(found.items()):
        asked = Request(
            backend=name, model=model.name, task=task, dtype=dtype, hardware=hardware, gpus=1, settings=settings
        )
        try:
            benchmark = resolve(machine_gpus.with_local_gpus(asked, known, backend), known, backend)
        except RequestError as refusal:
            left_out[name] = refusal.what
            continue
        program = backend.work_program(benchmark) if isinstance(backend, ProvesWork) else None
        if program is None:
            left_out[name] = "it has no program that says what it computes"
        else:
            taking_part.append(Contender(backend, benchmark, program))
    return taking_part, left_out


def _refuse(model: Model, taking_part: Sequence[Contender], left_out: dict[str, str]) -> None:
    """What cannot be compared on this machine."""
    if parameter_count(model) > MOST_PARAMETERS:
        raise RequestError(
            f"{model.name} has {parameter_count(model):,} parameters: its arrays are too large to be compared",
            where=f"--model={model.name}",
            why=f"weights, gradients and trained weights of both sides are kept; {MOST_PARAMETERS:,} is the most",
            next_command=f"--model={','.join(MODELS)}",
        )
    if len(taking_part) < 2:
        raise RequestError(
            f"there are no two backends to compare on {model.name}",
            where=f"--equivalence --model={model.name}",
            why="\n".join(f"{name}: {why}" for name, why in left_out.items())
            or f"only {', '.join(contender.backend.name for contender in taking_part) or 'none'} is installed",
            next_command=f"--model={','.join(MODELS)}",
        )
    for one in taking_part:
        if one.benchmark.hardware.kind != "cpu":
            for refusal in machine_gpus.refusals(one.benchmark, configs(), one.backend, allow_busy=True):
                raise refusal


# --- the whole proof --------------------------------------------------------------------------


def prove(
    names: Sequence[str],
    plants: Sequence[Plant],
    output_dir: Path | None,
    *,
    task: str = PRETRAIN,
    dtype: str = "fp32",
    hardware: str = "cpu",
) -> int:
    """The exit code. Files are kept where a folder was named, or where something is wrong."""
    started = time.monotonic()
    models = [configs().model(name) for name in dict.fromkeys(names)]
    if task == LORA and dtype == "bf16":
        raise RequestError(
            "adapters are compared in fp32 alone",
            where="--task=lora --dtype=bf16",
            why="MaxText keeps the adapters of bf16 weights in bf16, NeMo's optimizer keeps copies in fp32",
            next_command="python launch/verify.py --equivalence --task=lora",
        )
    parts = {model.name: contenders_for(model, backends(), task, dtype, hardware) for model in models}
    for model in models:
        _refuse(model, *parts[model.name])
    folder = _made(output_dir) if output_dir else Path(tempfile.mkdtemp(prefix="stepmark-equivalence-"))
    proof = Proof(
        dtype=dtype,
        hardware=hardware,
        tolerances=dict(equivalence.TOLERANCES[dtype]),
        not_compared={f"{name} on {model}": why for model, (_, out) in parts.items() for name, why in out.items()},
    )
    with contextlib.nullcontext() if output_dir else removed_on_interrupt(folder):
        for model in models:
            _prove(proof, model, parts[model.name][0], plants, folder.absolute())
    proof.agree = not any(comparison.differing for comparison in proof.comparisons if not comparison.plant)
    proof.seconds = time.monotonic() - started
    if output_dir or not proof.agree:
        proof.files = str(folder)
    else:
        shutil.rmtree(folder)
    answer(proof, lambda: _text(proof, plants))
    return _verdict(proof, plants)


def _made(folder: Path) -> Path:
    """An empty folder: the files of an earlier proof would pass for those of this one."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        why = "it is not empty" if any(folder.iterdir()) else ""
    except OSError as error:
        why = error.strerror or str(error)
    if why:
        raise RequestError(
            f"this folder cannot be used: {why}",
            where=f"--output_dir={folder}",
            next_command="name a folder that is new, or empty",
        )
    return folder


def _verdict(proof: Proof, plants: Sequence[Plant]) -> int:
    """3 where a difference was found, planted or not; a plant that nothing catches is a failure of the proof."""
    missed = [f"{plant} on {model}" for model, found in proof.caught.items() for plant in found if not found[plant]]
    if missed:
        raise RunError(f"planted, and not caught: {', '.join(missed)}", where=proof.files or "--equivalence")
    return EXIT_VALID if proof.agree and not plants else EXIT_INVALID


# --- for people -------------------------------------------------------------------------------


def _text(proof: Proof, plants: Sequence[Plant]) -> str:
    lines = []
    what = {plant.name: plant.what for plant in plants}
    for found in proof.comparisons:
        if found.plant:
            count = len(proof.caught[found.model][found.plant])
            seen = f"{count} of {len(found.lines)} lines" if count else "nothing: it is not seen"
            lines.append(f"{found.model}, {found.plant} planted ({what[found.plant]}): caught by {seen}")
        lines.append(equivalence.text(found))
    lines += [f"not compared: {name}: {why}\n" for name, why in proof.not_compared.items()]
    rows = [(name, ", ".join(f"{of} {number}" for of, number in v.items())) for name, v in proof.versions.items()]
    rows += [("note", f"{name}: {note}") for name, notes in proof.notes.items() for note in notes]
    rows += [("files", proof.files)] if proof.files else []
    own = [found for found in proof.comparisons if not found.plant]
    differing = [
        f"{found.model}: {', '.join(line.quantity for line in found.differing)}" for found in own if found.differing
    ]
    same = f"the same work: {', '.join(found.model for found in own)} ({duration_text(proof.seconds)})"
    rows.append(("result", f"NOT the same work: {'; '.join(differing)}" if differing else same))
    if plants:
        seen_lines = [bool(found) for of_model in proof.caught.values() for found in of_model.values()]
        rows.append(("planted", f"{sum(seen_lines)} of {len(seen_lines)} caught"))
    return "\n".join([*lines, *aligned(rows)]) + "\n"
