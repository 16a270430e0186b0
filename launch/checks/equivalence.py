"""The proof that backends do the same work: each trains the same steps from the same weights, and all is compared.

The first backend that can starts from weights of its own, perturbed; the others are given them. What is asked is in
benchmarks/equivalence/work.py, what is compared in equivalence.py beside it, what can be planted in
mutations.py.
"""

import contextlib
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
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
from benchmarks.measuring.flops import parameter_count
from benchmarks.rendering.columns import aligned
from benchmarks.rendering.report import duration_text
from benchmarks.request.resolve import Request, resolve
from benchmarks.values import Benchmark, Model, Value, json_text
from launch.command_line.places import configs
from launch.running import machine_gpus
from launch.running.side_program import removed_on_interrupt, run_side_program

MODELS = ("llama2_tiny", "llama3_tiny")
AS_IT_IS = "as_it_is"
MOST_PARAMETERS = 20_000_000  # some 3 GB in all the arrays of both sides

SETTINGS = {"sequence_length": str(equivalence.SEQUENCE), "micro_batch_size": str(equivalence.BATCH)}


class Contender(NamedTuple):
    """A backend that takes part: its benchmark of the model, and the program that says what it computes."""

    backend: Backend
    benchmark: Benchmark
    program: SideProgram


class Proof(Value, frozen=True):
    """What --json prints."""

    agree: bool
    told: dict[
        str, WorkCase
    ]  # model -> what the sides that were given weights were told; the first, all of it but these
    comparisons: list[Comparison]
    caught: dict[str, dict[str, list[str]]]  # model -> plant -> the lines that differ only with it
    not_compared: dict[str, str]  # backend and model -> why
    versions: dict[str, dict[str, str]]
    notes: dict[str, list[str]]
    dtype: str
    hardware: str
    tolerances: dict[str, float]
    seconds: float
    files: str | None


class Prover:
    """One proof over some models; its files lie in a folder of their own, below the one that is given."""

    def __init__(self, folder: Path, plants: Sequence[Plant], dtype: str) -> None:
        self._folder = folder
        self._plants = plants
        self._dtype = dtype
        self._tolerances = equivalence.TOLERANCES[dtype]
        self.comparisons: list[Comparison] = []
        self.caught: dict[str, dict[str, list[str]]] = {}
        self.versions: dict[str, dict[str, str]] = {}
        self.notes: dict[str, list[str]] = {}
        self.told: dict[str, WorkCase] = {}

    def prove(self, model: Model, contenders: Sequence[Contender]) -> None:
        first, *others = contenders
        given = equivalence.batches(model)
        case = equivalence.case(first.benchmark.lora, self._dtype)
        source = self._computed(first, {AS_IT_IS: (case, given)})[AS_IT_IS]
        weights = work_kit.under(work_kit.WEIGHT, work_kit.below(source.arrays, work_kit.WEIGHT))
        scale = source.report.settings.get("attention_scale")
        same = msgspec.structs.replace(
            case, perturb_seed=None, attention_scale=float(scale) if isinstance(scale, float) else None
        )
        self.told[model.name] = same
        for other in others:
            self._compare(model, source, other, same, {**given, **weights})

    def _compare(self, model: Model, source: Computed, other: Contender, case: WorkCase, given: Arrays) -> None:
        cases = {AS_IT_IS: (case, given)}
        uncounted = msgspec.structs.replace(case, count_flops=False)
        cases |= {plant.name: planted(plant, uncounted, given, model) for plant in self._plants}
        computed = self._computed(other, cases)
        lora = other.benchmark.lora
        as_it_is = equivalence.compare(model, source, computed[AS_IT_IS], lora=lora, tolerances=self._tolerances)
        self.comparisons.append(as_it_is)
        found = self.caught.setdefault(model.name, {})
        for plant in self._plants:
            comparison = equivalence.compare(model, source, computed[plant.name], plant.name, lora, self._tolerances)
            self.comparisons.append(comparison)
            found[plant.name] = equivalence.caught(comparison, as_it_is)

    def _computed(self, contender: Contender, cases: dict[str, tuple[WorkCase, Arrays]]) -> dict[str, Computed]:
        """Run a backend's program once, for all of the cases."""
        name, benchmark = contender.backend.name, contender.benchmark
        folder = self._folder / benchmark.model.name / name
        for case_name, (_, given) in cases.items():
            (folder / case_name).mkdir(parents=True, exist_ok=True)
            work_kit.write(folder / case_name / work_kit.GIVEN, given)
        request = WorkRequest(cases={case_name: case for case_name, (case, _) in cases.items()})
        (folder / work_kit.REQUEST).write_text(json_text(request))
        title = contender.backend.title
        more = f", and {len(cases) - 1} times more with a plant" if len(cases) > 1 else ""
        _say(f"{benchmark.model.name}: {title} trains {equivalence.UPDATES + 1} steps{more} ...")
        gpus = machine_gpus.chosen(benchmark)
        busy = busy_text(gpus)
        started = time.monotonic()
        report = run_side_program(
            contender.backend,
            benchmark.engine,
            contender.program,
            folder,
            WorkReport,
            gpus=gpus,
        )
        _say(f"{benchmark.model.name}: {title} is done, in {duration_text(time.monotonic() - started)}")
        self.versions[name] = report.versions
        self.notes[name] = [*report.notes, *([f"in use when it began: {busy}"] if busy else [])]
        wanted = equivalence.UPDATES + 1
        missing = [name for name in cases if name not in report.cases or len(report.cases[name].steps) != wanted]
        if missing:
            raise RunError(f"{title} does not say of {wanted} steps in: {', '.join(missing)}", where=str(folder))
        return {
            case_name: Computed(title, report.cases[case_name], work_kit.read(folder / case_name / work_kit.ARRAYS))
            for case_name in cases
        }


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


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
            benchmark = resolve(machine_gpus.settled(asked, known, backend), known, backend)
        except RequestError as refusal:
            left_out[name] = refusal.what
            continue
        program = backend.work_program(benchmark) if isinstance(backend, ProvesWork) else None
        if program is None:
            left_out[name] = "it has no program that says what it computes"
        else:
            taking_part.append(Contender(backend, benchmark, program))
    return taking_part, left_out


