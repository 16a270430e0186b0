"""The common code of work programs, which run in a framework's environment: cases, perturbed weights, arrays.

A program loads this file by its path, and otherwise imports only the standard library and numpy. The launcher imports
the file too, so that both use the same names of arrays. work.py defines the request and the report.
"""

import argparse
import json
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

REQUEST = "request.json"
REPORT = "report.json"
GIVEN = "given.npz"
ARRAYS = "arrays.npz"

WEIGHT = "weight/"
GRADIENT = "gradient/"
TRAINED = "trained/"
LOGITS = "logits"
INPUTS = "inputs"
TARGETS = "targets"

NORM_SPREAD = 0.3
QUERY_GAIN = 4.0
ADAPTER_SPREAD = 0.05
ADAPTER_ENDS = ("_a", "_b")  # the names of an adapter's two matrices end with these
THETA_DIGITS = 6  # float32 tables determine theta to this many digits

Array = npt.NDArray[Any]
Arrays = dict[str, Array]


def train_case(training: Any, case: Mapping[str, Any], given: Mapping[str, Array]) -> tuple[Any, Arrays]:
    """Return the report and the arrays of a case: one pass over the first batch, then training on all batches.

    `training` wraps the model that the framework builds for a run. Its weights have the neutral names of work.py.
    Methods: weights(); begin(weights, inputs, targets) -> the framework's batches; look(batch) -> logits, loss and
    gradients with the framework's names; neutral(gradients); facts() -> `parameters`, and the `settings` of the built
    modules; flops(batch); step(number, batch) -> loss and gradient norm.
    """
    weights = starting_weights(case, given, training.weights)
    batches = training.begin(weights, given[INPUTS], given[TARGETS])
    logits, loss, gradients = training.look(batches[0])
    report = {
        **training.facts(),
        "loss": loss,
        "gradient_norm": gradient_norm(gradients),
        "flops": training.flops(batches[0]) if case["count_flops"] else None,
        "steps": [],
    }
    trained: Arrays = {}
    for number, batch in enumerate(batches):
        trained = training.weights()  # in the end, the weights before the last update
        report["steps"].append(training.step(number, batch))
    of_look = {**prefixed(GRADIENT, training.neutral(gradients)), LOGITS: logits}
    return report, {**prefixed(WEIGHT, weights), **of_look, **prefixed(TRAINED, trained)}


def parse(argv: list[str], *more: str) -> argparse.Namespace:
    """Return the parsed options. `more` contains the names of additional options, whose values are whole numbers."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder", type=Path, required=True)
    for name in more:
        parser.add_argument(name, type=int, required=True)
    parser.add_argument("settings", nargs="*", help="after --: the framework's own settings")
    return parser.parse_args(argv)


def run(
    folder: Path,
    versions: Mapping[str, str],
    train: Callable[[dict[str, Any], Arrays], Any],
    notes: Callable[[], list[str]],
) -> None:
    """Train the cases of the request one by one. `train` returns the report and arrays of a case."""
    started = time.monotonic()
    request = json.loads((folder / REQUEST).read_bytes())
    cases = {}
    for name, case in request["cases"].items():
        report, arrays = train(case, read(folder / name / GIVEN))
        write(folder / name / ARRAYS, arrays)
        cases[name] = report
        print(f"case {name}: {report['steps']}", flush=True)
    found = {
        "versions": dict(versions),
        "cases": cases,
        "seconds": time.monotonic() - started,
        "notes": notes(),
    }
    # The report is written last and atomically. If it exists, all arrays exist.
    unfinished = folder / f"{REPORT}.part"
    unfinished.write_text(json.dumps(found))
    unfinished.replace(folder / REPORT)


def read(path: Path) -> Arrays:
    with np.load(path) as stored:
        return {name: stored[name] for name in stored.files}


def write(path: Path, arrays: Mapping[str, Array]) -> None:
    # numpy's types assume that an unknown name may be an option of savez.
    np.savez(path, **{name: np.asarray(array) for name, array in arrays.items()})  # type: ignore[arg-type]


def unprefixed(arrays: Mapping[str, Array], prefix: str) -> Arrays:
    """Return the arrays whose names have the prefix, under their names without it."""
    return {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}


def prefixed(prefix: str, arrays: Mapping[str, Array]) -> Arrays:
    return {prefix + name: array for name, array in arrays.items()}


def starting_weights(case: Mapping[str, Any], given: Mapping[str, Array], own: Callable[[], Arrays]) -> Arrays:
    """Return the initial weights of a case: either the given weights, or the program's own, perturbed weights."""
    seed = case["perturb_seed"]
    if seed is None:
        return unprefixed(given, WEIGHT)
    weights = perturb_weights(own(), seed)
    if case.get("dtype") == "bf16":  # otherwise the first rounding would differ between backends
        weights = {name: rounded_to_bf16(array) for name, array in weights.items()}
    return weights


def rounded_to_bf16(array: Array) -> Array:
    """Return the array as float32 values that are rounded to the nearest bf16 number (ties to even)."""
    bits = np.ascontiguousarray(array, np.float32).view(np.uint32)
    half = np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))
    return ((bits + half) & np.uint32(0xFFFF0000)).view(np.float32)


def perturb_weights(weights: Mapping[str, Array], seed: int) -> Arrays:
    """Return perturbed weights. Without this, norm scales of 1, uniform attention and zero adapters hide errors."""
    numbers = np.random.default_rng(seed)
    found = {}
    for name, array in sorted(weights.items()):
        if name.endswith("norm"):
            found[name] = array * (1 + NORM_SPREAD * numbers.standard_normal(array.shape)).astype(array.dtype)
        elif name.endswith(ADAPTER_ENDS[1]):
            found[name] = (ADAPTER_SPREAD * numbers.standard_normal(array.shape)).astype(array.dtype)
        else:
            found[name] = array * np.float32(QUERY_GAIN) if name.endswith("query") else array
    return found


def gradient_norm(gradients: Mapping[str, Array]) -> float:
    return float(np.sqrt(sum(float(np.square(array, dtype=np.float64).sum()) for array in gradients.values())))


# --- the settings of a built model ------------------------------------------------------------


def common(found: Iterable[Any]) -> Any:
    """Return the value that all parts of a model share. If their values differ, return all values as text."""
    values = sorted(set(found))
    return values[0] if len(values) == 1 else ", ".join(map(str, values)) or "none"


def rope_of(wavelengths: Array) -> dict[str, Any]:
    """Return the theta of a RoPE table, and whether the table differs from theta ** (2 i / d)."""
    half = len(wavelengths)
    theta = float(wavelengths[-1]) ** (half / (half - 1))
    plain = theta ** (np.arange(half) / half)
    return {
        "rope_theta": float(f"{theta:.{THETA_DIGITS}g}"),
        "rope_scaled": not np.allclose(wavelengths, plain, rtol=1e-5),
    }
