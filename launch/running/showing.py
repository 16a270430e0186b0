"""The end of a run, as every launch script shows it: the table, where its files are, and what to do next."""

import shlex
from collections.abc import Iterable
from typing import TYPE_CHECKING

from benchmarks.errors import StepmarkError
from benchmarks.measuring import result_text
from benchmarks.measuring.summary import Result
from benchmarks.model.published_rows import read_references
from benchmarks.references import nearest_reference
from benchmarks.runs.runfolder import RESULT, RunFolder
from benchmarks.text import Rows, aligned, title
from launch.terminal.places import configs

if TYPE_CHECKING:
    from launch.terminal.documents import Runs


def runs_document(folders: Iterable[RunFolder]) -> "Runs":
    """Return runs as --json prints them."""
    from launch.terminal.documents import Run, Runs

    runs = []
    for folder in folders:
        result = folder.stored_result() if (folder.path / RESULT).exists() else None
        status = result.status if result else "not ended"
        runs.append(Run(run_id=folder.run_id, path=str(folder.path), status=status, result=result))
    return Runs(runs=runs)


def show_result(folder: RunFolder, result: Result) -> None:
    rows = result_text.result_rows(result)
    if result.status == "failed":
        rows += _diagnosis(folder)
    nearest = nearest_reference.nearest_of_result(result, read_references(configs().root))
    rows.append(("reference", nearest_reference.text(nearest)))
    rows.append(("files", str(folder.path)))
    rows.append(("next", next_command(folder, result)))
    print("\n".join([title(folder.benchmark()), *aligned(rows)]), flush=True)


def _diagnosis(folder: RunFolder) -> Rows:
    """What its logs say of the first cause. A log that can't be read hides no result."""
    from benchmarks.doctor.text import first_rows
    from benchmarks.runs.diagnosing import diagnosis_of_run

    try:
        first = diagnosis_of_run(folder).first
    except (StepmarkError, OSError) as error:
        return [("doctor", f"could not read the logs: {error}")]
    return [] if first is None else first_rows(first)


def next_command(folder: RunFolder, result: Result) -> str:
    if result.status == "failed":
        return _log_command(folder, result)
    place, parent = shlex.quote(str(folder.path)), shlex.quote(str(folder.path.parent))
    trace = f"python launch/report.py trace {place}\n" if result.not_comparable else ""
    return f"{trace}python launch/verify.py {place}\npython launch/dashboard.py --output_dir={parent} --serve"


def _log_command(folder: RunFolder, result: Result) -> str:
    """The log in which the reason stands: a rank's, or where none has written any, the job's own."""
    place = shlex.quote(str(folder.path))
    last = result.attempts[-1] if result.attempts else None
    attempt = last.attempt if last else max(folder.attempts(), default=0)
    for rank in (last.rank or 0 if last else 0, 0):
        logs = f"attempt-{attempt}/*/rank-{rank}.log"
        if any(folder.path.glob(logs)):
            return f"tail -n 40 {place}/{logs}"
    if any(folder.path.glob("slurm-*.out")):
        return f"tail -n 40 {place}/slurm-*.out"
    return f"python launch/verify.py {place}"
