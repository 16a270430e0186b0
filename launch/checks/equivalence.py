"""Check that backends do the same work: compare their results of the same training steps from the same weights.

The first backend perturbs its own initial weights. The other backends start from the perturbed weights.
"""

import shutil
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from benchmarks.backend import Backend, ProvesWork, SideProgram, backends
from benchmarks.compare.text import FRAMEWORKS
from benchmarks.equivalence import equivalence
from benchmarks.equivalence.equivalence import Proof, Side
from benchmarks.equivalence.work import WorkCase, WorkReport, WorkRequest
from benchmarks.errors import EXIT_INVALID, EXIT_VALID, RequestError
from benchmarks.inside import work_kit
from benchmarks.inside.work_kit import Arrays
from benchmarks.model.flops import parameter_count
from benchmarks.request.resolve import Request, resolve
from benchmarks.values import SUBMISSION_ENGINE, Benchmark, Model, json_text
from launch.machine import machine_gpus
from launch.running.side_program import run_side_program
from launch.terminal.output import answer
from launch.terminal.places import configs
from launch.terminal.progress import say

MODELS = ("llama2_tiny", "llama3_tiny")
AS_IT_IS = "as_it_is"
MOST_PARAMETERS = 20_000_000  # the arrays of both sides then need about 3 GB

SETTINGS = {"sequence_length": str(equivalence.SEQUENCE), "micro_batch_size": str(equivalence.BATCH)}


class Contender(NamedTuple):
    """One engine in the comparison, the benchmark that it trains, and the program that reports its results."""

    backend: Backend
    benchmark: Benchmark
    program: SideProgram

    @property
    def name(self) -> str:
        """Return the name of the backend for its first engine, and the engine's name for its other engines."""
        engine = self.benchmark.engine
        return self.backend.name if engine == self.backend.engines[0] else engine

    @property
    def title(self) -> str:
        return self.backend.title if self.name == self.backend.name else FRAMEWORKS.get(self.name, self.name)


def _prove(proof: Proof, model: Model, contenders: Sequence[Contender], folder: Path) -> None:
    """Compare the contenders on one model. All train from the weights of the first contender."""
    first, *others = contenders
    lora = first.benchmark.lora
    case = equivalence.case(lora, proof.dtype, experts=model.experts is not None)
    given = equivalence.batches(model)
    source = _trained(proof, first, case, given, folder)
    case, given = equivalence.with_arrays_of(case, given, source)
    for other in others:
        second = _trained(proof, other, case, given, folder)
        proof.comparisons.append(equivalence.compare(model, source, second, lora, proof.tolerances))


def _trained(proof: Proof, contender: Contender, case: WorkCase, given: Arrays, folder: Path) -> Side:
    """Return a backend's results for the case, and add its versions and notes to the proof."""
    report, computed = train(contender, {AS_IT_IS: (case, given)}, folder)
    proof.versions[contender.name] = report.versions
    proof.notes[contender.name] = report.notes
    return computed[AS_IT_IS]


def train(
    contender: Contender, cases: dict[str, tuple[WorkCase, Arrays]], folder: Path
) -> tuple[WorkReport, dict[str, Side]]:
    """Run a backend's program once for all cases. Return its report, and the results of each case."""
    benchmark = contender.benchmark
    folder = folder / benchmark.model.name / contender.name
    for case_name, (_, given) in cases.items():
        (folder / case_name).mkdir(parents=True, exist_ok=True)
        work_kit.write(folder / case_name / work_kit.GIVEN, given)
    request = WorkRequest(cases={case_name: case for case_name, (case, _) in cases.items()})
    (folder / work_kit.REQUEST).write_text(json_text(request))
    title = contender.title
    say(f"{benchmark.model.name}: {title} trains {equivalence.UPDATES + 1} steps ...")
    gpus = machine_gpus.chosen(benchmark)
    report = run_side_program(contender.backend, benchmark.engine, contender.program, folder, WorkReport, gpus=gpus)
    return report, {
        name: Side(title, report.cases[name], work_kit.read(folder / name / work_kit.ARRAYS)) for name in cases
    }


# --- the contenders ---------------------------------------------------------------------------


