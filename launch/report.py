"""Report on many runs, logs and sweeps. The default subcommand is `timing`: a row for each training log.

    python launch/report.py DIR                                 a row for each training log below DIR
    python launch/report.py runs                                the runs in ./results
    python launch/report.py trace results/RUN                   the breakdown of a step's time

Exit codes: 0 the report was made; 2 the request was wrong; 3 a check failed.
"""

if not __package__:  # run as a script: put the checkout, not launch/, on the path
    import _script  # noqa: F401

import contextlib
import shlex
import sys
import tempfile
from pathlib import Path

from absl import flags

from benchmarks.errors import EXIT_INVALID, EXIT_VALID, RequestError
from launch.cli.command import only_argument, refuse_more
from launch.cli.subcommands import Subcommand, Subcommands
from launch.terminal.output import answer, document

DEFAULT_LOGS = "experiments"  # the default of parse_train_timing.sh

OUTPUT_DIR = flags.DEFINE_string("output_dir", "results", "Folder of the runs.")
WHERE = flags.DEFINE_multi_string(
    "where", [], "Condition such as dtype=bf16,fp8 or gpus>=64; a run must meet all of them."
)
NEWEST = flags.DEFINE_integer("newest", None, "Only the newest N runs.", lower_bound=1)
FORMAT = flags.DEFINE_enum("format", "table", ["table", "csv"], "Format of the list.")
WINDOW = flags.DEFINE_string("window", "35-44", "Steps to measure: last, steady, or a range A-B.")
RULESET = flags.DEFINE_string(
    "ruleset", None, "Version of MLPerf Training's rules, such as 5.1.0. (default: from the round of the log)"
)


def timing(argv: list[str]) -> int:
    """Print a row for each training log in some folders: step time, its standard deviation, TFLOPS per GPU.

        python launch/report.py timing DIR                          the logs below DIR, steps 35 to 44
        python launch/report.py timing --window=steady DIR FILE     the steady steps

    As in `parse_train_timing.sh`, a row has the mean and sample standard deviation (n - 1) of the step times, and of
    TFLOPS_per_GPU if the log prints it. The row of an incomplete run shows the last step. `doctor.py logs` shows why
    a run ended, and `report.py runs` lists the runs of Stepmark. Exit code 0: the report was made, even if runs
    failed.
    """
    from benchmarks.logs import timing_table
    from benchmarks.logs.templates import all_log_formats
    from benchmarks.request.window_rule import check_rule
    from launch.terminal.progress import tracked

    check_rule(WINDOW.value)
    paths, unlisted = timing_table.find_logs([Path(name) for name in argv[1:] or [DEFAULT_LOGS]])
    formats = all_log_formats()
    rows = [timing_table.row_of(path, WINDOW.value, formats) for path in tracked(paths, "reading logs", len(paths))]
    timings = timing_table.as_data([*rows, *unlisted], WINDOW.value)
    answer(timings, lambda: timing_table.as_table(timings))
    return EXIT_VALID


def runs(argv: list[str]) -> int:
    """List all runs of a folder, or those that match conditions, as a table, CSV or JSON.

        python launch/report.py runs                                                 the runs in ./results
        python launch/report.py runs FOLDER --where=model=llama2_70b --where='gpus>=64' --newest=10
        python launch/report.py runs --where=run=eeab                                a run, by a part of its name
        python launch/report.py runs --format=csv

    docs/reference/filters.md lists the keys of --where.
    """
    from benchmarks.history import exports
    from benchmarks.history.filters import parse_condition
    from launch.terminal.run_index import open_index, say_problems

    refuse_more(argv[2:], "python launch/report.py runs --help")
    folder = Path(argv[1] if argv[1:] else OUTPUT_DIR.value)
    conditions = [parse_condition(text) for text in WHERE.value]
    index = open_index(folder)
    entries = index.select(conditions, NEWEST.value)
    found = exports.RunListing(
        folder=str(folder), where=[one.text for one in conditions], runs=entries, problems=index.problems()
    )
    answer(
        found, lambda: exports.as_csv(found) if FORMAT.value == "csv" else exports.table_text(found, index.paths())
    )
    say_problems(index)
    return EXIT_VALID


