"""Read runs, sweeps and nights, and write one HTML file about all of them."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from benchmarks import files
from benchmarks.backend import find_backend
from benchmarks.configs import Configs
from benchmarks.errors import EXIT_VALID, RequestError
from benchmarks.measuring.summary import Result
from benchmarks.model.bounds import bound
from benchmarks.model.published_rows import read_references
from benchmarks.nightly.values import NightReport
from benchmarks.pages.night import night_part
from benchmarks.pages.page import LogTail, Part, page
from benchmarks.pages.run import RunMaterial, run_part
from benchmarks.pages.sweep import sweep_part
from benchmarks.reading.log_stream import without_colours
from benchmarks.references import nearest_reference
from benchmarks.runs.runfolder import BENCHMARK, RESULT, RunFolder, without_result, write_atomically
from benchmarks.secret_rules import REDACTED, Known, hidden_in_log, is_secret_name, shell_secrets
from benchmarks.sweeps.sweep_report import report_of_file
from benchmarks.text import printable_lines

LAST_LINES = 40
TAIL_BYTES = 64 << 10
OUR_PAGE = b'<meta name="generator" content="Stepmark '
WITHIN_BYTES = 4096  # the mark of a page is in this many first bytes


def write_html(places: list[str], output: Path) -> int:
    """Write one HTML file about the runs, sweeps and nights in `places`, or no file if one of them is unreadable."""
    refuse_place(output)
    parts = [part_of(Path(place), f"report-{number}") for number, place in enumerate(places, 1)]
    write_page(page(*parts), output)
    return EXIT_VALID


def write_page(html: str, output: Path) -> None:
    """Write the page atomically. If its folder is missing, create it."""
    refuse_place(output)
    output.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(output, html.encode())


def refuse_place(output: Path) -> None:
    """Raise RequestError if the output exists but is not a page of Stepmark."""
    if output.is_dir() or (output.exists() and not _is_our_page(output)):
        what = "the file exists and is not a page of Stepmark"
        raise RequestError(what, where=str(output), why="choose another name, such as page.html")


def _is_our_page(path: Path) -> bool:
    with files.opened(path) as stream:
        beginning = stream.read(WITHIN_BYTES)
    return not beginning or OUR_PAGE in beginning  # an empty file may be overwritten


def part_of(place: Path, key: str) -> Part:
    """Return the part of the page about one run, sweep or night."""
    if not place.exists():
        raise _cannot_be_shown("the file or folder does not exist", place)
    if place.is_dir():
        return run_part(material_of(RunFolder(place)), key)
    if place.name.startswith("sweep-"):
        return sweep_part(report_of_file(place), key)
    try:
        report = files.read_json(place, NightReport)
        if place.absolute().parts[-3:-1] == ("nights", report.suite):  # the output folder may have been moved
            report = replace(report, history=[str(place.parents[2])])
        return night_part(report, key)
    except ValueError as error:
        raise _cannot_be_shown(f"this is not a report of a night: {error}", place) from None


def _cannot_be_shown(what: str, place: Path) -> RequestError:
    why = "pass a run's folder, the record of a sweep (sweep-*.json) or the report of a night (JSON)"
    return RequestError(what, where=str(place), why=why)


# --- a run --------------------------------------------------------------------------------------


def material_of(folder: RunFolder) -> RunMaterial:
    """Return the data that the page of a run shows."""
    if not (folder.path / BENCHMARK).exists():
        raise _cannot_be_shown("this is not a run's folder", folder.path)
    if not (folder.path / RESULT).exists():
        raise without_result(folder.path)
    benchmark, result = folder.benchmark(), folder.stored_result()
    lower_bound = None
    with contextlib.suppress(RequestError):  # a backend may refuse to describe its storage
        lower_bound = bound(benchmark, find_backend(benchmark.backend).storage(benchmark))
    return RunMaterial(
        benchmark=benchmark,
        result=msgspec.convert(scrubbed(msgspec.to_builtins(result)), Result),  # a result quotes logs
        steps=[step for step in folder.each_stored_step() if step.rank == 0],
        provenance=scrubbed(folder.provenance()),
        place=str(folder.path),
        bound=lower_bound,
        nearest=nearest_reference.nearest_of_result(result, read_references(Configs().root)),
        logs=[] if result.status == "valid" else list(log_tails(folder, result)),
        diagnosis=_diagnosis(folder) if result.status == "failed" else [],
    )


def _diagnosis(folder: RunFolder) -> list[tuple[str, str]]:
    """Return what the doctor found in the logs of a failed run, without possible secrets."""
    from benchmarks.doctor.text import rows
    from benchmarks.runs.diagnosing import diagnosis_of_run

    return [(label, cleaned(text)) for label, text in rows(diagnosis_of_run(folder))]


# --- removing secrets ---------------------------------------------------------------------------


def scrubbed(value: Any, known: Known | None = None) -> Any:
    """Return the data with everything that looks like a secret hidden, at any depth."""
    known = shell_secrets() if known is None else known
    if isinstance(value, str):
        return cleaned(value, known)
    if isinstance(value, list):
        return [scrubbed(one, known) for one in value]
    if isinstance(value, dict):
        return {
            name: REDACTED if isinstance(inner, str) and is_secret_name(str(name)) else scrubbed(inner, known)
            for name, inner in value.items()
        }
    return value


def cleaned(text: str, known: Known | None = None) -> str:
    """Return the text without secrets, and without characters that move the cursor of a terminal."""
    hidden = hidden_in_log(text.encode(errors="backslashreplace"), known).decode(errors="backslashreplace")
    return printable_lines(hidden)


# --- the ends of logs ---------------------------------------------------------------------------


def log_tails(folder: RunFolder, result: Result) -> Iterator[LogTail]:
    """Yield the last lines of the failed rank's logs in the last attempt (or of rank 0), and of the job's log."""
    rank = result.attempts[-1].rank if result.attempts else None
    logs = folder.attempt_dir(max(folder.attempts(), default=0)).glob(f"*/rank-{rank or 0}.log")
    for path in [*sorted(logs), *folder.job_output()[-1:]]:
        yield _tail(path, str(path.relative_to(folder.path)))


def _tail(path: Path, name: str) -> LogTail:
    with files.opened(path) as stream:
        size = stream.seek(0, 2)
        stream.seek(max(0, size - TAIL_BYTES))
        text = without_colours(stream.read()).replace(b"\r", b"\n")
    if size > TAIL_BYTES:  # the first line is incomplete, and may be a secret without its name
        text = text.partition(b"\n")[2]
    lines = [line.rstrip() for line in cleaned(text.decode(errors="backslashreplace")).rstrip().split("\n")]
    whole = size <= TAIL_BYTES and len(lines) <= LAST_LINES
    return LogTail(name, lines[-LAST_LINES:], "" if whole else f"the last {min(LAST_LINES, len(lines))} lines")
