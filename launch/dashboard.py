"""One TensorBoard directory over all runs of a folder: made, kept up to date, and served.

Examples:
  python launch/dashboard.py
      bring results/dashboard up to date with the runs in results/; only what is new is written
  python launch/dashboard.py --serve
      the same, then start TensorBoard on it and keep it up to date until Ctrl-C
  python launch/dashboard.py --where=model=llama2_70b --where='gpus>=64' --dashboard_dir=/tmp/large
      of some runs alone, in a directory of its own
  python launch/dashboard.py --rebuild
      forget what was written, and write all of it anew

Custom Scalars shows step times with their 5-95% band, throughput, MFU and scaling over all runs, a line for each
series, and the nights of each nightly suite with the changes of their level; HParams a table of the newest runs; the
other tabs each run's own steps. Profiles are in the tab Profile where xprof is installed (docs/reports.md).
Exit codes: 0 done; 1 TensorBoard or the disk failed; 2 the request was wrong.
"""

if not __package__:  # run as a script: put the checkout, not launch/, on the path
    import _script  # noqa: F401

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from absl import flags

from benchmarks.errors import EXIT_VALID, RequestError
from launch.cli import run_main

if TYPE_CHECKING:
    from benchmarks.history.filters import Condition
    from launch.dashboards.update import Updated

OUTPUT_DIR = flags.DEFINE_string("output_dir", "results", "The folder with the runs.")
DASHBOARD_DIR = flags.DEFINE_string(
    "dashboard_dir", None, "The directory for TensorBoard; without it, dashboard/ in the folder with the runs."
)
WHERE = flags.DEFINE_multi_string("where", None, "Only runs that fit, such as model=llama2_70b or 'gpus>=64'.")
NEWEST = flags.DEFINE_integer("newest", 200, "So many runs have a row in the table, and their own lines.", 0)
REBUILD = flags.DEFINE_boolean("rebuild", False, "Write everything anew.")
SERVE = flags.DEFINE_boolean("serve", False, "Start TensorBoard, and keep the directory up to date meanwhile.")
HOST = flags.DEFINE_string("host", "localhost", "Where TensorBoard listens.")
PORT = flags.DEFINE_integer("port", 6006, "Its port; 0 takes a free one.", 0, 65535)
REFRESH_SECONDS = flags.DEFINE_float("refresh_seconds", 30.0, "Between two updates while it serves; 0: none.", 0.0)


def main(argv: list[str]) -> int:
    if len(argv) > 1:
        raise RequestError(
            f"'{argv[1]}': the dashboard takes flags alone",
            where="launch/dashboard.py",
            next_command=f"python launch/dashboard.py --output_dir={argv[1]}",
        )
    output_dir = Path(OUTPUT_DIR.value)
    if not output_dir.is_dir():
        raise RequestError(
            "there is no such folder of runs",
            where=f"--output_dir={output_dir}",
            next_command="--output_dir=DIR with the folder that was given to run.py",
        )
    where = _conditions()
    logdir = _logdir(output_dir, where)
    updated, told = _update(output_dir, logdir, where, rebuild=REBUILD.value)
    print(text_of(updated, logdir, NEWEST.value))
    return _serve(output_dir, logdir, where, told) if SERVE.value else EXIT_VALID


def _logdir(output_dir: Path, where: "list[Condition]") -> Path:
    """Of some runs alone not the place of all: what does not fit would be removed there."""
    of_all = output_dir / "dashboard"
    logdir = Path(DASHBOARD_DIR.value) if DASHBOARD_DIR.value else of_all
    if where and logdir.resolve() == of_all.resolve():
        raise RequestError(
            "a dashboard of some runs needs a directory of its own",
            where="--where",
            why=f"{of_all} is that of all runs, and would lose the others",
            next_command="the same with --dashboard_dir=DIR, a new or an empty folder",
        )
    return logdir


def _conditions() -> "list[Condition]":
    from benchmarks.history.filters import parse_condition

    return [parse_condition(text) for text in WHERE.value or []]


