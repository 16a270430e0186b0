"""Reports over many runs at once.

    python launch/report.py --window=35-44 DIR                  a row for each training log below DIR
    python launch/report.py --window=35-44 --format=csv DIR     the same for a spreadsheet, or json
    python launch/report.py                                     of ./experiments, steps 35 to 44
    python launch/report.py --sweep=results/sweep-*.json        how a sweep scales, and what PGLE gains in it
                                                                (the newest where several are called so)
    python launch/report.py --references                        published figures, and those that do not follow
                                                                from their own step time
    python launch/report.py --trace results/RUN                 where a step's time goes, from a profiler's trace
                                                                (docs/profiling.md; a trace itself may be named too)
    python launch/report.py --runs=results                      the runs of a folder (docs/history.md), all or those
        --where=model=llama2_70b --where='gpus>=64'             that fit, as a table, csv, json or markdown
    python launch/report.py --archive=FILE.tar.gz RUN...        runs as one file, or those that fit --where
    python launch/report.py --verify_archive=FILE.tar.gz        is it as it was written, does every result follow
                                                                from its raw files: exit 3 where it is otherwise
    python launch/report.py --html=FILE RUN...                  one page about runs, sweeps and nights
    python launch/report.py --mlperf=DIR                        MLPerf's checkers and more on the MLLOGs of a folder
        --ruleset=5.1.0 --package=OUT/ORG --system=FILE.json    (docs/mlperf_logs.md): exit 3 where they fail

The table of `parse_train_timing.sh`: mean and sample standard deviation (n - 1) of the step times, and of
TFLOPS_per_GPU where the log prints it. Every file below DIR is counted: incomplete runs with the step they reached,
failed ones with their reason, and what is no training log; what lies beside the logs in a run folder of Stepmark's
own is one line. A run of Stepmark's own under a profiler, and the phases beside the measured one, are named as not
compared and have no figures; steps in which PGLE recorded or compiled are left out and listed. Several folders and
files may be given. The exit code is 0 when the report was made, also when runs in it have failed, and 2 for a wrong
request.
"""

if not __package__:  # run as a script: put the checkout, not launch/, on the path
    import _script  # noqa: F401

import glob
import shutil
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from absl import flags

from benchmarks.errors import EXIT_VALID, RequestError
from benchmarks.logs import timing_table
from benchmarks.logs.timing_table import Row
from benchmarks.measuring import window
from benchmarks.values import json_text
from launch.cli import run_main

DEFAULT_FOLDER = "experiments"
DEFAULT_RUNS = "results"
MARKDOWN = "markdown"
# A kind of report over runs -> the other flags it takes.
OF_RUNS = {
    "verify_archive": (),
    "archive": ("runs", "where", "newest"),
    "html": ("runs", "where", "newest"),
    "runs": ("where", "newest", "rebuild_index", "format"),
}
NOT_WITH_RUNS = ("references", "trace", "sweep", "window", "full_names")
OF_MLPERF = ("mlperf", "ruleset", "package", "system", "implementation")
WHICH_SWEEPS = (
    "ls results/sweep-*.json     (--sweep=FILE with one of them; they lie in the --output_dir of the sweep)"
)

WINDOW = flags.DEFINE_string(
    "window", timing_table.DEFAULT_WINDOW, "Which steps count: A-B (as printed in the log), last, or steady."
)
FORMAT = flags.DEFINE_enum(
    "format", "table", [*timing_table.FORMATS, MARKDOWN], "The shape of the report; markdown with --runs alone."
)
RUNS = flags.DEFINE_string("runs", None, f"The folder with the runs ({DEFAULT_RUNS}, where --where is all there is).")
WHERE = flags.DEFINE_multi_string("where", [], "Which of them, such as dtype=bf16,fp8 or gpus>=64; all must hold.")
NEWEST = flags.DEFINE_integer("newest", None, "The newest N of them alone.", lower_bound=1)
REBUILD_INDEX = flags.DEFINE_boolean("rebuild_index", False, "Forget what is known of the runs, and read all anew.")
ARCHIVE = flags.DEFINE_string("archive", None, "Runs as one file, with a checksum of every file in it.")
VERIFY_ARCHIVE = flags.DEFINE_string("verify_archive", None, "Check such a file, and recompute its results.")
HTML = flags.DEFINE_string("html", None, "One page about runs, sweeps and nights that needs no network.")
SWEEP = flags.DEFINE_string("sweep", None, "The record of a sweep (sweep-*.json): its scaling table as it stands.")
TRACE = flags.DEFINE_string("trace", None, "A profiled run, or a profiler's file: where the time of a step goes.")
MLPERF = flags.DEFINE_string("mlperf", None, "Judge the MLLOG files of a folder, a job's output, or a submission.")
RULESET = flags.DEFINE_string("ruleset", None, "The rules of MLPerf Training, such as 5.1.0; without it, the newest.")
PACKAGE = flags.DEFINE_string("package", None, "Make a submission's folder (OUT/ORG) of the runs, and judge that.")
SYSTEM = flags.DEFINE_string("system", None, "The description of the machines, a JSON file, for --package.")
IMPLEMENTATION = flags.DEFINE_string("implementation", None, "The folder with the code that ran, for --package.")
REFERENCES = flags.DEFINE_boolean("references", False, "Published figures, each beside what its own step time gives.")
FULL_NAMES = flags.DEFINE_boolean("full_names", False, "Name each log by its path instead of its experiment.")
flags.DEFINE_alias("full-names", "full_names")


