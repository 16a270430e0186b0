"""Estimates of published rows whose whole series was taken away, next to a baseline that knows nothing of a step.

The baseline is one number times the bound: the median of the rows of the same framework, task and precision.
"""

from statistics import median

from benchmarks.backend import find_backend
from benchmarks.configs import Configs
from benchmarks.errors import RequestError
from benchmarks.model.bounds import bound
from benchmarks.model.estimate import SERIES, as_benchmark, estimate, read_published
from benchmarks.model.published_rows import Reference
from tests.auditing.table import Line, Lines, Random, Size

PART = "estimates"


def series(row: Reference) -> tuple[object, ...]:
    """What one program does on one kind of GPU, at any scale and in any version."""
    program = (row.engine, row.task, row.model.rpartition("_")[2], row.dtype, row.hardware, row.sequence_length)
    layout = (row.tensor, row.pipeline, row.context, row.virtual_pipeline)
    return (*program, *layout, row.micro_batch_size, row.global_batch_size / row.gpus)


def lines(size: Size, random: Random) -> Lines:  # noqa: ARG001 - nothing is drawn, and all is quick
    configs = Configs()
    published = read_published(configs)
    benchmarks, bounds = {}, {}
    for row in published.rows:
        backend = find_backend(row.backend)
        try:
            benchmarks[row] = as_benchmark(row, configs, backend)
        except RequestError:
            continue
        found = bound(benchmarks[row], backend.storage(benchmarks[row]))
        if found.seconds and not found.unknown:
            bounds[row] = found
    errors, constants = [], []
    for row, found in bounds.items():
        others = [one for one in bounds if series(one) != series(row)]
        product = estimate(benchmarks[row], found, published._replace(rows=others)).seconds or 0.0
        family = [one for one in others if (one.engine, one.task, one.dtype) == (row.engine, row.task, row.dtype)]
        ratio = median(one.seconds / (bounds[one].seconds or 1.0) for one in family or others)
        errors.append(100 * abs(product / row.seconds - 1))
        constants.append(100 * abs(ratio * (found.seconds or 0.0) / row.seconds - 1))
    found_text = f"{len(errors)} rows: {median(errors):.1f}% (worst {max(errors):.1f}%)"
    baseline = f"a constant x the bound {median(constants):.1f}% (worst {max(constants):.1f}%)"
    what, holds = "each row without its series: the median error", median(errors) <= median(constants)
    yield Line(PART, what, "no worse than the baseline", f"{found_text}; {baseline}", holds)
    kept = next(one for one in published.errors if one.kind == SERIES)
    same = abs(median(errors) - kept.median_percent) < 0.1 and abs(max(errors) - kept.worst_percent) < 0.1
    yield Line(PART, "the error that is shown with an estimate", f"{kept.median_percent}%", found_text, same)
