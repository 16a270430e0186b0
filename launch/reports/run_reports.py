"""What launch/report.py does with the runs of a folder: lists, packs, checks what was packed, makes a page."""

import contextlib
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.errors import EXIT_INVALID, EXIT_VALID, RequestError, RunError, StepmarkError
from benchmarks.history.filters import KEYS, Condition, parse_condition
from benchmarks.logs.log_endings import printable
from benchmarks.rendering.report import bytes_text, count_text
from benchmarks.runs.runfolder import BENCHMARK, RESULT, RunFolder

if TYPE_CHECKING:
    from benchmarks.history.index import Index
    from benchmarks.runs.finished_run import FinishedRun

DEFAULT_RUNS = "results"
MOST_SHOWN = 20


def listing(folder: Path, where: Sequence[str], newest: int | None, form: str, *, rebuild: bool) -> int:
    """The runs that fit, in one of exports.FORMATS; beside it, what was left out."""
    from benchmarks.history.exports import FORMATS, Listing
    from launch.reports.run_index import say_problems

    conditions = [parse_condition(text) for text in where]
    index = _index(folder, rebuild=rebuild)
    entries = index.select(conditions, newest)
    left_out = 0 if newest is None else index.count(conditions) - len(entries)
    found = Listing(str(folder), conditions, entries, index.problems(), left_out)
    sys.stdout.buffer.write(FORMATS[form](found).encode(errors="backslashreplace"))
    sys.stdout.flush()
    say_problems(index)
    if conditions and not entries:
        _say_what_there_is(index, conditions)
    return EXIT_VALID


def fitting(folder: Path, where: Sequence[str], newest: int | None = None) -> "list[FinishedRun]":
    """The runs that fit, with a result or without; what was left out is said."""
    from launch.reports.run_index import say_problems

    conditions = [parse_condition(text) for text in where]
    index = _index(folder, rebuild=False)
    say_problems(index)
    entries = index.select(conditions, newest)
    if not entries:
        _say_what_there_is(index, conditions)
        raise RequestError(
            "no run fits",
            where=" ".join(f"--where='{text}'" for text in where) or str(folder),
            next_command=f"python launch/report.py runs {folder}     (lists them)",
        )
    return entries


def _index(folder: Path, *, rebuild: bool) -> "Index":
    from launch.reports.run_index import open_index

    if (folder / BENCHMARK).is_file():
        run = folder.resolve()
        raise RequestError(
            "this is a run itself; a folder that holds runs is needed",
            where=str(folder),
            next_command=f"python launch/report.py runs {run.parent} --where=run={run.name}",
        )
    return open_index(folder, rebuild)


def _say_what_there_is(index: "Index", conditions: Sequence[Condition]) -> None:
    """All but their names: these are the runs themselves."""
    for name in dict.fromkeys(condition.key for condition in conditions if KEYS[condition.key].kind != "part"):
        values = index.values(name)
        if values:
            listed = (" to " if KEYS[name].kind == "date" else ", ").join(values)
            print(f"stepmark: {name} of the runs in {index.output_dir}: {printable(listed)}", file=sys.stderr)


# --- archives -------------------------------------------------------------------------------------


def archive(target: Path, names: Sequence[str], folder: Path, where: Sequence[str], newest: int | None) -> int:
    from benchmarks.history.archive import LEFT_OUT, write_archive

    if not target.name.endswith((".tar.gz", ".tgz")):
        raise RequestError("an archive is called NAME.tar.gz", where=str(target))
    folders = _ended(
        _named(names, folder) if names else [folder / one.path for one in fitting(folder, where, newest)]
    )
    packed = write_archive(folders, target)
    manifest = packed.manifest
    print(
        f"{target}: {_runs(len(folders))}, {len(manifest.files)} files, {bytes_text(manifest.bytes)} "
        f"({bytes_text(target.stat().st_size)} packed); left out of each: {', '.join(LEFT_OUT)}/"
    )
    print(f"  manifest  sha256 {packed.manifest_sha256}")
    print(f"  next      python launch/report.py verify_archive {target}     (on any machine)")
    for path in packed.skipped:
        why = "a name with a dot before it" if Path(path).name.startswith(".") else "no plain file"
        print(f"stepmark: left out, {why}: {printable(path)}", file=sys.stderr)
    if packed.secrets:
        _say_secrets(packed.secrets)
    return EXIT_VALID


