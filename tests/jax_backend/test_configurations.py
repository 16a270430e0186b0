"""The pinned MaxText accepts the configuration of every recipe: on each hardware, in each precision, at each scale.

The built combinations cover each choice of each recipe and each value of each argument.
The arguments and environment are those of the plan; MaxText is the real one, only the devices are virtual. It imports
no Transformer Engine on the way to a configuration, so that is left to the check at the start of a job.
"""

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest

from benchmarks.errors import RequestError
from benchmarks.request.resolve import ANY, Request, default_gpus, resolve, scales
from benchmarks.values import Benchmark, Phase, Recipe
from jax_backend import BACKEND
from launch.environments import venvs
from tests.jax_backend import asked
from tests.jax_backend.asked import CONFIGS

PROGRAM = Path(__file__).with_name("configurations.py")
PGLE = (("nsys", "none"), ("auto", "none"))  # --pgle, --profile
SEGMENTS = "max_segments_per_seq must be set when using TransformerEngine attention and packing"

CONTROLS = (("hardware", "gpu"), ("ici_fsdp_parallelism", "4"), ("dcn_fsdp_parallelism", "4"))

pytestmark = pytest.mark.slow(seconds=25)


class TrainingPhase(NamedTuple):
    name: str
    benchmark: Benchmark
    phase: Phase

    def plan(self, **changed: str) -> dict[str, Any]:
        """What configurations.py takes; `changed` are settings with other values."""
        return {
            "name": self.name,
            "settings": [f"{name}={value}" for name, value in {**settings_of(self.phase), **changed}.items()],
            "environment": {name: _filled(value) for name, value in self.phase.environment.items()},
            "devices": self.benchmark.gpus,
            "processes": self.phase.tasks,
            "on_a_node": self.phase.tasks_per_node * self.phase.devices_per_task,
        }


Answers = tuple[list[TrainingPhase], dict[str, dict[str, Any]]]  # MaxText's, by the name of a plan


def settings_of(phase: Phase) -> dict[str, str]:
    return {name: _filled(value) for name, value in asked.settings_of(phase.command).items()}


def _filled(text: str) -> str:
    return text.replace("{phase_dir}", "/results/run/attempt-1/phase")


# --- all that `run.py --list` shows for jax ---------------------------------------------------------


def requests() -> Iterator[Request]:
    for recipe in CONFIGS.recipes():
        if recipe.backend != BACKEND.name:
            continue
        for hardware in CONFIGS.names("hardware") if ANY in recipe.hardware else recipe.hardware:
            for model, gpus in _models_and_scales(recipe, hardware):
                for dtype in recipe.dtypes.get(hardware, recipe.dtypes.get(ANY, [])):
                    plain = Request(
                        backend=BACKEND.name, recipe=recipe.name, task=recipe.task,
                        model=model, hardware=hardware, dtype=dtype, gpus=gpus,
                    )  # fmt: skip
                    yield plain
                    on_gpus = recipe.hardware not in ([ANY], ["cpu"])
                    usual = default_gpus(recipe, CONFIGS.hardware(hardware))
                    if on_gpus and model == recipe.models[0] and gpus >= usual:
                        yield from (msgspec.structs.replace(plain, pgle=way, profile=kind) for way, kind in PGLE)


def _models_and_scales(recipe: Recipe, hardware: str) -> Iterator[tuple[str, int]]:
    """The recipe's first model at every scale; its others at the scale of its defaults."""
    first, *others = ["llama2_7b"] if ANY in recipe.models else recipe.models
    device = CONFIGS.hardware(hardware)
    yield from ((first, gpus) for gpus in scales(recipe, device))
    yield from ((model, default_gpus(recipe, device)) for model in others)


def all_asked() -> list[TrainingPhase]:
    """Every phase that trains, of each combination that is not refused before a plan is made."""
    found = []
    for request in requests():
        name = f"{request.recipe} {request.model} {request.hardware} {request.dtype} {request.gpus}"
        name += f" --pgle={request.pgle} --profile={request.profile}"
        try:
            benchmark = resolve(request, CONFIGS, BACKEND)
        except RequestError:
            assert "_tiny" in str(request.recipe), name
            continue
        phases = [phase for phase in BACKEND.plan(benchmark).phases if phase.writes_steps]
        found += [TrainingPhase(f"{name} phase {phase.name}", benchmark, phase) for phase in phases]
    assert {(one.benchmark.instruments.pgle, one.benchmark.instruments.profile) for one in found} == {
        ("off", "none"),
        *PGLE,
    }
    return found


def covering(phases: list[TrainingPhase]) -> list[TrainingPhase]:
    """The first plan of each choice of a recipe, and of each value of an argument; equal plans are one."""
    plans: dict[str, list[TrainingPhase]] = {}
    for one in phases:
        plans.setdefault(json.dumps({**one.plan(), "name": "", "environment": {}}), []).append(one)
    chosen, seen = [], set[object]()
    for same in plans.values():
        choices = {(one.name.split()[0], place, word) for one in same for place, word in enumerate(one.name.split())}
        new = choices.union(settings_of(same[0].phase).items()) - seen
        chosen += same[:1] if new else []
        seen |= new
    return chosen


def answered(plans: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    python = venvs.ensure(BACKEND.environment("maxtext"))
    environment = {**os.environ, "JAX_PLATFORMS": "cpu", "DECOUPLE_GCLOUD": "TRUE", "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(
        [str(python), "-P", str(PROGRAM)],
        input=json.dumps(plans), env=environment, capture_output=True, text=True, timeout=900, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith('{"name"')]
    assert len(lines) == len(plans)
    return {line["name"]: line for line in lines}


# --- the tests --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def answers() -> Answers:
    """Return the answers for plans that cover all choices, and for three that MaxText must refuse."""
    chosen = covering(all_asked())
    flagship = next(one for one in chosen if one.benchmark.gpus == 64 and one.benchmark.dtype == "fp8")
    controls = [{**flagship.plan(**{name: value}), "name": f"{name}={value}"} for name, value in CONTROLS]
    return chosen, answered([*(one.plan() for one in chosen), *controls])


def test_what_covers_all_choices_is_accepted_as_the_benchmark_says(answers: Answers) -> None:
    wrong = {}
    for one in answers[0]:
        answer, settings = answers[1][one.name], settings_of(one.phase)
        described = {
            "problem": None,
            "global_batch_size": one.benchmark.batch.global_batch_size,
            "hardware": settings["hardware"],
            "attention": settings["attention"],
            "quantization": settings.get("quantization", ""),
        }
        if {name: answer.get(name) for name in described} != described:
            wrong[one.name] = answer
    assert wrong == {}


@pytest.mark.parametrize(("control", "words"), [*zip(CONTROLS, (SEGMENTS, "ICI", "DCN"), strict=True)])
def test_what_maxtext_would_refuse_is_refused_here(answers: Answers, control: tuple[str, str], words: str) -> None:
    assert words in (answers[1]["=".join(control)]["problem"] or "")