def _refuse_adapters_in_bf16(task: str, dtype: str) -> None:
    if task == LORA and dtype == "bf16":
        raise RequestError(
            "adapters are compared in fp32 alone",
            where="--task=lora --dtype=bf16",
            why="MaxText trains the adapters of bf16 weights in bf16 and rounds every update to it; NeMo's optimizer "
            "keeps copies in fp32",
            next_command="python launch/verify.py --equivalence --task=lora",
        )


def _refuse_missing_gpus(taking_part: Sequence[Contender]) -> None:
    for one in taking_part:
        if one.benchmark.hardware.kind != "cpu":
            for refusal in machine_gpus.refusals(one.benchmark, configs(), one.backend, allow_busy=True):
                raise refusal


def _refuse_what_is_too_large(model: Model) -> None:
    if parameter_count(model) > MOST_PARAMETERS:
        raise RequestError(
            f"{model.name} has {parameter_count(model):,} parameters: its arrays are too large to be compared",
            where=f"--model={model.name}",
            why=f"weights, gradients and trained weights of both sides are kept; {MOST_PARAMETERS:,} is the most. "
            "A small model of the same family shows the same code",
            next_command=f"--model={','.join(MODELS)}",
        )


# --- the whole proof --------------------------------------------------------------------------


def prove(
    names: Sequence[str],
    plants: Sequence[Plant],
    output_dir: Path | None,
    *,
    as_json: bool,
    task: str = PRETRAIN,
    dtype: str = "fp32",
    hardware: str = "cpu",
) -> int:
    """The exit code. Files are kept where a folder was named, or where something is wrong."""
    started = time.monotonic()
    models = [configs().model(name) for name in dict.fromkeys(names)]
    _refuse_adapters_in_bf16(task, dtype)
    for model in models:
        _refuse_what_is_too_large(model)
    found = backends()
    parts = {model.name: contenders_for(model, found, task, dtype, hardware) for model in models}
    for model in models:
        _refuse_what_cannot_be_compared(model, *parts[model.name])
        _refuse_missing_gpus(parts[model.name][0])
    folder = _made(output_dir) if output_dir else Path(tempfile.mkdtemp(prefix="stepmark-equivalence-"))
    prover = Prover(folder.absolute(), plants, dtype)
    with contextlib.nullcontext() if output_dir else removed_on_interrupt(folder):
        for model in models:
            prover.prove(model, parts[model.name][0])
    agree = equivalence.agree([comparison for comparison in prover.comparisons if not comparison.plant])
    keep = output_dir is not None or not agree
    if not keep:
        shutil.rmtree(folder)
    proof = Proof(
        agree=agree,
        told=prover.told,
        comparisons=prover.comparisons,
        caught=prover.caught,
        not_compared={f"{name} on {model}": why for model, (_, out) in parts.items() for name, why in out.items()},
        versions=prover.versions,
        notes=prover.notes,
        dtype=dtype,
        hardware=hardware,
        tolerances=dict(equivalence.TOLERANCES[dtype]),
        seconds=time.monotonic() - started,
        files=str(folder) if keep else None,
    )
    print(json_text(proof) if as_json else text(proof, plants), end="")
    return verdict(proof, plants)


