"""Llama 2 70B as MaxText 0.2.5 was really compiled for 64 H100s, and small programs."""

from dataclasses import replace
from functools import cache
from pathlib import Path

import msgspec

from benchmarks.compilation.compiled import CompileReport, Operation, Schedule
from benchmarks.compilation.program import Program
from benchmarks.configs import Configs
from benchmarks.request.resolve import Request, resolve
from jax_backend import BACKEND

SAMPLE = Path(__file__).with_name("llama2_70b_64_bf16.json")
REQUEST = Request(backend="jax", model="llama2_70b", hardware="h100", dtype="bf16", gpus=64)


@cache
def flagship() -> Program:
    benchmark = resolve(REQUEST, Configs(), BACKEND)
    return Program(
        benchmark, BACKEND.storage(benchmark), msgspec.json.decode(SAMPLE.read_bytes(), type=CompileReport)
    )


def too_large(program: Program) -> Program:
    return replace(program, compiled=msgspec.structs.replace(program.compiled, peak_bytes=90e9))


def schedule_of(*operations: Operation, **bodies: list[Operation]) -> Schedule:
    return Schedule(entry="main", computations={"main": list(operations), **bodies})


def done(of: Operation) -> Operation:
    return Operation(name=f"{of.name}-done", what=of.what, kind=of.kind, event="done", of=of.name)


def loop(body: str, trips: int) -> Operation:
    return Operation(name=f"while-{body}", what="loop", body=body, trips=trips)
