"""Compare compiled or traced variants of a benchmark, which differ in XLA flags, settings or layout. No I/O."""

import itertools
import re
from collections import Counter
from collections.abc import Mapping, Sequence

import msgspec

from benchmarks.compilation import compiled_report, traced_report
from benchmarks.compilation.compiled import CompileReport, overlap
from benchmarks.compilation.program import Program
from benchmarks.compilation.traced import TracedProgram, TraceReport
from benchmarks.errors import EXIT_REFUSED, EXIT_VALID, RequestError, StepmarkError
from benchmarks.request.resolve import Request
from benchmarks.sweeps import sweep
from benchmarks.text import Grid, bytes_text, plural, title
from benchmarks.values import Benchmark, Storage, Value

PLANNED = "as planned"
UNKNOWN = "autotuning, NCCL's algorithms, contention, power and slow nodes"
EXAMPLE = '--flags_ab="no overlap: --xla_gpu_enable_latency_hiding_scheduler=false"'
FLAG = re.compile(r"--xla_\w+=.*")
# Settings whose values may contain commas, so they are not lists.
WHOLE = re.compile(r"xla_|env\.|.*targets|.*modules")


def variant_requests(requests: Sequence[Request], flags_ab: str | None) -> dict[str, Request]:
    """Return name -> variant: each combination of the lists in flags and --set, also with each set of --flags_ab."""
    found: dict[str, Request] = {}
    cells = [cell for request in requests for cell in _cells(request)]
    flags = flag_sets(flags_ab) if flags_ab is not None else {}
    for words, request in zip(_words(cells), cells, strict=True):
        for flag_words, more in {"": {}, **flags}.items():
            name = ", ".join(filter(None, [words, flag_words])) or PLANNED
            if name in found:
                raise RequestError(
                    f"two variants are called '{name}'",
                    where="--flags_ab, or the lists in --set",
                    why="use each value once in a list, and a different name for each set of flags",
                )
            found[name] = msgspec.structs.replace(request, settings={**request.settings, **more})
    return found


def _cells(request: Request) -> list[Request]:
    """Return a request for each combination of the lists in --set, such as --set=remat_policy=full,minimal."""
    lists = [
        [(key, word) for word in (value.split(",") if "," in value and not WHOLE.match(key) else [value])]
        for key, value in request.settings.items()
    ]
    empty = next((key for words in lists for key, word in words if not word and len(words) > 1), None)
    if empty is not None:
        raise RequestError(
            f"--set={empty} has an empty value in its list", where="--set", next_command=f"--set={empty}"
        )
    return [msgspec.structs.replace(request, settings=dict(settings)) for settings in itertools.product(*lists)]


def _words(requests: Sequence[Request]) -> list[str]:
    """Return a name for each request: the flags and settings in which the requests differ."""
    if len(requests) == 1:
        return [""]
    keys = dict.fromkeys(key for request in requests for key in request.settings)
    differing = [key for key in keys if len({request.settings.get(key) for request in requests}) > 1]
    flags = sweep.labels(requests) if len({*sweep.labels(requests)}) > 1 else [""] * len(requests)
    return [
        " ".join(filter(None, [words, *(f"{key}={request.settings[key]}" for key in differing)]))
        for words, request in zip(flags, requests, strict=True)
    ]


def flag_sets(text: str) -> dict[str, dict[str, str]]:
    """Return name -> flags from a text such as "NAME: --xla_FLAG=VALUE ...; NAME: ..."."""
    found: dict[str, dict[str, str]] = {}
    for part in text.split(";"):
        name, _, words = (piece.strip() for piece in part.partition(":"))
        flags = [word.removeprefix("--").partition("=") for word in words.split() if FLAG.fullmatch(word)]
        if not name or not flags or name in found or len(flags) < len(words.split()):
            raise RequestError(
                f"--flags_ab: '{part.strip()}' cannot be read",
                where="--flags_ab",
                why="a variant is NAME: --xla_NAME=VALUE ..., and a semicolon separates two variants",
                next_command=EXAMPLE,
            )
        found[name] = {key: value for key, _, value in flags}
    return found


Programs = Mapping[str, Program | TracedProgram]


def traced_ones(programs: Programs) -> dict[str, TracedProgram]:
    """Return the traced programs. One backend makes all programs, so they are all traced, or none is."""
    return {name: one for name, one in programs.items() if isinstance(one, TracedProgram)}


# --- compared -----------------------------------------------------------------------------------


def program_of(
    benchmark: Benchmark, storage: Storage, report: CompileReport | TraceReport
) -> Program | TracedProgram:
    if isinstance(report, TraceReport):
        return TracedProgram(benchmark, storage, report)
    return Program(benchmark, storage, report)


def ranked(programs: Programs) -> list[str]:
    """Return the names, best first: programs that fit, then by exposed bytes per token (if known), then by memory."""
    return sorted(programs, key=lambda name: programs[name].rank)


