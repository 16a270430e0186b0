"""Benchmarks of the JAX backend, the arguments of their phases, and the tables of cases.yml."""

from pathlib import Path
from typing import Any

import pytest

from benchmarks.configs import Configs, parse_yaml
from benchmarks.errors import RequestError
from benchmarks.request.resolve import Request, resolve
from benchmarks.values import Benchmark, Phase
from jax_backend import BACKEND

CONFIGS = Configs()
CASES: Any = parse_yaml(Path(__file__).with_name("cases.yml"))


def each(table: str, *columns: str) -> Any:
    """The rows of a table of cases.yml as a test's parameters."""
    return pytest.mark.parametrize(
        columns, [tuple(row[column] for column in columns) for row in CASES[table]], ids=str
    )


def resolved(model: str = "llama2_tiny", chosen: dict[str, str] | None = None, **wanted: Any) -> Benchmark:
    return resolve(Request(backend="jax", model=model, settings=chosen or {}, **wanted), CONFIGS, BACKEND)


def refusal(model: str = "llama2_tiny", chosen: dict[str, str] | None = None, **wanted: Any) -> RequestError:
    with pytest.raises(RequestError) as caught:
        resolved(model, chosen, **wanted)
    return caught.value


def phases(model: str = "llama2_tiny", chosen: dict[str, str] | None = None, **wanted: Any) -> dict[str, Phase]:
    return {phase.name: phase for phase in BACKEND.plan(resolved(model, chosen, **wanted)).phases}


def settings_of(command: list[str]) -> dict[str, str]:
    """MaxText's, each once."""
    words = command[len(command) - command[::-1].index("--") :]
    found = dict(word.split("=", 1) for word in words)
    assert len(found) == len(words), "a key stands twice"
    return found


def flags_of(phase: Phase) -> dict[str, str]:
    words = [word.removeprefix("--").partition("=") for word in phase.environment["XLA_FLAGS"].split()]
    assert len({name for name, _, _ in words}) == len(words), "a flag stands twice"
    return {name: value for name, _, value in words}