def contenders_for(
    model: Model, found: dict[str, Backend], task: str = "pretrain", dtype: str = "fp32", hardware: str = "cpu"
) -> tuple[list[Contender], dict[str, str]]:
    """Return the engines that can be compared, sorted by backend. Also return engine -> why it cannot be compared."""
    taking_part, left_out, known = [], {}, configs()
    settings = SETTINGS | (equivalence.ADAPTERS if task == "lora" else {})
    engines = [(name, one, engine) for name, one in sorted(found.items()) for engine in one.engines]
    for name, backend, engine in engines:
        if engine.startswith(SUBMISSION_ENGINE):
            continue
        request = Request(
            backend=name, engine=engine, model=model.name, task=task, dtype=dtype, hardware=hardware, gpus=1,
            settings=settings,
        )  # fmt: skip
        try:
            benchmark = resolve(machine_gpus.with_local_gpus(request, known, backend), known, backend)
        except RequestError as refusal:
            left_out[engine] = refusal.what
            continue
        program = backend.work_program(benchmark) if isinstance(backend, ProvesWork) else None
        if program is None:
            left_out[engine] = "the engine has no program that reports the results of its training steps"
        else:
            taking_part.append(Contender(backend, benchmark, program))
    return taking_part, left_out


def _refuse(model: Model, taking_part: Sequence[Contender], left_out: dict[str, str]) -> None:
    """Refuse a model that cannot be compared on this machine."""
    if parameter_count(model) > MOST_PARAMETERS:
        raise RequestError(
            f"{model.name} is too large to compare: {parameter_count(model):,} parameters",
            where=f"--model={model.name}",
            why="the comparison keeps the weights, gradients and trained weights of both sides in memory, so at most "
            f"{MOST_PARAMETERS:,} parameters are allowed",
            next_command=f"--model={','.join(MODELS)}",
        )
    if len(taking_part) < 2:
        raise RequestError(
            f"{model.name} cannot be compared: a comparison needs two engines",
            where=f"--equivalence --model={model.name}",
            why="\n".join(f"{name}: {why}" for name, why in left_out.items())
            or f"installed: {', '.join(contender.backend.name for contender in taking_part) or 'none'}",
            next_command=f"--model={','.join(MODELS)}",
        )
    for one in taking_part:
        if one.benchmark.hardware.kind != "cpu":
            for refusal in machine_gpus.refusals(one.benchmark, configs(), one.backend, allow_busy=True):
                raise refusal


# --- the whole proof --------------------------------------------------------------------------


def prove(
    names: Sequence[str],
    output_dir: Path | None,
    *,
    task: str = "pretrain",
    dtype: str = "fp32",
    hardware: str = "cpu",
) -> int:
    """Run the comparison and return the exit code. Keep its files if `output_dir` is set or the comparison fails."""
    started = time.monotonic()
    models = [configs().model(name) for name in dict.fromkeys(names)]
    if task == "lora" and dtype == "bf16":
        raise RequestError(
            "adapters can be compared only in fp32",
            where="--task=lora --dtype=bf16",
            why="for bf16 weights, MaxText keeps adapters in bf16 and NeMo's optimizer keeps copies in fp32",
            next_command="python launch/verify.py --equivalence --task=lora",
        )
    parts = {model.name: contenders_for(model, backends(), task, dtype, hardware) for model in models}
    for model in models:
        _refuse(model, *parts[model.name])
    if output_dir and output_dir.exists() and any(output_dir.iterdir()):  # old files could be mistaken for new files
        raise RequestError(
            "the folder is not empty", where=f"--output_dir={output_dir}", next_command="--output_dir="
        )
    folder = output_dir or Path(tempfile.mkdtemp(prefix="stepmark-equivalence-"))
    proof = Proof(
        dtype=dtype,
        hardware=hardware,
        tolerances=dict(equivalence.TOLERANCES[dtype]),
        not_compared={f"{name} on {model}": why for model, (_, out) in parts.items() for name, why in out.items()},
    )
    for model in models:
        _prove(proof, model, parts[model.name][0], folder.absolute())
    proof.agree = not any(comparison.differing for comparison in proof.comparisons)
    proof.seconds = time.monotonic() - started
    if output_dir or not proof.agree:
        proof.files = str(folder)
    else:
        shutil.rmtree(folder)
    answer(proof, lambda: equivalence.proof_text(proof))
    return EXIT_VALID if proof.agree else EXIT_INVALID