def _say_secrets(names: Sequence[str]) -> None:
    """Raw files go in as they are: else no digest would agree."""
    print("stepmark: what looks like a secret is in these files, and now in the archive:", file=sys.stderr)
    for name in names[:MOST_SHOWN]:
        print(f"  {name}", file=sys.stderr)
    if len(names) > MOST_SHOWN:
        print(f"  and {len(names) - MOST_SHOWN} more", file=sys.stderr)


def _named(names: Sequence[str], output_dir: Path) -> list[Path]:
    from launch.slurm.run_states import find_run

    return list(dict.fromkeys(find_run(name, output_dir).path.resolve() for name in names))


def _ended(folders: Sequence[Path]) -> list[Path]:
    """A run that still goes on would be packed half; one that was cut off has no result to be checked."""
    going_on = [folder for folder in folders if not _has_ended(RunFolder(folder))]
    if going_on:
        more = f" (and {len(going_on) - 1} more)" if len(going_on) > 1 else ""
        raise RequestError(
            f"a run has no result yet{more}",
            where=str(going_on[0]),
            why="it trains, waits in a queue, or was cut off",
            next_command=f"python launch/status.py {going_on[0]}, or choose with --where=status=valid,invalid,failed",
        )
    return list(folders)


def _has_ended(folder: RunFolder) -> bool:
    return (folder.path / RESULT).is_file() and folder.is_collected()


def verify_archive(path: Path) -> int:
    """Nothing was changed on the way, and every result follows from its raw files."""
    from benchmarks.history.archive import unpack

    if not path.is_file():
        raise RequestError("there is no such file", where=str(path))
    with tempfile.TemporaryDirectory(prefix="stepmark-archive-") as place:
        try:
            found = unpack(path, Path(place))
        except OSError as error:
            raise RunError(
                f"the archive could not be unpacked: {error.strerror}",
                where=place,
                next_command="TMPDIR=<a folder with space> python launch/report.py verify_archive ...",
            ) from None
        if found.differences or found.manifest is None:
            print(f"{path}: not as it was written")
            _print_some(found.differences)
            return EXIT_INVALID
        manifest = found.manifest
        print(
            f"{path}: whole: {_runs(len(manifest.runs))}, {len(manifest.files)} files, {bytes_text(manifest.bytes)}"
        )
        print(f"  manifest  sha256 {found.manifest_sha256}")
        codes = _verify_runs(Path(place), manifest.runs)
    print(f"{count_text(codes.count(EXIT_VALID))} of {_runs(len(codes))} agree with their raw files")
    return EXIT_VALID if not any(codes) else EXIT_INVALID


def _verify_runs(place: Path, names: Sequence[str]) -> list[int]:
    """The same check as launch/verify.py, which names a run as it is named to it: relative to the archive."""
    from benchmarks.history.archive import RUNS
    from launch.verify import verify

    codes = []
    with contextlib.chdir(place):
        for name in names:
            try:
                codes.append(verify(RunFolder(Path(RUNS, name))))
            except StepmarkError as error:
                print(f"stepmark: {error}", file=sys.stderr)
                codes.append(EXIT_INVALID)
    return codes


def _print_some(lines: Sequence[str]) -> None:
    for line in lines[:MOST_SHOWN]:
        print(printable(f"  {line}"))  # whoever wrote the archive may be a stranger
    if len(lines) > MOST_SHOWN:
        print(f"  and {len(lines) - MOST_SHOWN} more")


def _runs(count: int) -> str:
    return "1 run" if count == 1 else f"{count} runs"


# --- pages ----------------------------------------------------------------------------------------


def html(target: Path, places: Sequence[str], folder: Path, where: Sequence[str], newest: int | None) -> int:
    from launch.reports.html_pages import write_html

    chosen = list(places) or _with_result(folder, where, newest)
    code = write_html(chosen, target)
    print(f"{target}: {bytes_text(target.stat().st_size)}, needs no network")
    return code


def _with_result(folder: Path, where: Sequence[str], newest: int | None) -> list[str]:
    """A run that has no result yet has no figures to show: it is named and left out."""
    from benchmarks.runs.finished_run import RUNNING

    entries = fitting(folder, where, newest)
    ended = [str(folder / one.path) for one in entries if one.status != RUNNING]
    if not ended:
        first = folder / entries[0].path
        raise RequestError(
            "no run that fits has a result yet", where=str(first), next_command=f"python launch/status.py {first}"
        )
    for one in entries:
        if one.status == RUNNING:
            print(f"stepmark: left out, it has no result yet: {printable(one.path)}", file=sys.stderr)
    return ended