def archive(argv: list[str]) -> int:
    """Pack runs into one file, with a checksum of every file in it.

    python launch/report.py archive FILE.tar.gz RUN...
    """
    from benchmarks.history.archive import LEFT_OUT, write_archive
    from benchmarks.runs.find_runs import find_run
    from benchmarks.runs.runfolder import RESULT, RunFolder, without_result
    from benchmarks.text import bytes_text, plural
    from launch.terminal.documents import Archive
    from launch.terminal.run_index import print_some

    target, named = _file_and_runs(argv[1:], "archive")
    if not target.name.endswith((".tar.gz", ".tgz")):
        raise RequestError("the name of an archive must end with .tar.gz", where=str(target))
    folders = list(dict.fromkeys(find_run(name, Path(OUTPUT_DIR.value)).path.resolve() for name in named))
    for run in map(RunFolder, folders):
        if not (run.path / RESULT).is_file() or not run.is_collected():
            raise without_result(run.path)
    packed = write_archive(folders, target)
    archived = packed.archived
    answer(
        Archive(file=str(target), runs=[one.name for one in folders], sums_sha256=archived.sums_sha256),
        f"{target}: {plural(len(folders), 'run')}, {len(archived.sums)} files, {bytes_text(archived.size_bytes)} "
        f"({bytes_text(target.stat().st_size)} packed); without {LEFT_OUT}/ of each run\n"
        f"  SHA256SUMS  {archived.sums_sha256} (its own sha256)\n"
        f"  next        python launch/report.py verify_archive {shlex.quote(str(target))}     # on any machine",
    )
    if packed.skipped:
        print("stepmark: excluded, because they are links or their names begin with a dot:", file=sys.stderr)
        print_some(packed.skipped, len(packed.skipped))
    if packed.secrets:  # the archive keeps raw files unchanged, because their digests are recorded
        print("stepmark: these files, and now the archive, contain values that look like secrets:", file=sys.stderr)
        print_some(packed.secrets, len(packed.secrets))
    return EXIT_VALID


def verify_archive(argv: list[str]) -> int:
    """Check that an archive is unchanged, and that every result in it can be recomputed from its raw files.

    python launch/report.py verify_archive FILE.tar.gz          exit code 3 if a check fails
    """
    from benchmarks.history.archive import RUNS, unpack
    from benchmarks.text import bytes_text, plural
    from launch.checks.verifying import check_run
    from launch.terminal.documents import CheckedArchive
    from launch.terminal.run_index import print_some

    path = Path(only_argument(argv[1:], "python launch/report.py verify_archive --help"))
    if not path.is_file():
        raise RequestError("the file does not exist", where=str(path))
    with tempfile.TemporaryDirectory(prefix="stepmark-archive-") as place:
        found = unpack(path, Path(place))
        archived = found.archived
        if found.differences or archived is None:
            print(f"{path}: changed or incomplete", flush=True)
            print_some(found.differences, len(found.differences))
            document(CheckedArchive(file=str(path), whole=False, differences=found.differences, runs=[]))
            return EXIT_INVALID
        sizes = f"{plural(len(archived.runs), 'run')}, {len(archived.sums)} files, {bytes_text(archived.size_bytes)}"
        print(f"{path}: complete: {sizes}")
        print(f"  SHA256SUMS  {archived.sums_sha256} (its own sha256)")
        with contextlib.chdir(place):  # a run is named as it is in the archive
            checked = [check_run(Path(RUNS, name), Path(RUNS)) for name in archived.runs]
    agree = sum(code == EXIT_VALID for _, code in checked)
    print(f"{agree:,} of {plural(len(checked), 'run')} agree with their raw files")
    document(CheckedArchive(file=str(path), whole=True, differences=[], runs=[one for one, _ in checked]))
    return EXIT_VALID if agree == len(checked) else EXIT_INVALID


def html(argv: list[str]) -> int:
    """Write one page about runs, sweeps and nights, which works offline.

    python launch/report.py html FILE.html RUN...               runs, nights or the files of sweeps
    """
    from benchmarks.pages.html_pages import write_html
    from benchmarks.runs.find_runs import place_of
    from benchmarks.text import bytes_text
    from launch.terminal.documents import Page

    target, named = _file_and_runs(argv[1:], "html")
    folder = Path(OUTPUT_DIR.value)
    nights = {
        path.stem: path for path in folder.glob("nights/*/*.json")
    }  # look for nights first, because the name of a run may begin with a night's name
    code = write_html([str(nights.get(name) or place_of(name, folder)) for name in named], target)
    size = target.stat().st_size
    answer(Page(file=str(target), bytes=size), f"{target}: {bytes_text(size)}, works offline")
    return code


