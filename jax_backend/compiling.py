"""A Benchmark -> the program that compiles its training step on this machine, for as many virtual devices as it has.

What needs the hardware itself is replaced, and the report says by what.
"""

import json

from benchmarks.backend import SideProgram
from benchmarks.errors import RequestError
from benchmarks.values import Benchmark, Scalar
from jax_backend import layout, planning

PLAIN_ATTENTION = "dot_product"
FP8_NOTE = "XLA:CPU multiplies fp8 in bfloat16: counted is what the program asks for, before the compiler does that"

ENVIRONMENT = {
    "DECOUPLE_GCLOUD": "TRUE",
    "JAX_PLATFORMS": "cpu",
    "HF_HUB_OFFLINE": "1",
    "PYTHONUNBUFFERED": "1",
}


def program(benchmark: Benchmark) -> SideProgram:
    if benchmark.lora:
        raise RequestError(
            "a compiled step of adapters is held against no formula here",
            where=f"--compile --task={benchmark.task}",
            why="what --compile compares with is the work of training every weight",
            next_command="without --compile; python launch/verify.py --equivalence --task=lora counts its FLOPs",
        )
    words = [f"--word={axis}={word}" for axis, word in {**layout.AXIS_WORDS, "stage": "pipeline"}.items()]
    return SideProgram(
        command=[
            "{python}",
            "-P",  # keeps jax_backend/ itself off the import path
            "{repository}/jax_backend/compile_program.py",
            "--folder={phase_dir}",
            f"--devices={benchmark.gpus}",
            f"--replaced={json.dumps(replaced(benchmark))}",
            *(f"--note={note}" for note in notes(benchmark)),
            *words,
            "--",
            *planning.maxtext_argv(benchmark, settings(benchmark)),
        ],
        environment=ENVIRONMENT,
    )


def settings(benchmark: Benchmark) -> dict[str, Scalar]:
    """What is compiled otherwise than it is run: one process sees all devices, and a CPU has the plain attention."""
    return {"hardware": "cpu", "attention": PLAIN_ATTENTION, **_within_one_node(benchmark.knobs)}


def _within_one_node(knobs: dict[str, Scalar]) -> dict[str, Scalar]:
    """Each axis whole, as if all devices were of one node: virtual devices know no network."""
    changed: dict[str, Scalar] = {}
    for axis in layout.AXIS_WORDS:
        within, between = f"ici_{axis}_parallelism", f"dcn_{axis}_parallelism"
        if int(knobs.get(between, 1)) > 1:
            changed |= {within: int(knobs.get(within, 1)) * int(knobs[between]), between: 1}
    return changed


def replaced(benchmark: Benchmark) -> dict[str, str]:
    """Settings of the benchmark that cannot be compiled without its hardware -> what stands in."""
    found = {}
    attention = str(benchmark.knobs.get("attention", "autoselected"))
    if attention != PLAIN_ATTENTION:
        found["attention"] = f"{PLAIN_ATTENTION} for {attention}, whose kernel only its hardware has"
    if benchmark.hardware.kind != "cpu":
        found["hardware"] = f"{benchmark.gpus} virtual devices of a CPU for {benchmark.hardware.title}"
    between = sorted(name for name in _within_one_node(benchmark.knobs) if name.startswith("dcn_"))
    if between:
        found["dcn_*"] = f"ici_* of the same size for {', '.join(between)}: virtual devices know no network"
    if benchmark.xla_flags:
        found["xla_flags"] = f"none of the {len(benchmark.xla_flags)}: they steer another compiler"
    return found


def notes(benchmark: Benchmark) -> list[str]:
    return [FP8_NOTE] if benchmark.dtype == "fp8" else []