def main(argv: list[str]) -> int:
    kind = _kind_of_runs()
    if kind:
        return over_runs(kind, argv[1:])
    if _mlperf_asked():
        return mlperf(argv[1:])
    if FORMAT.value == MARKDOWN:
        raise RequestError("--format=markdown means something with --runs alone", where="--format=markdown")
    if REFERENCES.value:
        return references(argv[1:])
    if TRACE.value is not None:
        return trace(Path(TRACE.value), argv[1:])
    if SWEEP.value:
        return scaling(_newest(SWEEP.value), argv[1:])
    return timing(argv[1:])


def _kind_of_runs() -> str | None:
    """Which report over runs was asked for, if any; what it does not take is refused."""
    known = dict.fromkeys([*OF_RUNS, *OF_RUNS["runs"], *NOT_WITH_RUNS])
    given = [name for name in known if flags.FLAGS[name].present]
    kind = next((name for name in OF_RUNS if name in given), None)
    if kind is None and any(name in given for name in ("where", "newest", "rebuild_index")):
        kind = "runs"
    if kind is None:
        return None
    too_much = [name for name in given if name not in (kind, *OF_RUNS[kind])]
    if too_much:
        raise RequestError(
            f"--{kind} takes no --{too_much[0]}",
            where=f"--{too_much[0]}",
            next_command="python launch/report.py --help",
        )
    _refuse_empty(given)
    return kind


def _refuse_empty(given: Sequence[str]) -> None:
    """An empty variable of a shell script: all runs are not what was asked for."""
    for name in given:
        if flags.FLAGS[name].value == "":
            raise RequestError(f"--{name}= names nothing", where=f"--{name}=")


def over_runs(kind: str, places: list[str]) -> int:
    """The runs of a folder, or a file of runs."""
    from launch.reports import run_reports

    folder = Path(RUNS.value or DEFAULT_RUNS)
    chosen = bool(WHERE.value or NEWEST.value)
    if kind in ("runs", "verify_archive") and places:
        raise RequestError(f"--{kind} takes no places", where=places[0], next_command=_instead(kind, places[0]))
    if kind == "verify_archive":
        return run_reports.verify_archive(Path(VERIFY_ARCHIVE.value or ""))
    if kind == "runs":
        return run_reports.listing(folder, WHERE.value, NEWEST.value, FORMAT.value, rebuild=REBUILD_INDEX.value)
    if bool(places) == chosen:
        raise RequestError(
            "runs are named, or chosen with --where: not both" if chosen else "which runs?",
            where=f"--{kind}",
            next_command=f"python launch/report.py --{kind}=FILE RUN..., or --where=KEY=VALUE",
        )
    work = run_reports.archive if kind == "archive" else run_reports.html
    return work(Path(str(flags.FLAGS[kind].value)), places, folder, WHERE.value, NEWEST.value)


def _instead(kind: str, place: str) -> str:
    own = f"--runs={place}" if kind == "runs" else f"--verify_archive={place}"
    return f"python launch/report.py {own}"


def _mlperf_asked() -> bool:
    """Whether --mlperf or a flag of it is there."""
    given = [name for name in OF_MLPERF if flags.FLAGS[name].present]
    if not given:
        return False
    _refuse_empty(given)
    if MLPERF.value is None:
        raise RequestError(
            f"--{given[0]} goes with --mlperf",
            where=f"--{given[0]}",
            next_command="python launch/report.py --mlperf=DIR",
        )
    return True


def mlperf(places: list[str]) -> int:
    """MLPerf's own checkers, and what they lack, on the logs of a place."""
    from launch.mlperf.report import report

    others = [f"--{name}" for name in (*OF_RUNS["runs"], *NOT_WITH_RUNS, "runs") if flags.FLAGS[name].present]
    wrong = "places beside it" if places else next((name for name in others if name != "--format"), "")
    if not wrong and FORMAT.value not in ("table", "json"):
        wrong = f"--format={FORMAT.value}"
    if wrong:
        raise RequestError(
            f"--mlperf takes no {wrong}",
            where="--mlperf",
            next_command=f"python launch/report.py --mlperf={MLPERF.value} --format=json",
        )
    made, system, code = (Path(flag.value) if flag.value else None for flag in (PACKAGE, SYSTEM, IMPLEMENTATION))
    return report(Path(MLPERF.value or ""), RULESET.value, made, system, code, as_json=FORMAT.value == "json")