def _file_and_runs(arguments: list[str], command: str) -> tuple[Path, list[str]]:
    """Return the file to write, and the names of runs in the arguments."""
    if len(arguments) < 2 or not arguments[0]:
        usage = f"python launch/report.py {command} --help"
        raise RequestError("the runs are missing" if arguments else "the file is missing", next_command=usage)
    return Path(arguments[0]), arguments[1:]


def scaling(argv: list[str]) -> int:
    """Show how a sweep scales and how much PGLE gains, from the current results.

    python launch/report.py scaling results/sweep-TIME.json
    python launch/report.py scaling results/sweep-*.json        the newest of several sweeps
    """
    from benchmarks.sweeps import sweep_report

    if not argv[1:]:
        raise RequestError(
            "the sweep is missing", next_command="python launch/report.py scaling results/sweep-*.json"
        )
    newest = max(map(Path, argv[1:]), key=lambda path: path.name)  # the files' names begin with the time
    found = sweep_report.report_of_file(newest)
    answer(found, lambda: sweep_report.text(found, newest))
    return EXIT_VALID


def references(argv: list[str]) -> int:
    """List the published results with the numbers that their sources print, and the omitted rows with the reason.

    python launch/report.py references
    """
    from benchmarks.model.published_rows import read_omitted, read_references
    from benchmarks.references.nearest_reference import References, table_text
    from launch.terminal import places

    refuse_more(argv[1:], "python launch/report.py references")
    root = places.configs().root
    found = References(rows=read_references(root), omitted=read_omitted(root))
    answer(found, lambda: table_text(found))
    return EXIT_VALID


def trace(argv: list[str]) -> int:
    """Break down the time of a step, from a profiler's trace (docs/how-to/profile.md).

    python launch/report.py trace results/RUN                   a profiled run, or a profiler's file
    python launch/report.py trace results/RUN --json
    """
    from benchmarks.runs.find_runs import place_of
    from benchmarks.trace.report import trace_report
    from benchmarks.trace.tables import report_text

    place = place_of(only_argument(argv[1:], "python launch/report.py trace --help"), Path(OUTPUT_DIR.value))
    with tempfile.TemporaryDirectory(prefix="stepmark-nsys-") as room:  # a run's folder must not get new raw files
        found = trace_report(place, lambda report: _exported(report, Path(room)))
    answer(found, lambda: report_text(found))
    return EXIT_VALID


def _exported(report: Path, room: Path) -> Path:
    """Convert a report of Nsight Systems to SQLite, and return that file."""
    import subprocess

    database = room / f"{report.stem}.sqlite"
    command = ["nsys", "export", "--type=sqlite", "--force-overwrite=true", f"--output={database}", str(report)]
    print(f"exporting {report.name} ...", file=sys.stderr)
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise RequestError("not read, because nsys is not on PATH (nsys-ui opens the file)") from None
    if done.returncode != 0 or not database.is_file():
        last = (done.stderr or done.stdout).strip().splitlines()
        raise RequestError(f"nsys export failed ({done.returncode}): {last[-1] if last else 'no message'}")
    return database


def mlperf(argv: list[str]) -> int:
    """Run MLPerf's own and further checks on MLLOG files; exit code 3 if one fails (docs/reference/mlperf_rules.md).

    python launch/report.py mlperf DIR                          a folder of logs, a job's output, or runs of Stepmark
    python launch/report.py mlperf DIR --ruleset=5.1.0 --json
    """
    from launch.mlperf.judging import report

    return report(Path(only_argument(argv[1:], "python launch/report.py mlperf --help")), RULESET.value)


SUBCOMMANDS = Subcommands(
    "report",
    __doc__,
    {
        "timing": Subcommand(timing, (WINDOW,)),
        "runs": Subcommand(runs, (OUTPUT_DIR, WHERE, NEWEST, FORMAT)),
        "archive": Subcommand(archive, (OUTPUT_DIR,)),
        "verify_archive": Subcommand(verify_archive),
        "html": Subcommand(html, (OUTPUT_DIR,)),
        "scaling": Subcommand(scaling),
        "references": Subcommand(references),
        "trace": Subcommand(trace, (OUTPUT_DIR,)),
        "mlperf": Subcommand(mlperf, (RULESET,)),
    },
    lambda _: "timing",
)

if __name__ == "__main__":
    SUBCOMMANDS.run()
