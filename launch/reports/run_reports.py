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
from benchmarks.rendering.columns import plural
from benchmarks.rendering.report import bytes_text
from benchmarks.runs.runfolder import BENCHMARK, RESULT, RunFolder
from launch.reports.run_index import open_index, print_some, say_problems

if TYPE_CHECKING:
    from benchmarks.history.index import Index
    from benchmarks.runs.finished_run import FinishedRun


def listing(folder: Path, where: Sequence[str], newest: int | None, form: str, *, rebuild: bool) -> int:
    """The runs that fit, in one of exports.FORMATS; on stderr, what was left out."""
    from benchmarks.history.exports import FORMATS, Listing

    conditions = [parse_condition(text) for text in where]
    index = _index(folder, rebuild=rebuild)
    entries = index.select(conditions, newest)
    found = Listing(str(folder), conditions, entries, index.problems())
    sys.stdout.buffer.write(FORMATS[form](found).encode(errors="backslashreplace"))
    sys.stdout.flush()
    say_problems(index)
    if conditions and not entries:
        _say_what_there_is(index, conditions)
    return EXIT_VALID


def _fitting(folder: Path, where: Sequence[str], newest: int | None) -> "list[FinishedRun]":
    """The runs that fit, with a result or without; what was left out is said."""
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
        if values := ", ".join(index.values(name)):
            print(f"stepmark: {name} of the runs in {index.output_dir}: {printable(values)}", file=sys.stderr)


# --- archives -------------------------------------------------------------------------------------


def archive(target: Path, names: Sequence[str], folder: Path, where: Sequence[str], newest: int | None) -> int:
    from benchmarks.history.archive import LEFT_OUT, write_archive
    from launch.slurm.run_states import find_run

    if not target.name.endswith((".tar.gz", ".tgz")):
        raise RequestError("an archive is called NAME.tar.gz", where=str(target))
    if names:
        folders = list(dict.fromkeys(find_run(name, folder).path.resolve() for name in names))
    else:
        folders = [folder / one.path for one in _fitting(folder, where, newest)]
    for run in map(RunFolder, folders):
        if not (run.path / RESULT).is_file() or not run.is_collected():
            raise _no_result("a run has no result yet", run.path)
    packed = write_archive(folders, target)
    manifest = packed.manifest
    print(
        f"{target}: {plural(len(folders), 'run')}, {len(manifest.files)} files, {bytes_text(manifest.bytes)} "
        f"({bytes_text(target.stat().st_size)} packed); left out of each: {', '.join(LEFT_OUT)}/"
    )
    print(f"  manifest  sha256 {packed.manifest_sha256}")
    print(f"  next      python launch/report.py verify_archive {target}     (on any machine)")
    if packed.skipped:
        print("stepmark: left out, as they are links or have a dot before their name:", file=sys.stderr)
        print_some(packed.skipped, len(packed.skipped))
    if packed.secrets:  # raw files go in as they are: else no digest would agree
        print("stepmark: what looks like a secret is in these files, and now in the archive:", file=sys.stderr)
        print_some(packed.secrets, len(packed.secrets))
    return EXIT_VALID


def _no_result(what: str, place: Path) -> RequestError:
    return RequestError(
        what,
        where=str(place),
        why="it trains, waits in a queue, or was cut off",
        next_command=f"python launch/status.py {place}, or choose with --where=status=valid,invalid,failed",
    )


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
            print(f"{path}: not as it was written", flush=True)
            print_some(found.differences, len(found.differences))
            return EXIT_INVALID
        manifest = found.manifest
        sizes = f"{plural(len(manifest.runs), 'run')}, {len(manifest.files)} files, {bytes_text(manifest.bytes)}"
        print(f"{path}: whole: {sizes}")
        print(f"  manifest  sha256 {found.manifest_sha256}")
        codes = _verify_runs(Path(place), manifest.runs)
    print(f"{codes.count(EXIT_VALID):,} of {plural(len(codes), 'run')} agree with their raw files")
    return EXIT_INVALID if any(codes) else EXIT_VALID


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


# --- pages ----------------------------------------------------------------------------------------


def html(target: Path, places: Sequence[str], folder: Path, where: Sequence[str], newest: int | None) -> int:
    from launch.reports.html_pages import write_html

    code = write_html(list(places) or _with_result(folder, where, newest), target)
    print(f"{target}: {bytes_text(target.stat().st_size)}, needs no network")
    return code


def _with_result(folder: Path, where: Sequence[str], newest: int | None) -> list[str]:
    """A run that has no result yet has no figures to show: it is named and left out."""
    from benchmarks.runs.finished_run import RUNNING

    entries = _fitting(folder, where, newest)
    ended = [str(folder / one.path) for one in entries if one.status != RUNNING]
    if not ended:
        raise _no_result("no run that fits has a result yet", folder / entries[0].path)
    for one in entries:
        if one.status == RUNNING:
            print(f"stepmark: left out, it has no result yet: {printable(one.path)}", file=sys.stderr)
    return ended