def references(places: list[str]) -> int:
    """The published rows, recomputed from their step times; which cells do not follow."""
    from benchmarks.references import reference_table
    from benchmarks.references.references import read_references
    from launch.command_line import places as own

    if places or SWEEP.value or TRACE.value or FORMAT.value == "csv":
        wrong = "places" if places else "--format=csv" if FORMAT.value == "csv" else "other reports beside it"
        raise RequestError(
            f"--references takes no {wrong}",
            where="--references",
            next_command="python launch/report.py --references --format=json",
        )
    configs = own.configs()
    rows = read_references(configs.root)
    checked = reference_table.check(rows, configs.model, configs.hardware)
    print(json_text(checked) if FORMAT.value == "json" else reference_table.table_text(checked))
    return EXIT_VALID


def trace(place: Path, others: list[str]) -> int:
    """Where the time of a step goes, from a profiler's trace of a run."""
    from benchmarks.trace.tables import report_text
    from launch.reports import tracing

    if others or SWEEP.value or FORMAT.value == "csv":
        wrong = "other places beside it" if others else "--sweep" if SWEEP.value else "--format=csv"
        raise RequestError(
            f"--trace takes no {wrong}",
            where="--trace",
            next_command=f"python launch/report.py --trace {place} --format=json",
        )
    found = tracing.trace_report(place)
    print(json_text(found) if FORMAT.value == "json" else report_text(found, shutil.get_terminal_size().columns))
    return EXIT_VALID


def scaling(path: Path, places: list[str]) -> int:
    """The table at the end of a sweep, from the results there are now."""
    from launch.campaigns import sweeping

    if places or FORMAT.value == "csv":
        raise RequestError(
            f"--sweep takes no {'folders' if places else '--format=csv'}",
            where="--sweep",
            next_command=f"python launch/report.py --sweep={path} --format=json",
        )
    try:
        found = sweeping.report_of_file(path)
    except RequestError as error:
        # What the sweep's own launcher would do next is no help to one who only looks.
        raise RequestError(error.what, where=error.where, why=error.why, next_command=WHICH_SWEEPS) from None
    print(json_text(found) if FORMAT.value == "json" else sweeping.sweep_text(found, path))
    return EXIT_VALID


def _newest(pattern: str) -> Path:
    """The record that is named. A shell expands no pattern inside --sweep=..., so that is done here."""
    path = Path(pattern)
    if path.exists() or not glob.has_magic(pattern):
        return path
    found = sorted(glob.glob(pattern), key=lambda name: Path(name).name)  # noqa: PTH207 - it takes absolute patterns
    if not found:
        raise RequestError("no record of a sweep is called so", where=f"--sweep={pattern}", next_command=WHICH_SWEEPS)
    if len(found) > 1:
        print(f"the newest of {len(found)} sweeps: {found[-1]}", file=sys.stderr)
    return Path(found[-1])  # their names begin with the time


def timing(places: list[str]) -> int:
    """The table of step times of the logs in some places."""
    from benchmarks.configs import Configs
    from benchmarks.diagnosis.endings import Endings
    from benchmarks.diagnosis.symptoms import read_symptoms
    from benchmarks.logs.known_formats import all_log_formats
    from launch.reports.log_folder import LogReader, find_files

    window.check_rule(WINDOW.value)
    files = find_files(places or [DEFAULT_FOLDER])
    reader = LogReader(files, WINDOW.value, Endings(read_symptoms(Configs().root)), all_log_formats())
    rows = sorted(_with_progress(reader.rows(), reader.to_read), key=lambda row: row.path)
    columns = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    text = timing_table.FORMATS[FORMAT.value](timing_table.named(rows, FULL_NAMES.value), WINDOW.value, columns)
    sys.stdout.buffer.write(text.encode(errors="backslashreplace"))
    sys.stdout.flush()
    return EXIT_VALID


def _with_progress(rows: Iterable[Row], total: int) -> Iterator[Row]:
    """The same rows; on a terminal, with a bar beside stdout that vanishes in the end."""
    if not sys.stderr.isatty():
        yield from rows
        return
    from rich.console import Console
    from rich.progress import track

    console = Console(stderr=True)
    yield from track(rows, description="reading logs", total=total, console=console, transient=True)


if __name__ == "__main__":
    run_main(main)