def grid(programs: Programs) -> Grid:
    first = next(iter(programs))
    names = {title(program.benchmark) for program in programs.values()}
    name = names.pop() if len(names) == 1 else programs[first].benchmark.model.name
    count = plural(len(programs), "variant")
    traced = traced_ones(programs)
    if traced:
        return traced_report.variants_grid(traced, f"{name} · {count} traced here, sorted by memory")
    compiled = {name: one for name in ranked(programs) if isinstance(one := programs[name], Program)}
    rows = [_variant(name, one, first, compiled[first]) for name, one in compiled.items()]
    titles = [
        "variant", "fits", "#peak", "exposed bytes per step", "hidden bytes", "collectives",
        f"compared with '{first}'",
    ]  # fmt: skip
    return Grid(f"{name} · {count} compiled here, sorted by exposed bytes", titles, rows)


def notes(programs: Programs, failed: Mapping[str, StepmarkError]) -> list[str]:
    if traced_ones(programs):
        return [*(error.what for error in failed.values()), *traced_report.NOTES]
    return [
        *(error.what for error in failed.values()),
        "Variants that fit come first, sorted by the bytes per token that no matmul or attention hides.",
        f"A compiler without a GPU cannot account for {UNKNOWN}.",
    ]


def text(programs: Programs, failed: Mapping[str, StepmarkError]) -> str:
    """Return the table of several programs, or the report of a single program."""
    if len(programs) + len(failed) == 1:
        (one,) = programs.values()
        return traced_report.text(one) if isinstance(one, TracedProgram) else compiled_report.text(one)
    table = grid(programs)
    return "\n".join([table.heading, *table.lines(), *(f"  {note}" for note in notes(programs, failed))])


def _variant(name: str, program: Program, first_name: str, first: Program) -> tuple[str, ...]:
    by_axis, found = program.bytes_by_axis, overlap(program.compiled.schedule)
    return (
        name,
        "yes" if program.fits else "NO",
        bytes_text(program.compiled.peak_bytes),
        ", ".join(f"{axis} {bytes_text(exposed)}" for axis, (exposed, _) in by_axis.items()) or "none",
        ", ".join(f"{axis} {bytes_text(hidden)}" for axis, (_, hidden) in by_axis.items()) or "none",
        f"{len(found)}, {sum(one.hidden for one in found)} hidden",
        "" if name == first_name else changed(program.compiled, first.compiled),
    )


def too_large(programs: Programs) -> RequestError | None:
    """Return an error that describes the smallest program if no program fits, otherwise None."""
    if any(program.fits for program in programs.values()):
        return None
    name = min(programs, key=lambda name: programs[name].peak_bytes)
    least = programs[name]
    several = f"'{name}', the smallest of {len(programs)} programs, does not fit"
    what = "the program does not fit" if len(programs) == 1 else several
    largest = max(least.memory, key=lambda kind: kind.held_bytes)
    return RequestError(
        f"{what} the device",
        where=compiled_report.fits_text(least),
        why=f"the largest part is {largest.name}: {bytes_text(largest.held_bytes)}; use more GPUs or a smaller batch",
        next_command=least.saves_memory,
    )


def exit_code(programs: Programs, failed: Mapping[str, StepmarkError]) -> int:
    if failed:
        return max(error.exit_code for error in failed.values())
    return EXIT_REFUSED if too_large(programs) else EXIT_VALID


def changed(compiled: CompileReport, first: CompileReport) -> str:
    """Return how a compiled program differs from the first one, as text."""
    if compiled.program_sha256 == first.program_sha256:
        return "the same program"
    now, before = (Counter(one.kind for one in overlap(program.schedule)) for program in (compiled, first))
    counts = [f"{before[kind]} -> {now[kind]} {kind}" for kind in sorted(now | before) if now[kind] != before[kind]]
    synchronous, was = (
        sum(not one.asynchronous for one in overlap(program.schedule)) for program in (compiled, first)
    )
    counts += [f"{was} -> {synchronous} synchronous"] if synchronous != was else []
    memory = f"peak {compiled.peak_bytes / first.peak_bytes - 1:+.1%}"
    return ", ".join([memory, *counts])


class Variants(Value, frozen=True):
    """The compiled variants, the best first."""

    variants: list[compiled_report.Variant]
    failed: dict[str, str]
    cannot_know: str


class TracedVariants(Value, frozen=True):
    """The traced variants, the best first."""

    variants: list[traced_report.TracedVariant]
    failed: dict[str, str]
    cannot_know: str


def as_data(programs: Programs, failed: Mapping[str, StepmarkError]) -> Variants | TracedVariants:
    errors = {name: error.what for name, error in failed.items()}
    in_order = [(name, programs[name]) for name in ranked(programs)]
    traced = [traced_report.as_data(name, one) for name, one in in_order if isinstance(one, TracedProgram)]
    if traced:
        return TracedVariants(variants=traced, failed=errors, cannot_know="times and overlap")
    compiled = [compiled_report.as_data(name, one) for name, one in in_order if isinstance(one, Program)]
    return Variants(variants=compiled, failed=errors, cannot_know=UNKNOWN)
