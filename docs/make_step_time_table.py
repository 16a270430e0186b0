"""Prints how near each way of predicting a step's time comes to NVIDIA's published MaxText rows, as Markdown.

.venv/bin/python docs/make_step_time_table.py --programs=DIR

- walked: the compiled schedule with published rates, nothing fitted (benchmarks/compilation/walk.py).
- one rate: the same, with the rates of matmuls and attention times one factor that is fitted on other rows.
- constant x bound: the bound of plan.py times one constant, fitted on other rows of the same precision.
- lookup: the seconds of the nearest number of GPUs, in log scale, among other rows of the same model and precision.
  Without its model: those of another model at this number of GPUs, times the ratio of the bounds.

Each row is predicted without itself, and again without any row of its model. First come the rows whose program fits
the memory of its GPU: a program that does not is not the one that was timed. Then all rows. Programs are kept in DIR;
what is not there is compiled, in half a minute to four minutes a row.
"""

import argparse
import math
import sys
from collections.abc import Callable, Iterator, Sequence
from math import log2
from pathlib import Path
from statistics import fmean, median
from typing import NamedTuple

import msgspec

REPOSITORY = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(REPOSITORY))

from benchmarks.compilation.schedule import Schedule  # noqa: E402
from benchmarks.compilation.walk import Rates, rates_of, walk  # noqa: E402
from benchmarks.configs import Configs  # noqa: E402
from benchmarks.errors import StepmarkError  # noqa: E402
from benchmarks.planning import calibration  # noqa: E402
from benchmarks.references.references import Reference  # noqa: E402
from benchmarks.request.resolve import Request, resolve  # noqa: E402
from benchmarks.values import Benchmark, Value  # noqa: E402
from jax_backend import BACKEND  # noqa: E402
from launch.planning.compiling import compile_step  # noqa: E402
from launch.planning.planning_calibration import published_rows  # noqa: E402

FACTORS = [0.60 + 0.0025 * step for step in range(201)]  # that the one fitted rate is chosen from
METHODS = ("walked", "one rate", "constant x bound", "lookup")


class Program(Value, frozen=True):
    """What is kept of a compiled row."""

    peak_bytes: float
    schedule: Schedule


class Row(NamedTuple):
    """A published row, with all that is predicted from."""

    reference: Reference
    calibrated: calibration.Row  # with its bound
    walked: list[float]  # seconds, for each of FACTORS
    textbook: float  # seconds with the rates as they are
    peak_gb: float
    fits: bool

    @property
    def seconds(self) -> float:
        return self.reference.seconds

    @property
    def bound_seconds(self) -> float:
        return self.calibrated.bound.seconds or math.nan


Predictions = dict[str, tuple[float | None, float | None]]  # method -> seconds without the row, without its model


# --- the rows -----------------------------------------------------------------------------------


def rows_of(configs: Configs, programs: Path) -> Iterator[Row]:
    for row in published_rows(configs)[0]:
        if row.reference.backend != BACKEND.name:
            continue
        try:
            program = program_of(row.reference, configs, programs)
        except StepmarkError as error:
            print(f"{row.reference.name} is left out: {error}", file=sys.stderr)
            continue
        rates = rates_of(row.benchmark.hardware)
        peak_gb = program.peak_bytes / 1e9
        yield Row(
            row.reference,
            row,
            [walk(program.schedule, scaled(rates, factor)).seconds for factor in FACTORS],
            walk(program.schedule, rates).seconds,
            peak_gb,
            fits=peak_gb <= (row.benchmark.hardware.memory_gb or 0),
        )


def program_of(row: Reference, configs: Configs, programs: Path) -> Program:
    kept = programs / f"{row.model}-{row.dtype}-{row.gpus}.json"
    if not kept.exists():
        kept.parent.mkdir(parents=True, exist_ok=True)
        compiled = compile_step(benchmark_of(row, configs), BACKEND)
        kept.write_bytes(msgspec.json.encode(Program(peak_bytes=compiled.peak_bytes, schedule=compiled.schedule)))
    return msgspec.json.decode(kept.read_bytes(), type=Program)


