"""Compare compiled variants of a benchmark, with different XLA flags, settings or layouts. Pure."""

import itertools
import re
from collections import Counter
from collections.abc import Mapping, Sequence

import msgspec

from benchmarks.compilation import compiled_report
from benchmarks.compilation.compiled import CompileReport, overlap
from benchmarks.compilation.program import Program
from benchmarks.errors import EXIT_REFUSED, EXIT_VALID, RequestError, StepmarkError
from benchmarks.request.resolve import Request
from benchmarks.sweeps import sweep
from benchmarks.text import Grid, bytes_text, plural, title
from benchmarks.values import Value

PLANNED = "as planned"
UNKNOWN = "autotuning, NCCL's algorithms, contention, power and slow nodes"
EXAMPLE = '--flags_ab="no overlap: --xla_gpu_enable_latency_hiding_scheduler=false"'
FLAG = re.compile(r"--xla_\w+=.*")
# Settings whose values contain commas are not lists.
WHOLE = re.compile(r"xla_|env\.|.*targets|.*modules")


def variant_requests(requests: Sequence[Request], flags_ab: str | None) -> dict[str, Request]:
    """Return each combination of the lists in flags and --set by name, as planned and with each set of flags."""
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
    """Return a name for each request: the flags and settings that differ between the requests."""
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
    """Return the flags of each name in a text such as "NAME: --xla_FLAG=VALUE ...; NAME: ..."."""
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


# --- the comparison -----------------------------------------------------------------------------


def ranked(programs: Mapping[str, Program]) -> list[str]:
    """Return the names sorted: programs that fit come first, then by exposed bytes per token, then by memory."""

    def key(name: str) -> tuple[bool, float, float]:
        one = programs[name]
        return (not one.fits, one.exposed_bytes / one.benchmark.tokens_per_step, one.compiled.peak_bytes)

    return sorted(programs, key=key)


def grid(programs: Mapping[str, Program]) -> Grid:
    first = next(iter(programs))
    rows = [_variant(name, programs[name], first, programs[first]) for name in ranked(programs)]
    titles = [
        "variant", "fits", "#peak", "exposed bytes per step", "hidden bytes", "collectives",
        f"compared with '{first}'",
    ]  # fmt: skip
    names = {title(program.benchmark) for program in programs.values()}
    name = names.pop() if len(names) == 1 else programs[first].benchmark.model.name
    count = plural(len(programs), "variant")
    return Grid(f"{name} · {count} compiled here, sorted by exposed bytes", titles, rows)


def notes(failed: Mapping[str, StepmarkError]) -> list[str]:
    return [
        *(error.what for error in failed.values()),
        "Sorted by whether it fits, then by the bytes per token that no matmul or attention hides.",
        f"A compiler without a GPU cannot know {UNKNOWN}.",
    ]


def text(programs: Mapping[str, Program], failed: Mapping[str, StepmarkError]) -> str:
    table = grid(programs)
    return "\n".join([table.heading, *table.lines(), *(f"  {note}" for note in notes(failed))])


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


def too_large(programs: Mapping[str, Program]) -> RequestError | None:
    """Return an error if no program fits; it describes the smallest program."""
    if any(program.fits for program in programs.values()):
        return None
    name, least = min(programs.items(), key=lambda one: one[1].compiled.peak_bytes)
    several = f"'{name}', the smallest of {len(programs)} programs, does not fit"
    what = "the program does not fit" if len(programs) == 1 else several
    largest = max(least.memory, key=lambda kind: kind.held_bytes)
    return RequestError(
        f"{what} the device",
        where=compiled_report.fits_text(least),
        why=f"most of it is {largest.name}: {bytes_text(largest.held_bytes)}; more GPUs or a smaller batch also help",
        next_command="--set=remat_policy=full",
    )


def exit_code(programs: Mapping[str, Program], failed: Mapping[str, StepmarkError]) -> int:
    if failed:
        return max(error.exit_code for error in failed.values())
    return EXIT_REFUSED if too_large(programs) else EXIT_VALID


def changed(compiled: CompileReport, first: CompileReport) -> str:
    """Return the differences between two compiled programs as text."""
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
    """The compared variants, the best first."""

    variants: list[compiled_report.Variant]
    failed: dict[str, str]
    cannot_know: str


def as_data(programs: Mapping[str, Program], failed: Mapping[str, StepmarkError]) -> Variants:
    return Variants(
        variants=[compiled_report.as_data(name, programs[name]) for name in ranked(programs)],
        failed={name: error.what for name, error in failed.items()},
        cannot_know=UNKNOWN,
    )