def _update(
    output_dir: Path, logdir: Path, where: "list[Condition]", *, rebuild: bool = False, quiet: bool = False
) -> "tuple[Updated, list[str]]":
    """And what is to be said of folders and runs; where it is not `quiet`, that of folders was."""
    from launch.dashboards.update import update
    from launch.reports.run_index import open_index, say_problems

    index = open_index(output_dir)
    if not quiet:
        say_problems(index)
    entries = index.select(where)
    updated = update(
        output_dir,
        logdir,
        entries,
        newest=NEWEST.value,
        filtered=bool(where),
        rebuild=rebuild,
        progress=_progress if sys.stderr.isatty() and not quiet else None,
    )
    left_out = [f"{problem.folder} is left out: {problem.reason}" for problem in index.problems()]
    return updated, [*index.notes, *left_out, *updated.notes]


def _progress(done: int, total: int) -> None:
    end = "\n" if done == total else ""
    print(f"\rreading the steps of {done:,} of {total:,} runs", end=end, file=sys.stderr, flush=True)


def text_of(updated: "Updated", logdir: Path, newest: int) -> str:
    """What the dashboard holds, what was done, and what is left out."""
    changes = updated.changes
    lines = [
        f"dashboard over {_count(updated.runs, 'run')}",
        f"  charts    {_count(updated.points, 'run')} in {updated.series} series"
        + (f"; {_count(updated.nights, 'night')}" if updated.nights else ""),
        f"  table     {_count(updated.rows, 'run')}"
        + (f", the newest (--newest={newest}); {updated.runs - updated.rows:,} older ones are in the charts alone"
           if updated.rows < updated.runs else ""),
        f"  written   {changes.written} new, {changes.unchanged} as before, {changes.removed} removed",
    ]  # fmt: skip
    if updated.left_out:
        reasons = ", ".join(f"{count:,} {why}" for why, count in sorted(updated.left_out.items()))
        lines.append(f"  left out  {reasons}: in no chart over many runs")
    lines += [f"  note      {note}" for note in updated.notes]
    lines += [
        f"  files     {logdir}",
        f"  next      {_serve_command()}",
    ]
    return "\n".join(lines)


def _serve_command() -> str:
    """Of the same runs in the same place."""
    own = [f"--dashboard_dir={DASHBOARD_DIR.value}"] if DASHBOARD_DIR.value else []
    where = [f"--where={text}" for text in WHERE.value or []]
    return shlex.join(["python", "launch/dashboard.py", "--serve", f"--output_dir={OUTPUT_DIR.value}", *own, *where])


def _count(number: int, word: str) -> str:
    return f"{number:,} {word}" if number == 1 else f"{number:,} {word}s"


# --- serving --------------------------------------------------------------------------------------


def _serve(output_dir: Path, logdir: Path, where: "list[Condition]", told: list[str]) -> int:
    from launch.dashboards.folders import STATE
    from launch.dashboards.serving import LOG, Refresh, tensorboard, watch
    from launch.running.local import interrupted_once

    refresh = Refresh(lambda: _update(output_dir, logdir, where, quiet=True)[1], told)
    with interrupted_once():
        try:
            with tensorboard(logdir, HOST.value, PORT.value) as (address, server):
                print("\n".join(addresses(address)), flush=True)
                watch(server, logdir / STATE / LOG, refresh, REFRESH_SECONDS.value)
        except KeyboardInterrupt:
            print("TensorBoard ended", file=sys.stderr)
    return EXIT_VALID


def addresses(address: str) -> list[str]:
    """TensorBoard draws no line by itself where there are more than 40: the charts' address says which."""
    over_runs = "_smoothingWeight=0&regexInput=%5E(series|scaling|nights)%2F"
    return [
        f"TensorBoard  {address}/",
        f"  charts     {address}/#custom_scalars&{over_runs}",
        f"  table      {address}/#hparams",
        f"  each run   {address}/#timeseries",
        "Ctrl-C ends it",
    ]


if __name__ == "__main__":
    run_main(main)