def benchmark_of(row: Reference, configs: Configs) -> Benchmark:
    """As it was published: the recipe at this scale, in the row's own layout and with its model."""
    recipe = next(one for one in configs.recipes(row.backend) if row.hardware in one.hardware and one.task != "lora")
    asked = Request(
        backend=row.backend, model=recipe.models[0], dtype=row.dtype, hardware=row.hardware, gpus=row.gpus
    )
    found = resolve(asked, configs, BACKEND)
    per_node = found.hardware.devices_per_node
    layout = {"dcn_fsdp_parallelism": row.fsdp // per_node, "dcn_data_parallelism": row.data}
    return msgspec.structs.replace(
        found,
        model=configs.model(row.model),
        knobs={**found.knobs, **layout},
        parallelism=row.parallelism,
        sequence_length=row.sequence_length,
        micro_batch_size=row.micro_batch_size,
        global_batch_size=row.global_batch_size,
    )


def scaled(rates: Rates, factor: float) -> Rates:
    return msgspec.structs.replace(
        rates,
        matmul_flops={dtype: factor * rate for dtype, rate in rates.matmul_flops.items()},
        attention_flops={direction: factor * rate for direction, rate in rates.attention_flops.items()},
    )


# --- predictions --------------------------------------------------------------------------------


def predictions(row: Row, rows: Sequence[Row]) -> Predictions:
    without_row = [other for other in rows if other is not row]
    without_model = [other for other in rows if other.reference.model != row.reference.model]

    def both(predict: Callable[[Row, Sequence[Row]], float | None]) -> tuple[float | None, float | None]:
        return predict(row, without_row), predict(row, without_model)

    return {
        "walked": (row.textbook, row.textbook),
        "one rate": both(one_rate),
        "constant x bound": both(constant_times_bound),
        "lookup": both(looked_up),
    }


def one_rate(row: Row, others: Sequence[Row]) -> float | None:
    if not others:
        return None
    errors = [
        sum((other.walked[place] / other.seconds - 1) ** 2 for other in others) for place in range(len(FACTORS))
    ]
    return row.walked[errors.index(min(errors))]


def constant_times_bound(row: Row, others: Sequence[Row]) -> float | None:
    ratios = [one.calibrated.ratio for one in others if one.reference.dtype == row.reference.dtype]
    return fmean(ratios) * row.bound_seconds if ratios else None


def looked_up(row: Row, others: Sequence[Row]) -> float | None:
    precision = [one for one in others if one.reference.dtype == row.reference.dtype]
    candidates = [one for one in precision if one.reference.model == row.reference.model] or precision
    if not candidates:
        return None

    def distance(one: Row) -> float:
        return abs(log2(one.reference.gpus / row.reference.gpus))

    nearest = [one for one in candidates if distance(one) == min(map(distance, candidates))]
    return fmean(one.calibrated.ratio * row.bound_seconds for one in nearest)


# --- tables -------------------------------------------------------------------------------------


def percent(seconds: float | None, row: Row) -> float | None:
    return None if seconds is None else 100 * (seconds / row.seconds - 1)


def shown(number: float | None) -> str:
    return "-" if number is None else f"{number:+.1f}"


def table_of_rows(found: dict[str, tuple[Row, Predictions]]) -> Iterator[str]:
    """Errors in percent of the published seconds: without the row, and without its model."""
    yield f"| row | peak, GB | published, s | walked, s | {' | '.join(f'{name}, %' for name in METHODS)} |"
    yield "|---" * (4 + len(METHODS)) + "|"
    for name, (row, predicted) in found.items():
        errors = []
        for method in METHODS:
            alone, model = (shown(percent(seconds, row)) for seconds in predicted[method])
            errors.append(alone if method == "walked" else f"{alone} / {model}")
        yield f"| {name} | {row.peak_gb:.1f} | {row.seconds:.3f} | {row.textbook:.3f} | {' | '.join(errors)} |"


def table_of_errors(found: dict[str, tuple[Row, Predictions]]) -> Iterator[str]:
    yield "| precision | method | rows | median, % | worst, % | without its model: median, % | worst, % |"
    yield "|---" * 7 + "|"
    for dtype in dict.fromkeys(row.reference.dtype for row, _ in found.values()):
        of_dtype = [one for one in found.values() if one[0].reference.dtype == dtype]
        for method in METHODS:
            cells: list[str] = []
            for side in (0, 1):
                errors = [percent(predicted[method][side], row) for row, predicted in of_dtype]
                known = [abs(error) for error in errors if error is not None]
                cells += [f"{median(known):.1f}", f"{max(known):.1f}"] if known else ["-", "-"]
            yield f"| {dtype} | {method} | {len(of_dtype)} | {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", type=Path, required=True, help="the folder in which compiled programs are kept")
    rows = list(rows_of(Configs(), parser.parse_args().programs))
    fitting = [row for row in rows if row.fits]
    print(f"{len(fitting)} rows whose program fits\n\n{tables(fitting)}\n\nall {len(rows)} rows\n\n{tables(rows)}")


def tables(rows: Sequence[Row]) -> str:
    found = {row.reference.name: (row, predictions(row, rows)) for row in rows}
    return "\n".join([*table_of_rows(found), "", *table_of_errors(found)])


if __name__ == "__main__":
    main()
