"""List the state of runs; follow, cancel or collect queued runs.

Examples:
  python launch/status.py
      list the runs in results/ with state, job, step and seconds per step, and collect those whose jobs have ended
  python launch/status.py --follow RUN
      show the state in the queue, then the steps of a run as they arrive, and its result
  python launch/status.py --cancel RUN
      cancel the job of a run; the recorded steps are kept
  python launch/status.py --collect RUN
      make the result of a run from its files and Slurm's record, even if it already has a result

RUN is a run's folder, or a part of its name. The command works from any shell that sees the folder, even after the
launcher was killed. Exit codes: 0 done (with --follow and --collect: the run is valid); 1 a run failed or Slurm did
not answer; 2 the request was wrong; 3 a run is invalid.
"""

if not __package__:  # run as a script: put the checkout, not launch/, on the path
    import _script  # noqa: F401

import re
import shlex
import sys
from pathlib import Path

from absl import flags

from benchmarks.backend import find_backend
from benchmarks.errors import (
    EXIT_CODES,
    EXIT_FAILED,
    EXIT_INTERRUPTED,
    EXIT_INVALID,
    EXIT_VALID,
    RequestError,
    StepmarkError,
)
from benchmarks.measuring.summary import Result
from benchmarks.runs.find_runs import find_run, find_runs, short_names
from benchmarks.runs.runfolder import RunFolder
from benchmarks.text import columns, seconds_text
from launch.cli.command import run_main
from launch.running.screen import runs_document, show_result
from launch.slurm.client import slurm_of
from launch.slurm.collect import collect
from launch.slurm.run_states import RunState, states
from launch.slurm.watch import ends_of, require_job, wait_for
from launch.terminal.documents import State
from launch.terminal.output import VERBOSE, answer, document

BETTER_FIRST = [EXIT_VALID, EXIT_INVALID, EXIT_FAILED, EXIT_INTERRUPTED]

FLAGS = flags.FLAGS
flags.DEFINE_string("output_dir", "results", "Folder of the runs.")
flags.DEFINE_boolean("follow", False, "Follow a run until it ends.")
flags.DEFINE_boolean("cancel", False, "Cancel runs.")
flags.DEFINE_boolean("collect", False, "Collect runs.")
flags.declare_key_flag(VERBOSE)


def main(argv: list[str]) -> int:
    chosen = [name for name in ("follow", "cancel", "collect") if getattr(FLAGS, name)]
    if len(chosen) > 1:
        raise RequestError(f"--{chosen[0]} and --{chosen[1]} exclude each other", where="launch/status.py")
    output_dir = Path(FLAGS.output_dir)
    if not chosen:
        return listing([find_run(name, output_dir) for name in argv[1:]] or find_runs(output_dir))
    if len(argv) < 2:
        listed = f"python launch/status.py --output_dir={shlex.quote(str(output_dir))}"
        raise RequestError(f"--{chosen[0]} needs a run", next_command=listed)
    folders = [find_run(name, output_dir) for name in argv[1:]]
    act = {"follow": follow, "cancel": cancel, "collect": collect_again}[chosen[0]]
    code = max((act(folder) for folder in folders), key=BETTER_FIRST.index)
    document(runs_document(folders))
    return code


# --- the list -----------------------------------------------------------------------------------


def listing(folders: list[RunFolder]) -> int:
    rows = states(folders)
    names = State.__struct_fields__[2:]
    answer(
        [
            State(row.folder.run_id, str(row.folder.path), **{name: getattr(row, name) for name in names})
            for row in rows
        ],
        lambda: "\n".join([*table(rows), *_why_failed(rows)]) if rows else f"no runs in {FLAGS.output_dir}",
    )
    for problem in dict.fromkeys(problem for row in rows for problem in row.problems):
        print(f"stepmark: {problem}", file=sys.stderr)
    return EXIT_FAILED if any(row.problems for row in rows) else EXIT_VALID


def table(rows: list[RunState]) -> list[str]:
    ids = [row.folder.run_id for row in rows]
    every = {folder.run_id for parent in {row.folder.path.parent for row in rows} for folder in find_runs(parent)}
    short = short_names(ids, every)
    cells = [("RUN", "STARTED", "WHAT", "SITE", "JOB", "STATE", "STEP", "SECONDS/STEP", "")]
    for name, row in zip(ids, rows, strict=True):
        step = "-" if row.step is None else f"{row.step + 1}/{row.steps}"
        speed = "-" if row.seconds_per_step is None else seconds_text(row.seconds_per_step)
        cells.append((short[name], *_words(name), row.site, row.job_id or "-", row.state, step, speed, row.detail))
    return columns(cells, indent="")


def _words(run_id: str) -> tuple[str, str]:
    """Return the start time of a run, and a description of its benchmark."""
    found = re.fullmatch(r"(\d{4})(\d\d)(\d\d)T(\d\d)(\d\d)\d\dZ-(.*)-\w+", run_id)
    if found is None:  # the folder was renamed
        return "-", run_id
    year, month, day, hour, minute, what = found.groups()
    return f"{year}-{month}-{day} {hour}:{minute}", what.replace("-", " ")


def _why_failed(rows: list[RunState]) -> list[str]:
    """Return the first cause of each failure that was just collected, and the command that shows more."""
    from benchmarks.runs.diagnosing import why_failed

    failed = [row for row in rows if row.state == "failed"]
    found = {row.folder.run_id: why_failed(row.folder) for row in failed if row.just_collected}
    lines = [f"{run_id}: {why}" for run_id, why in found.items() if why]
    last = [f"  next  python launch/doctor.py logs {shlex.quote(str(row.folder.path))}" for row in failed[-1:]]
    return [*lines, *last]


# --- one run ------------------------------------------------------------------------------------


def follow(folder: RunFolder) -> int:
    (row,) = states([folder])
    if row.ended:
        return _shown(folder, folder.stored_result())
    return wait_for(folder, find_backend(folder.benchmark().backend))


def cancel(folder: RunFolder) -> int:
    slurm = slurm_of(folder)
    require_job(folder, slurm)
    queued = slurm.queue(folder.job_ids())
    if not queued:
        (row,) = states([folder])
        print(f"{folder.run_id}: no job to cancel, the run is {row.state}")
        return EXIT_FAILED if row.problems else EXIT_VALID
    for job_id in queued:
        slurm.cancel(job_id)
        print(f"{folder.run_id}: job {job_id} cancelled; the recorded steps are kept")
    print(f"  next  python launch/status.py {shlex.quote(str(folder.path))}")
    return EXIT_VALID


def collect_again(folder: RunFolder) -> int:
    """Collect the result of a run. If Slurm is gone, use only the run's own files, and note that in the result."""
    slurm = slurm_of(folder, patience_seconds=10.0)
    try:
        require_job(folder, slurm)
        going_on = slurm.queue(folder.job_ids())
    except StepmarkError:
        if not folder.is_queued() or not folder.job_ids():
            raise
        going_on = {}
    if going_on:
        raise RequestError(
            f"job {next(iter(going_on))} has not ended",
            where=str(folder.path),
            next_command=f"python launch/status.py --follow {shlex.quote(str(folder.path))}",
        )
    return _shown(folder, collect(folder, find_backend(folder.benchmark().backend), ends_of(slurm, folder)))


def _shown(folder: RunFolder, result: Result) -> int:
    show_result(folder, result)
    return EXIT_CODES[result.status]


if __name__ == "__main__":
    run_main(main)