def _made(folder: Path) -> Path:
    """An empty folder that can be written: the files of an earlier proof would pass for those of this one."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        filled = any(folder.iterdir())
    except OSError as error:
        raise RequestError(
            f"this folder cannot be made or read: {error.strerror}",
            where=f"--output_dir={folder}",
            next_command="name a folder that is new",
        ) from None
    if filled or not os.access(folder, os.W_OK | os.X_OK):
        raise RequestError(
            "this folder is not empty" if filled else "this folder cannot be written",
            where=f"--output_dir={folder}",
            why="files of an earlier proof would pass for those of this one" if filled else "it belongs to another",
            next_command="name a folder that is new, or empty",
        )
    return folder


def _refuse_what_cannot_be_compared(model: Model, taking_part: Sequence[Contender], left_out: dict[str, str]) -> None:
    if len(taking_part) < 2:
        raise RequestError(
            f"there are no two backends to compare on {model.name}",
            where=f"--equivalence --model={model.name}",
            why="\n".join(f"{name}: {why}" for name, why in left_out.items())
            or f"only {', '.join(contender.backend.name for contender in taking_part) or 'none'} is installed",
            next_command=f"--model={','.join(MODELS)}",
        )


def verdict(proof: Proof, plants: Sequence[Plant]) -> int:
    """3 where a difference was found, planted or not; a plant that nothing catches is a failure of the proof."""
    missed = [f"{plant} on {model}" for model, found in proof.caught.items() for plant in found if not found[plant]]
    if missed:
        raise RunError(
            f"planted, and not caught: {', '.join(missed)}",
            where=proof.files or "--equivalence",
            why="no line of the comparison differs with the plant that agrees without it",
        )
    return EXIT_VALID if proof.agree and not plants else EXIT_INVALID


# --- for people -------------------------------------------------------------------------------


def text(proof: Proof, plants: Sequence[Plant]) -> str:
    lines = []
    what = {plant.name: plant.what for plant in plants}
    for comparison in proof.comparisons:
        if not comparison.plant:
            lines.append(equivalence.text(comparison))
            continue
        caught = proof.caught[comparison.model][comparison.plant]
        count = f"{len(caught)} of {len(comparison.lines)} lines" if caught else "nothing: it is not seen"
        lines.append(f"{comparison.model}, {comparison.plant} planted ({what[comparison.plant]}): caught by {count}")
        lines.append(equivalence.differing_text(comparison))
    lines += [f"not compared: {name}: {why}\n" for name, why in proof.not_compared.items()]
    lines += [_last_words(proof, plants)]
    return "\n".join(lines)


def _last_words(proof: Proof, plants: Sequence[Plant]) -> str:
    own = [comparison for comparison in proof.comparisons if not comparison.plant]
    differing = {comparison.model: comparison.differing for comparison in own if comparison.differing}
    rows = [
        (name, ", ".join(f"{package} {number}" for package, number in v.items()))
        for name, v in proof.versions.items()
    ]
    rows += [("told", equivalence.told_text(case)) for case in list(proof.told.values())[:1]]
    rows += [("note", f"{name}: {note}") for name, notes in proof.notes.items() for note in notes]
    rows += [("files", proof.files)] if proof.files else []
    if differing:
        found = "; ".join(
            f"{model}: {', '.join(line.quantity for line in lines)}" for model, lines in differing.items()
        )
        rows.append(("result", f"NOT the same work: {found}"))
    else:
        rows.append(("result", f"the same work: {', '.join(c.model for c in own)} ({duration_text(proof.seconds)})"))
    if plants:
        seen = sum(bool(lines) for found in proof.caught.values() for lines in found.values())
        total = sum(len(found) for found in proof.caught.values())
        rows.append(("planted", f"{seen} of {total} caught"))
    return "\n".join(aligned(rows)) + "\n"
